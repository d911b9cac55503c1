"""The litellm door against a real HTTP server that speaks OpenAI's tongue and misbehaves as it is told; nothing is patched."""

import asyncio
import email.utils
import json
import logging
import random
import sys
from typing import Any

import pytest

from harness.errors import AssayError, ContextOverflow, ModelUnavailable, Refused, UsageError
from harness.message import Action, Message, Observation
from harness.models.litellm import LiteLLM
from harness.policy import Policy, Sampling
from harness.prompt import parse, render, sampling
from harness.spec import HarnessSpec, Prompts
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Step
from tests.models.provider import HANG, Provider

NOW = 1_700_000_000.0
POLICY = Policy(model="openai/house-model", temperature=0.5, top_p=0.9)
ASKED = (Message(role="system", content="Be brief."), Message(role="user", content="Hello?"))
WEIGH = Tool(
    name="weigh",
    description="Weigh an item.",
    parameters={"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    effect="read",
)


def says(text: str | None = "hello", finish: str = "stop", **message: object) -> tuple[int, dict[str, str], object]:
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 4}}
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "house-7b", "choices": [choice], "usage": usage}
    return 200, {}, body


def calls(*written: tuple[str | None, str | None, str | None]) -> tuple[int, dict[str, str], object]:
    listed = [{"id": i, "type": "function", "function": {"name": name, "arguments": given}} for i, name, given in written]
    return says(None, "tool_calls", tool_calls=listed)


def fails(
    status: int, words: str = "no", headers: dict[str, str] | None = None, **more: str
) -> tuple[int, dict[str, str], object]:
    return status, headers or {}, {"error": {"message": words, **more}}


def door(provider: Provider, waits: list[float] | None = None, **options: Any) -> LiteLLM:
    """The model, whose waiting is written down instead of done."""

    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    settings = {"base_url": provider.url, "sleep": sleep, "clock": lambda: NOW, "rng": random.Random(1), "timeout": 20.0}
    return LiteLLM(**{**settings, **options})


# --- what goes out and what comes back ------------------------------------------------------------------------


async def test_one_answer_with_its_usage(provider: Provider) -> None:
    provider.script = [says("hello")]
    found = await door(provider).complete(POLICY, ASKED, (), Sampling(seed=2**40 + 5, stop=("END",), max_tokens=50))
    assert (found.text, found.finish, found.model, found.calls, found.unhonoured) == ("hello", "stop", "house-7b", (), ())
    used = found.usage
    assert (used.prompt_tokens, used.completion_tokens, used.cached_tokens, used.calls) == (11, 3, 4, 1)
    assert used.seconds > 0
    [body] = provider.bodies
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    assert {name: body[name] for name in ("model", "temperature", "top_p", "seed", "stop", "max_tokens")} == {
        "model": "house-model", "temperature": 0.5, "top_p": 0.9, "seed": 5, "stop": ["END"], "max_tokens": 50,
    }  # fmt: skip
    assert "tools" not in body


