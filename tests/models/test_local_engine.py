"""The engine beside transformers' own forward pass and `generate`, and what it promises about batches, slots and failures."""

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

import pytest

from harness.errors import ContextOverflow, ModelUnavailable, UsageError

TEXTS = (
    "The capital of France is",
    "One, two, three, four,",
    "Once upon a time there was a small fox who lived in the old forest. " * 6 + "One day, it",
    "def add(a, b):\n    return",
    "Water",
)


@pytest.fixture
def engine(local: Any) -> Iterator[Any]:
    """A fresh one with few slots over the session's weights."""
    from harness.models.local.engine import Engine

    fresh = Engine(local.weights, tokens=2048, slots=4)
    yield fresh
    fresh.close()


def ids(local: Any, text: str) -> tuple[int, ...]:
    return tuple(local.tokenizer.encode(text, add_special_tokens=False))


def request(prompt: Sequence[int], **given: Any) -> Any:
    from harness.models.local.engine import Request

    return Request(prompt=tuple(prompt), **{"max_new": 8, "temperature": 0.0, **given})


def true_logprobs(reference: Any, prompt: Sequence[int], new: Sequence[int]) -> list[float]:
    import torch

    with torch.no_grad():
        logits = reference(torch.tensor([[*prompt, *new]])).logits[0].log_softmax(-1)
    return [float(logits[len(prompt) + place - 1, token]) for place, token in enumerate(new)]


def test_greedy_tokens_and_logprobs_are_transformers(engine: Any, local: Any, reference: Any) -> None:
    import torch

    prompts = [ids(local, text) for text in TEXTS]
    outputs = [f.result() for f in [engine.submit(request(prompt, max_new=6)) for prompt in prompts]]
    for prompt, output in zip(prompts, outputs, strict=True):
        given = torch.tensor([prompt])
        expected = reference.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, min_new_tokens=6, max_new_tokens=6, pad_token_id=2
        )
        if local.tokenizer.eos_token_id not in output.ids:
            assert list(output.ids) == expected[0, len(prompt) :].tolist()
        assert list(output.logprobs) == pytest.approx(true_logprobs(reference, prompt, output.ids), abs=1e-4)
        assert not output.ended


def test_sampled_tokens_depend_on_neither_company_nor_order(engine: Any, local: Any) -> None:
    asked = [request(ids(local, text), temperature=0.7, top_p=0.9, seed=seed, max_new=6) for seed, text in enumerate(TEXTS)]
    alone = [engine.submit(one).result().ids for one in asked]
    together = [f.result().ids for f in [engine.submit(one) for one in asked]]
    backwards = [f.result().ids for f in [engine.submit(one) for one in reversed(asked)]]
    assert alone == together == backwards[::-1]


def test_every_request_draws_by_its_own_seed(engine: Any, local: Any) -> None:
    prompt = ids(local, "My favourite word is")
    seeds = [0, 1, 0, 2, 1, 3]
    drawn = [f.result().ids for f in [engine.submit(request(prompt, temperature=1.0, seed=s)) for s in seeds]]
    assert drawn[0] == drawn[2]
    assert drawn[1] == drawn[4]
    assert len(set(drawn)) == 4


def test_a_shared_prefix_is_computed_once(engine: Any, local: Any, reference: Any) -> None:
    head, tails = ids(local, TEXTS[2]), [ids(local, text) for text in (" ran", " saw a bird and", " slept")]
    asked = [request(head + tail, shared=len(head), max_new=3) for tail in tails]
    outputs = [f.result() for f in [engine.submit(one) for one in asked]]
    assert engine.forwarded == len(head) + sum(len(tail) + 2 for tail in tails)
    assert sorted(o.cached for o in outputs) == [0, len(head), len(head)]
    for tail, output in zip(tails, outputs, strict=True):
        assert list(output.logprobs) == pytest.approx(true_logprobs(reference, head + tail, output.ids), abs=1e-4)


