"""The vLLM door against a scripted server: ids in and out, adapters by name, and what it must not take for an answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.adapters import FILES, named
from harness.errors import ContextOverflow, ModelUnavailable, UsageError
from harness.message import Message, Tokens
from harness.models.vllm import VLLMModel
from harness.policy import Policy, Sampling
from tests.harness.rigs import LOOK
from tests.models.provider import Provider

POLICY = Policy(model="vllm/smol", temperature=0.5, top_p=0.9)
ASKED = (Message(role="system", content="Be brief."), Message(role="user", content="Hello?"))
Answer = tuple[int, dict[str, str], object]


def encoded(*ids: int) -> Answer:
    return 200, {}, {"tokens": ids}


def rows(scores: dict[int, float]) -> list[Any]:
    return [None, *({str(id): {"logprob": score}} for id, score in scores.items())]


def continued(text: str, scores: dict[int, float], *, model: str = "smol", prompt: dict[int, float] | None = None) -> Answer:
    choice: dict[str, Any] = {
        "index": 0, "text": text, "finish_reason": "length", "token_ids": list(scores),
        "logprobs": {"token_logprobs": list(scores.values())}, "prompt_logprobs": rows(prompt) if prompt else None,
    }  # fmt: skip
    return 200, {}, {"model": model, "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": len(scores)}}


def says(text: str | None, scores: dict[int, float], *, prompt: dict[int, float] | None = None, **message: object) -> Answer:
    choice = {
        "index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop",
        "token_ids": list(scores), "logprobs": {"content": [{"logprob": score} for score in scores.values()]},
    }  # fmt: skip
    used = {"prompt_tokens": 9, "completion_tokens": len(scores), "prompt_tokens_details": {"cached_tokens": 4}}
    return 200, {}, {"model": "smol", "choices": [choice], "usage": used, "prompt_logprobs": rows(prompt) if prompt else None}


def fails(status: int, words: str) -> Answer:
    return status, {}, {"error": {"message": words, "code": status}}


LOADED: Answer = (200, {}, "Success: LoRA adapter added.")
MISSING = fails(404, "The model `assay-x` does not exist.")


@pytest.fixture
def adapter(tmp_path: Path) -> str:
    """The digest of an adapter in `tmp_path`, of which only the names of its files matter here."""
    made = tmp_path / "made"
    made.mkdir()
    for file in FILES:
        (made / file).write_text("{}")
    digest = named(made)
    made.rename(tmp_path / digest)
    return digest


@pytest.fixture
async def model(provider: Provider, tmp_path: Path) -> AsyncIterator[VLLMModel]:
    opened = VLLMModel(base_url=provider.url, adapters=tmp_path, retries=0)
    yield opened
    await opened.close()


def asked(provider: Provider) -> list[str]:
    """The paths of all requests."""
    return [head.split()[1] for head in provider.heads]


# --- what goes out and what comes back ------------------------------------------------------------------------


async def test_ids_go_out_and_ids_come_back(provider: Provider, model: VLLMModel) -> None:
    provider.script = [encoded(7, 8), encoded(9), continued(" look\n", {30: -0.25, 31: -1.5})]
    kept = Tokens(ids=(20, 21, 22), logprobs=(0.0,) * 3, mask=(True,) * 3)
    said = (Message(role="system", content="Terminal."), Message(role="assistant", content="x", tokens=kept), ASKED[1])
    output = await model.complete(POLICY, said, (), Sampling(seed=2**70, template=False, stop=("\n",), max_tokens=6))
    assert asked(provider) == ["/tokenize", "/tokenize", "/v1/completions"]
    assert [body["prompt"] for body in provider.bodies] == ["Terminal.", "Hello?", [7, 8, 20, 21, 22, 9]]
    sent = provider.bodies[-1]
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["stop"], sent["max_tokens"]) == ("smol", 0.5, 0.9, ["\n"], 6)
    # What a model's own generation_config.json would otherwise bring in.
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (0, 0.0, 1.0)
    assert 0 <= sent["seed"] < 2**63
    assert (output.text, output.finish, output.model) == (" look", "length", "smol")
    assert output.tokens == Tokens(ids=(30, 31), logprobs=(-0.25, -1.5), mask=(True, True), version="smol")
    assert (output.usage.prompt_tokens, output.usage.completion_tokens, output.usage.calls) == (5, 2, 1)
    assert output.usage.seconds > 0


async def test_a_prefix_is_scored_and_masked_in_both_dialects(provider: Provider, model: VLLMModel) -> None:
    provider.script = [
        encoded(7), encoded(4, 5), continued(" more", {30: -0.5}, prompt={7: -9.0, 4: -2.0, 5: -3.0}),
        says(" more", {30: -0.5}, prompt={1: -9.0, 4: -2.0, 5: -3.0}),
    ]  # fmt: skip
    expected = Tokens(ids=(4, 5, 30), logprobs=(-2.0, -3.0, -0.5), mask=(False, False, True), version="smol")
    plain = await model.complete(POLICY, ASKED[:1], (), Sampling(template=False, prefix="I think"))
    chat = await model.complete(POLICY, ASKED, (), Sampling(prefix="I think"))
    assert [output.text for output in (plain, chat)] == ["I think more"] * 2
    assert [output.tokens for output in (plain, chat)] == [expected] * 2
    assert provider.bodies[2]["prompt"] == [7, 4, 5]
    assert provider.bodies[3]["messages"][-1] == {"role": "assistant", "content": "I think"}
    assert provider.bodies[3]["continue_final_message"] is True


async def test_a_chat_has_tools_and_calls(provider: Provider, model: VLLMModel) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    provider.script = [says(None, {30: -0.25}, tool_calls=[call])]
    output = await model.complete(POLICY, ASKED, (LOOK,), Sampling(json_schema={"type": "object"}))
    [sent] = provider.bodies
    assert asked(provider) == ["/v1/chat/completions"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["look"]
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert [(c.id, c.tool, c.arguments) for c in output.calls] == [("a", "look", "{}")]
    assert (output.finish, output.tokens.ids, output.usage.cached_tokens) == ("calls", (30,), 4)


async def test_a_score_is_of_the_text_alone(provider: Provider, model: VLLMModel) -> None:
    provider.script = [encoded(7), encoded(4, 5), continued("x", {30: -0.5}, prompt={7: -9.0, 4: -2.0, 5: -3.0})]
    tokens = await model.score(POLICY, ASKED[:1], " blue and")
    assert tokens == Tokens(ids=(4, 5), logprobs=(-2.0, -3.0), mask=(False, False), version="smol")
    assert await model.score(POLICY, ASKED[:1], "") == Tokens(version="smol")


async def test_no_key_of_another_provider_leaves(provider: Provider, model: VLLMModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    provider.script = [says("Hi", {30: -0.5})]
    await model.complete(POLICY, ASKED, (), Sampling())
    assert "sk-of-somebody-else" not in provider.heads[0]


# --- adapters -------------------------------------------------------------------------------------------------


async def test_an_adapter_is_loaded_once_under_a_name_of_its_own(
    provider: Provider, model: VLLMModel, adapter: str, tmp_path: Path
) -> None:
    name = f"assay-{adapter[:16]}"
    provider.script = [encoded(7), LOADED, continued("x", {30: -0.5}, model=name)]
    policy = POLICY.replace(adapter=adapter)
    first = await model.complete(policy, ASKED[:1], (), Sampling(template=False))
    await asyncio.gather(*(model.complete(policy, ASKED[:1], (), Sampling(template=False)) for _ in range(3)))
    assert asked(provider) == ["/tokenize", "/v1/load_lora_adapter", *["/v1/completions"] * 4]
    assert provider.bodies[1] == {"lora_name": name, "lora_path": str(tmp_path / adapter)}
    assert {body["model"] for body in provider.bodies[2:]} == {name}
    assert first.tokens.version == f"smol@{adapter}"


async def test_an_adapter_that_the_server_dropped_is_loaded_again(provider: Provider, model: VLLMModel, adapter: str) -> None:
    answer = continued("x", {30: -0.5}, model=f"assay-{adapter[:16]}")
    provider.script = [encoded(7), LOADED, answer, MISSING, LOADED, answer]
    policy = POLICY.replace(adapter=adapter)
    for _ in range(2):
        assert (await model.complete(policy, ASKED[:1], (), Sampling(template=False))).text == "x"
    assert asked(provider)[3:] == ["/v1/completions", "/v1/load_lora_adapter", "/v1/completions"]
    provider.script = [MISSING, LOADED, MISSING]
    with pytest.raises(UsageError, match="was not found"):
        await model.complete(policy, ASKED[:1], (), Sampling(template=False))


async def test_another_process_may_have_loaded_it(provider: Provider, model: VLLMModel, adapter: str) -> None:
    known = fails(400, f"The lora adapter 'assay-{adapter[:16]}' has already been loaded.")
    provider.script = [encoded(7), known, continued("x", {30: -0.5}, model=f"assay-{adapter[:16]}")]
    assert (await model.complete(POLICY.replace(adapter=adapter), ASKED[:1], (), Sampling(template=False))).text == "x"


async def test_a_server_that_loads_none_is_told_how(provider: Provider, model: VLLMModel, adapter: str) -> None:
    provider.script = [encoded(7), fails(404, "Not Found")]
    with pytest.raises(UsageError, match=r"did not load adapter .* --enable-lora.*VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        await model.complete(POLICY.replace(adapter=adapter), ASKED[:1], (), Sampling(template=False))


async def test_an_adapter_that_is_not_here_is_never_asked_for(provider: Provider, model: VLLMModel) -> None:
    provider.script = [encoded(7)]
    with pytest.raises(UsageError, match="adapter 000000000000 is not in"):
        await model.complete(POLICY.replace(adapter="0" * 64), ASKED[:1], (), Sampling(template=False))
    assert asked(provider) == ["/tokenize"]


# --- what is no answer ----------------------------------------------------------------------------------------


async def test_an_answer_of_other_weights_is_refused(provider: Provider, model: VLLMModel, adapter: str) -> None:
    provider.script = [encoded(7), LOADED, continued("x", {30: -0.5}, model="smol")]
    with pytest.raises(UsageError, match=rf"was asked for assay-{adapter[:16]} and answered as smol"):
        await model.complete(POLICY.replace(adapter=adapter), ASKED[:1], (), Sampling(template=False))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"token_ids": None}, "no token ids"),
        ({"token_ids": [30, 31]}, "2 token ids with 1 log-probs"),
        ({"logprobs": None}, "1 token ids with 0 log-probs"),
    ],
)
async def test_ids_without_log_probs_and_the_reverse_are_refused(
    provider: Provider, model: VLLMModel, edit: dict[str, object], said: str
) -> None:
    status, headers, body = continued("x", {30: -0.5})
    assert isinstance(body, dict)
    body["choices"][0] |= edit
    provider.script = [encoded(7), (status, headers, body)]
    with pytest.raises(UsageError, match=said):
        await model.complete(POLICY, ASKED[:1], (), Sampling(template=False))


async def test_log_probs_of_other_ids_are_refused(provider: Provider, model: VLLMModel) -> None:
    provider.script = [encoded(7), encoded(4), continued("x", {30: -0.5}, prompt={7: -9.0, 6: -2.0})]
    with pytest.raises(UsageError, match="or those of others"):
        await model.score(POLICY, ASKED[:1], " blue")


async def test_faults_have_their_wall(provider: Provider, tmp_path: Path) -> None:
    model = VLLMModel(base_url=provider.url, api_key="sk-very-secret", adapters=tmp_path, retries=0)
    for status, words, kind in (
        (400, "This model's maximum context length is 2048 tokens.", ContextOverflow),
        (404, "The model `smol` does not exist.", UsageError),
        (401, "Unauthorized sk-very-secret", UsageError),
        (503, "Overloaded", ModelUnavailable),
    ):
        provider.script = [fails(status, words)]
        with pytest.raises(kind, match=r"model vllm/smol at http://127\.0\.0\.1") as caught:
            await model.complete(POLICY, ASKED, (), Sampling())
        assert "sk-very-secret" not in str(caught.value)
    await model.close()


@pytest.mark.parametrize("body", [b"<html>", {"choices": []}, "Success"])
async def test_what_is_no_completion_is_no_answer(provider: Provider, model: VLLMModel, body: object) -> None:
    provider.script = [(200, {}, body)]
    with pytest.raises(ModelUnavailable, match="vllm/smol at"):
        await model.complete(POLICY, ASKED, (), Sampling())


async def test_a_server_that_does_not_tokenize_is_named(provider: Provider, model: VLLMModel) -> None:
    provider.script = [(200, {}, "a proxy")]
    with pytest.raises(UsageError, match="has no /tokenize"):
        await model.complete(POLICY, ASKED[:1], (), Sampling(template=False))


async def test_no_server_at_all_is_no_answer(tmp_path: Path) -> None:
    model = VLLMModel(base_url="http://127.0.0.1:9/v1", adapters=tmp_path, retries=0)
    with pytest.raises(ModelUnavailable, match=r"vllm/smol at http://127\.0\.0\.1:9/v1 gave no answer"):
        await model.complete(POLICY, ASKED, (), Sampling())
    await model.close()