async def test_cost_is_known_where_the_price_is_and_said_to_be_unknown_where_not(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.script = [says()]
    priced = await door(provider).complete(Policy(model="openai/gpt-4o"), ASKED, (), Sampling())
    assert priced.usage.cost == pytest.approx(5.25e-05)
    with caplog.at_level(logging.WARNING):
        unpriced = await door(provider).complete(Policy(model="openai/no-such-price"), ASKED, (), Sampling())
    assert unpriced.usage.cost == 0
    assert "no price is known for model openai/no-such-price" in caplog.text


async def test_a_price_that_is_given_counts(provider: Provider) -> None:
    provider.script = [says()]
    model = door(provider, price=(2.0, 10.0))
    told = await model.complete(Policy(model="openai/no-such-price"), ASKED, (), Sampling())
    assert told.usage.cost == pytest.approx((11 * 2.0 + 3 * 10.0) / 1e6)
    assert model.priced("openai/no-such-price")
    assert not door(provider).priced("openai/no-such-price")
    assert door(provider).priced("openai/gpt-4o")


async def test_several_calls_in_one_output(provider: Provider) -> None:
    provider.script = [calls(("a", "weigh", '{"item": "kettle"}'), ("b", "weigh", '{"item": '), ("c", "paint", "{}"))]
    model = door(provider)
    found = parse(Prompts(), await model.complete(POLICY, ASKED, [WEIGH], Sampling()), [WEIGH])
    assert found.finish == "calls"
    assert [(a.id, a.kind, a.tool) for a in found.actions] == [
        ("a", "call", "weigh"),
        ("b", "invalid", "weigh"),
        ("c", "invalid", "paint"),
    ]
    assert provider.bodies[0]["tools"][0]["function"] == {
        "name": "weigh", "description": "Weigh an item.", "parameters": dict(WEIGH.parameters),
    }  # fmt: skip


async def test_an_empty_call_and_prose_come_back_as_they_are(provider: Provider) -> None:
    provider.script = [calls((None, None, None)), says("I would weigh it."), says(None)]
    model = door(provider)
    empty = await model.complete(POLICY, ASKED, [WEIGH], Sampling())
    assert (empty.calls[0].tool, empty.calls[0].arguments, bool(empty.calls[0].id)) == ("", "", True)
    assert parse(Prompts(), empty, [WEIGH]).actions[0].kind == "invalid"
    prose = parse(Prompts(), await model.complete(POLICY, ASKED, [WEIGH], Sampling()), [WEIGH])
    assert [(a.kind, a.text) for a in prose.actions] == [("answer", "I would weigh it.")]
    nothing = await model.complete(POLICY, ASKED, [WEIGH], Sampling())
    assert (nothing.text, nothing.calls) == ("", ())


async def test_a_whole_dialogue_is_sent_in_order_and_broken_calls_are_made_readable(provider: Provider) -> None:
    provider.script = [says()]
    spec, task = HarnessSpec(policy=POLICY), Task(instruction="Weigh it.")
    good = Action(kind="call", id="a", tool="weigh", arguments={"item": "kettle"})
    bad = Action(kind="invalid", id="b", tool="", text='{"item": ', problem="no")
    steps = [
        Step(turn=0, action=good, observation=Observation(content="2 kg")),
        Step(turn=0, action=bad, observation=Observation(content="no")),
    ]
    await door(provider).complete(POLICY, render(spec, task, [WEIGH], (), steps), [WEIGH], sampling(spec.prompts, 1))
    system, user, assistant, first, second = provider.bodies[0]["messages"]
    assert (system["role"], user["content"]) == ("system", "Weigh it.")
    assert [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in assistant["tool_calls"]] == [
        ("a", "weigh", {"item": "kettle"}), ("b", "unnamed", {"unreadable": '{"item": '}),
    ]  # fmt: skip
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in (first, second)] == [("tool", "a", "2 kg"), ("tool", "b", "no")]


@pytest.mark.parametrize(("finish", "ours"), [("stop", "stop"), ("length", "length"), ("eos", "stop"), (None, "stop")])
async def test_finish_reasons(provider: Provider, finish: str, ours: str) -> None:
    provider.script = [says("x", finish)]
    assert (await door(provider).complete(POLICY, ASKED, (), Sampling())).finish == ours


async def test_the_terminal_is_sent_as_chat_turns_and_that_is_recorded(provider: Provider) -> None:
    provider.script = [says(" refund 5481\n> confirm")]
    prompts = Prompts(dialect="terminal", system="Desk.", tokens=12)
    spec = HarnessSpec(policy=POLICY, prompts=prompts)
    said = render(spec, Task(instruction="Refund order 5481."), [WEIGH])
    found = await door(provider).complete(POLICY, said, [WEIGH], sampling(prompts, 3))
    assert (found.text, found.unhonoured) == (" refund 5481", ("stop", "template"))
    body = provider.bodies[0]
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert "".join(m["content"] for m in body["messages"]) == "Desk.\n\nCommands:\n> weigh ITEM\n\nRequest: Refund order 5481.\n>"
    assert (body["stop"], body["max_tokens"], "tools" in body) == (["\n"], 12, False)


async def test_anthropic_and_ollama_are_spoken_to_in_their_own_tongues(provider: Provider) -> None:
    said = [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t", "name": "weigh", "input": {"item": "kettle"}},
    ]
    used = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": said,
        "stop_reason": "tool_use",
        "usage": used,
    }
    provider.script = [(200, {}, body)]
    model = door(provider, base_url=f"http://127.0.0.1:{provider.port}", api_key="secret-key")
    history = (*ASKED, Message(role="assistant"), Message(role="user", content="Well?"))
    found = await model.complete(Policy(model="anthropic/claude-sonnet-4-5"), history, [WEIGH], Sampling())
    assert (found.text, found.calls[0].tool, found.usage.cached_tokens, found.usage.cost > 0) == ("Let me see.", "weigh", 3, True)
    assert found.unhonoured == ("seed",)
    assert provider.heads[0].startswith("POST /v1/messages")

    called = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "weigh", "arguments": {"item": "kettle"}}}],
    }
    provider.script = [(200, {}, {"model": "qwen3", "message": called, "done": True, "prompt_eval_count": 7, "eval_count": 3})]
    found = await model.complete(Policy(model="ollama/qwen3"), ASKED, [WEIGH], Sampling(seed=4))
    assert [(call.tool, json.loads(call.arguments)) for call in found.calls] == [("weigh", {"item": "kettle"})]
    assert (found.usage.prompt_tokens, found.unhonoured) == (7, ())
    assert provider.heads[1].startswith("POST /api/chat")
    assert provider.bodies[1]["options"]["seed"] == 4