def test_a_follow_up_computes_only_what_is_new(engine: Any, local: Any, reference: Any) -> None:
    prompt = ids(local, TEXTS[2])
    first = engine.submit(request(prompt, max_new=4)).result()
    before = engine.forwarded
    follow = prompt + first.ids + ids(local, " Then the bird said")
    second = engine.submit(request(follow, max_new=2)).result()
    assert second.cached == len(prompt) + 3
    assert engine.forwarded - before == len(follow) - second.cached + 1
    assert list(second.logprobs) == pytest.approx(true_logprobs(reference, follow, second.ids), abs=1e-4)


def test_scores_are_transformers_and_share_prefixes(engine: Any, local: Any, reference: Any) -> None:
    head = ids(local, TEXTS[2])
    for place, text in enumerate((" found a bright red apple", " found a stone")):
        scored = ids(local, text)
        output = engine.submit(request(head + scored, max_new=0, scored=len(scored))).result()
        assert output.ids == scored
        assert list(output.logprobs) == pytest.approx(true_logprobs(reference, head, scored), abs=1e-4)
        assert output.cached == (len(head) - 1 if place else 0)
    whole = engine.submit(request(head + scored, shared=len(head), max_new=0, scored=len(scored))).result()
    assert list(whole.logprobs) == pytest.approx(list(output.logprobs), abs=1e-4)


def test_a_request_both_scores_and_writes(engine: Any, local: Any, reference: Any) -> None:
    prompt, begun = ids(local, "The weather today"), ids(local, " is very")
    output = engine.submit(request(prompt + begun, scored=len(begun), max_new=3)).result()
    assert output.ids[: len(begun)] == begun
    assert len(output.ids) == len(begun) + 3
    assert list(output.logprobs) == pytest.approx(true_logprobs(reference, prompt, output.ids), abs=1e-4)


def test_more_requests_than_slots_and_a_prompt_longer_than_a_slot(engine: Any, local: Any, reference: Any) -> None:
    long = ids(local, "A red fox and a grey hare. " * 90)
    assert len(long) > 512
    short = [engine.submit(request(ids(local, f"{n} and"), max_new=3)) for n in range(6)]
    wide = engine.submit(request(long, max_new=3))
    after = [engine.submit(request(ids(local, f"{n} and"), max_new=3)) for n in range(6)]
    assert [f.result().ids for f in short] == [f.result().ids for f in after]
    assert list(wide.result().logprobs) == pytest.approx(true_logprobs(reference, long, wide.result().ids), abs=1e-4)


def test_what_can_never_fit_is_refused(engine: Any) -> None:
    with pytest.raises(ContextOverflow, match="2041 tokens and may write 8; the model holds 2048"):
        engine.submit(request([1] * 2041))
    with pytest.raises(UsageError, match="at least one must come before"):
        engine.submit(request([1, 2], scored=2, max_new=0))


def test_cancelled_calls_free_their_slots(engine: Any, local: Any) -> None:
    prompt = ids(local, "Water")
    endless = [engine.submit(request(prompt, max_new=400, seed=n)) for n in range(4)]
    waiting = engine.submit(request(prompt, max_new=2))
    assert all(one.cancel() for one in endless)
    assert len(waiting.result().ids) == 2
    for one in endless:
        with pytest.raises(CancelledError):
            one.result()
    assert len([f.result() for f in [engine.submit(request(prompt, max_new=2)) for _ in range(4)]]) == 4


def test_a_failing_step_fails_its_requests_and_the_engine_lives_on(engine: Any, local: Any) -> None:
    prompt = ids(local, "Water")

    def broken(new: Sequence[int]) -> bool:
        raise ZeroDivisionError("no such thing")

    company = [engine.submit(request(prompt, max_new=300)), engine.submit(request(prompt, ends=broken))]
    for one in company:
        with pytest.raises(ModelUnavailable, match="the local model failed: no such thing"):
            one.result()
    assert len(engine.submit(request(prompt, max_new=2)).result().ids) == 2


def test_a_closed_engine_says_so(local: Any) -> None:
    from harness.models.local.engine import Engine

    engine = Engine(local.weights, tokens=512, slots=1)
    under_way = engine.submit(request(ids(local, "Water"), max_new=2))
    engine.close()
    engine.close()
    assert len(under_way.result().ids) == 2
    with pytest.raises(ModelUnavailable, match="closed"):
        engine.submit(request([1]))