# --- what a provider does not honour --------------------------------------------------------------------------


async def test_what_the_answer_shows_not_to_be_honoured_is_named(provider: Provider) -> None:
    schema = {"type": "object", "required": ["n"]}
    provider.script = [says("one END two"), says('{"n": 1}'), says("one")]
    model = door(provider)
    cut = await model.complete(POLICY, ASKED, (), Sampling(stop=("END",), prefix="zero", json_schema=schema, max_tokens=2))
    assert (cut.text, cut.unhonoured) == ("one ", ("json_schema", "max_tokens", "prefix", "stop"))
    assert provider.bodies[0]["response_format"]["json_schema"]["schema"] == schema
    assert (await model.complete(POLICY, ASKED, (), Sampling(json_schema=schema))).unhonoured == ()
    assert (await model.complete(POLICY, ASKED, (), Sampling(prefix="one"))).unhonoured == ()


async def test_what_a_model_is_known_not_to_take_is_not_sent(provider: Provider) -> None:
    provider.script = [says()]
    found = await door(provider, api_key="k").complete(
        Policy(model="openai/gpt-5-mini"), ASKED, (), Sampling(stop=("END",), seed=4)
    )
    assert found.unhonoured == ("stop", "temperature")
    assert "stop" not in provider.bodies[0]
    assert provider.bodies[0]["seed"] == 4


async def test_what_a_provider_turns_down_is_dropped_once_and_remembered(provider: Provider) -> None:
    refusal = fails(
        400, "Unsupported parameter: 'seed' is not supported with this model.", param="seed", code="unsupported_parameter"
    )
    provider.script = [refusal, says()]
    waits: list[float] = []
    model = door(provider, waits)
    for _ in range(2):
        assert (await model.complete(POLICY, ASKED, (), Sampling(seed=4))).unhonoured == ("seed",)
    assert ["seed" in body for body in provider.bodies] == [True, False, False]
    assert waits == []


async def test_a_prefix_is_given_to_models_that_continue_one(provider: Provider) -> None:
    provider.script = [says(" kettle"), says("A kettle")]
    model = door(provider, api_key="k")
    policy = Policy(model="deepseek/deepseek-chat")
    for _ in range(2):
        found = await model.complete(policy, ASKED, (), Sampling(prefix="A"))
        assert (found.text, "prefix" in found.unhonoured) == ("A kettle", False)
    assert provider.bodies[0]["messages"][-1]["content"] == "A"


# --- faults ---------------------------------------------------------------------------------------------------


async def test_it_waits_as_long_as_it_is_told(provider: Provider) -> None:
    date = email.utils.formatdate(NOW + 30, usegmt=True)
    past = email.utils.formatdate(NOW - 5, usegmt=True)
    advice = [(429, "Retry-After", "7"), (503, "retry-after", date), (429, "retry-after-ms", "1500"), (429, "Retry-After", past)]
    provider.script = [*(fails(status, headers={name: value}) for status, name, value in advice), says()]
    waits: list[float] = []
    assert (await door(provider, waits).complete(POLICY, ASKED, (), Sampling())).text == "hello"
    for wait, asked in zip(waits, (7, 30, 1.5, 0), strict=True):
        assert asked <= wait <= asked + 1, "a little more, so that nobody comes back at the same moment"


async def test_without_advice_waits_double_and_are_spread(provider: Provider) -> None:
    provider.script = [fails(500)]
    rows = []
    for seed in (1, 2):
        waits: list[float] = []
        with pytest.raises(ModelUnavailable, match="no answer in 6 attempts: no"):
            await door(provider, waits, rng=random.Random(seed)).complete(POLICY, ASKED, (), Sampling())
        for place, wait in enumerate(waits):
            assert 0.5 * 2**place <= wait <= 2**place
        rows.append(waits)
    assert len(provider.bodies) == 12
    assert rows[0] != rows[1]


@pytest.mark.parametrize(
    "fault",
    [
        fails(429), fails(500), fails(502), fails(503), fails(529), fails(408), (502, {}, b"<html>bad gateway</html>"),
        (200, {}, b'{"id": "x", "cho'), (200, {}, b"<html>"), (200, {}, {"id": "x", "choices": []}), (200, {}, b""),
    ],
)  # fmt: skip
async def test_what_may_pass_is_tried_again(provider: Provider, fault: tuple[int, dict[str, str], object]) -> None:
    provider.script = [fault, says()]
    waits: list[float] = []
    assert (await door(provider, waits).complete(POLICY, ASKED, (), Sampling())).text == "hello"
    assert len(waits) == 1
    provider.script = [fault]
    with pytest.raises(ModelUnavailable, match=f"model openai/house-model at {provider.url} gave no answer in 2 attempts"):
        await door(provider, retries=1).complete(POLICY, ASKED, (), Sampling())


async def test_a_hanging_and_an_absent_provider_are_given_up(provider: Provider) -> None:
    provider.script = [(HANG, {}, ""), says()]
    waits: list[float] = []
    assert (await door(provider, waits, timeout=0.3).complete(POLICY, ASKED, (), Sampling())).text == "hello"
    assert len(waits) == 1
    provider.script = [(HANG, {}, "")]
    with pytest.raises(ModelUnavailable, match="in 1 attempts"):
        await door(provider, timeout=0.2, retries=0).complete(POLICY, ASKED, (), Sampling())
    with pytest.raises(ModelUnavailable, match="gave no answer in 2 attempts"):
        await door(provider, base_url="http://127.0.0.1:9/v1", retries=1).complete(POLICY, ASKED, (), Sampling())


async def test_a_wait_beyond_patience_is_not_begun(provider: Provider) -> None:
    provider.script = [fails(429, "come back tomorrow", headers={"Retry-After": "86400"})]
    waits: list[float] = []
    with pytest.raises(ModelUnavailable, match="asks to wait 86400 s, more than 120: come back tomorrow"):
        await door(provider, waits).complete(POLICY, ASKED, (), Sampling())
    assert waits == []


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (fails(401, "bad key"), UsageError, "did not accept the API key: bad key. Set ASSAY_API_KEY"),
        (fails(403, "not you"), UsageError, "did not accept the API key: not you"),
        (fails(404, "no such model"), UsageError, "was not found: no such model. Check --model"),
        (fails(400, "what is this"), UsageError, r"refused the request \(400\): what is this"),
        ((422, {}, {"detail": "extra fields"}), UsageError, r"refused the request \(422\)"),
        (fails(429, "quota", code="insufficient_quota"), UsageError, "has no credit"),
        (fails(400, "maximum context length is 8192 tokens", code="context_length_exceeded"), ContextOverflow, "no longer fits"),
        (fails(500, "Requested tokens (9000) exceed context window of 8192"), ContextOverflow, "9000"),
        (fails(400, "triggering content management policy", code="content_filter"), Refused, "declined"),
        (says(None, refusal="I cannot."), Refused, r"declined: I cannot"),
        (says("half an ans", "content_filter"), Refused, "its content filter"),
    ],
)  # fmt: skip
async def test_what_will_not_pass_is_said_at_once(
    provider: Provider, answer: tuple[int, dict[str, str], object], kind: type[AssayError], words: str
) -> None:
    provider.script = [answer]
    waits: list[float] = []
    with pytest.raises(kind, match=words) as raised:
        await door(provider, waits).complete(POLICY, ASKED, (), Sampling())
    assert "model openai/house-model" in str(raised.value)
    assert "litellm" not in str(raised.value)
    assert (waits, len(provider.bodies)) == ([], 1)


async def test_keys_stay_where_they_belong(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    provider.script = [says(), fails(401, "the key sk-mine is wrong")]
    await door(provider).complete(POLICY, ASKED, (), Sampling())
    assert "sk-of-somebody-else" not in provider.heads[0]
    with pytest.raises(UsageError) as raised:
        await door(provider, api_key="sk-mine").complete(POLICY, ASKED, (), Sampling())
    assert "sk-mine" in provider.heads[1]
    assert "sk-mine" not in str(raised.value)


@pytest.mark.parametrize(("model", "words"), [("openai/house-model", "API key"), ("nobody/house-model", "refused the request")])
async def test_a_missing_key_and_an_unknown_provider_name_the_setting(
    model: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match=words):
        await LiteLLM().complete(Policy(model=model), ASKED, (), Sampling())


async def test_no_more_than_allowed_at_once(provider: Provider) -> None:
    provider.script = [says()]
    model = door(provider, concurrency=3)
    await asyncio.gather(*(model.complete(POLICY, ASKED, (), Sampling(seed=i)) for i in range(12)))
    assert (len(provider.bodies), provider.most_at_once) == (12, 3)


async def test_it_works_again_after_another_one_was_closed(provider: Provider) -> None:
    provider.script = [says()]
    one, other = door(provider), door(provider)
    await one.complete(POLICY, ASKED, (), Sampling())
    await other.close()
    assert (await one.complete(POLICY, ASKED, (), Sampling())).text == "hello"


async def test_importing_the_door_does_not_import_litellm() -> None:
    lines = "import sys, harness.models.litellm; sys.exit('litellm' in sys.modules)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", lines)
    assert await child.wait() == 0
