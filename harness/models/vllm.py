"""A vLLM server (`vllm/NAME`): token ids in and out, log-probs, and LoRA adapters that are loaded by name when they are needed.

Start it with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora`, in its default mode of raw log-probs; it
must see the folder of adapters under the same path. Whoever reaches that server may load files: keep it on a private network.

On a CPU, vLLM computes a request without an adapter that shares a batch with others as if it had the last one
(vllm-project/vllm, pull request 48421). So both kinds take turns, unless the server is known to keep them apart.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.adapters import Adapters
from harness.errors import ModelUnavailable, UsageError
from harness.message import Completion, Finish, Message, Tokens, Usage, concatenated
from harness.models import chat, faults
from harness.models.turns import Turns
from harness.policy import Policy, Sampling
from harness.tool import Tool

VLLM: Final = "vllm/"
NAME: Final = "assay-{}"
"""Of a served adapter: one name for ever for one digest, since vLLM's prefix cache goes by names."""
FINISH: Mapping[str, Finish] = {"length": "length", "tool_calls": "calls"}
PLAIN: Final = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said each time: otherwise the server takes these from the model's generation_config.json, and the policy does not name them."""
UNLOADED: Final = {400, 404, 500}
"""What a server answers that cannot load an adapter: it is there already, not found, or of a rank too large."""
KEYLESS = "none"
REMEMBERED: Final = 4096
"""Texts whose ids are kept."""


class VLLMModel:
    """The Model and Scorer seams over one server; the terminal dialect is sent and comes back as ids, never as text."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None = None,
        adapters: Path | None = None,
        mixed: bool = False,
        concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = 5,
    ) -> None:
        """`base_url` ends in /v1; `adapters` is the folder of those that a policy may name; `timeout` is in seconds.

        `mixed`: requests with and without an adapter may be under way together, as is right with vLLM's GPU kernels.
        """
        self.base_url, self._key = base_url.rstrip("/"), api_key or KEYLESS
        self._adapters = Adapters(adapters.resolve()) if adapters is not None else None
        self._gate, self._loading = asyncio.Semaphore(concurrency), asyncio.Lock()
        self._turns, self._mixed = Turns(), mixed
        self._timeout, self._retries = timeout, retries
        self._loaded: set[str] = set()
        self._encoded: dict[tuple[str, str], tuple[int, ...]] = {}

    @cached_property
    def _client(self) -> Any:
        import openai

        return openai.AsyncOpenAI(base_url=self.base_url, api_key=self._key, timeout=self._timeout, max_retries=self._retries)

    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        """One output with its ids and log-probs.

        Raises ContextOverflow, Refused, ModelUnavailable, and UsageError where a setting is wrong: an adapter that is not
        there, a server that loads none, gives no ids, or answers as another model than it was asked for.
        """
        asked: dict[str, Any] = {
            "temperature": policy.temperature, "top_p": policy.top_p, "seed": sampling.seed % 2**63,
            "max_tokens": sampling.max_tokens, "return_token_ids": True, **PLAIN,
        }  # fmt: skip
        if sampling.json_schema is not None:
            asked["response_format"] = chat.response_format(dict(sampling.json_schema))
        if sampling.stop:
            asked |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
        if sampling.template:
            return await self._chatted(policy, messages, tools, sampling, asked)
        return await self._continued(policy, messages, sampling, asked)

    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        """Log-probs of `text` after the messages, concatenated as they stand."""
        prompt, scored = await self.ids(policy, messages), await self._encode(policy, text)
        if not scored:
            return Tokens(version=self._version(policy))
        asked = {"prompt": [*prompt, *scored], "max_tokens": 1, "prompt_logprobs": 0, "return_token_ids": True}
        answer, _ = await self._asked(policy, "/completions", asked)
        found = _given(answer["choices"][0].get("prompt_logprobs"), scored)
        return Tokens(ids=scored, logprobs=found, mask=(False,) * len(scored), version=self._version(policy))

    async def ids(self, policy: Policy, messages: Sequence[Message]) -> tuple[int, ...]:
        """Prompt ids of the terminal dialect: outputs that were produced before are put back as their own ids."""
        found: list[int] = []
        for message in messages:
            found += message.tokens.ids or await self._encode(policy, concatenated([message]))
        return tuple(found)

    async def close(self) -> None:
        await self._client.close()

    async def _continued(
        self, policy: Policy, messages: Sequence[Message], sampling: Sampling, asked: dict[str, Any]
    ) -> Completion:
        """The terminal dialect: ids in, ids out."""
        prompt, begun = await self.ids(policy, messages), await self._encode(policy, sampling.prefix)
        asked |= {"prompt": [*prompt, *begun], "logprobs": 0, **({"prompt_logprobs": 0} if begun else {})}
        answer, seconds = await self._asked(policy, "/completions", asked)
        choice = answer["choices"][0]
        scores = (choice.get("logprobs") or {}).get("token_logprobs") or []
        return Completion(
            text=sampling.prefix + _cut(choice["text"], sampling.stop),
            tokens=self._tokens(policy, choice, scores, begun, choice.get("prompt_logprobs")),
            usage=_usage(answer, seconds), finish=FINISH.get(choice["finish_reason"], "stop"), model=answer["model"],
        )  # fmt: skip

    async def _chatted(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling, asked: dict[str, Any]
    ) -> Completion:
        """The server's own chat template and tool parser; what was produced before goes back as text, as those want it."""
        said = chat.turns(messages, template=True)
        begun = await self._encode(policy, sampling.prefix)
        if begun:
            said.append({"role": "assistant", "content": sampling.prefix})
            asked |= {"continue_final_message": True, "add_generation_prompt": False, "prompt_logprobs": 0}
        asked |= {"messages": said, "logprobs": True, **({"tools": functions} if (functions := chat.functions(tools)) else {})}
        answer, seconds = await self._asked(policy, "/chat/completions", asked)
        choice = answer["choices"][0]
        spoken, scored = choice["message"], (choice.get("logprobs") or {}).get("content") or []
        tokens = self._tokens(
            policy, choice, [float(one["logprob"]) for one in scored], begun, answer.get("prompt_logprobs")
        )  # fmt: skip
        calls = tuple(
            chat.call(place, one.get("id"), one["function"].get("name"), one["function"].get("arguments"))
            for place, one in enumerate(spoken.get("tool_calls") or ())
        )
        return Completion(
            text=sampling.prefix + _cut(spoken.get("content") or "", sampling.stop), calls=calls, tokens=tokens,
            usage=_usage(answer, seconds), finish="calls" if calls else FINISH.get(choice["finish_reason"], "stop"),
            model=answer["model"],
        )  # fmt: skip

    def _tokens(
        self, policy: Policy, choice: Mapping[str, Any], scores: Sequence[float], begun: tuple[int, ...], prompt: Any
    ) -> Tokens:
        """What was begun for the agent, masked, then its own ids; `prompt` has the log-probs of all that was sent."""
        ids = choice.get("token_ids")
        if ids is None or len(ids) != len(scores):
            found = "no token ids" if ids is None else f"{len(ids)} token ids with {len(scores)} log-probs"
            raise UsageError(f"vLLM at {self.base_url} gave {found}: version 0.10.2 or newer gives both, for each token")
        return Tokens(
            ids=begun + tuple(ids), logprobs=(*_given(prompt, begun), *scores), version=self._version(policy),
            mask=(False,) * len(begun) + (True,) * len(ids),
        )  # fmt: skip

    def _version(self, policy: Policy) -> str:
        return policy.name.removeprefix(VLLM)

    async def _encode(self, policy: Policy, text: str) -> tuple[int, ...]:
        if not text:
            return ()
        name = policy.model.removeprefix(VLLM)
        if (name, text) not in self._encoded:
            body = {"model": name, "prompt": text, "add_special_tokens": False}
            answer = await self._posted(policy, f"{self.base_url.removesuffix('/v1')}/tokenize", body)
            if len(self._encoded) >= REMEMBERED:
                self._encoded.clear()
            if not isinstance(answer, dict) or "tokens" not in answer:
                raise UsageError(
                    f"{self.base_url} has no /tokenize beside it: give --base-url the address of a vLLM server itself"
                )
            self._encoded[name, text] = tuple(answer["tokens"])
        return self._encoded[name, text]

    async def _asked(self, policy: Policy, path: str, asked: Mapping[str, Any]) -> tuple[Any, float]:
        """The answer of the policy's own weights and its seconds; an adapter that the server has dropped is loaded again."""
        name = await self._name(policy)
        async with self._turns.turn(self._mixed or bool(policy.adapter)), self._gate:
            began = time.perf_counter()
            try:
                answer = await self._posted(policy, path, {**asked, "model": name}, mine={404} if policy.adapter else ())
            except _Status:
                self._loaded.discard(name)
                name = await self._name(policy)
                answer = await self._posted(policy, path, {**asked, "model": name})
        if not isinstance(answer, dict) or not answer.get("choices"):
            raise ModelUnavailable(f"model {policy.name} at {self.base_url} gave an answer without choices: {str(answer)[:100]}")
        if answer["model"] != name:
            raise UsageError(
                f"vLLM at {self.base_url} was asked for {name} and answered as {answer['model']}: what it served is not known."
                " Give every adapter and model a server's name of its own"
            )
        return answer, time.perf_counter() - began

    async def _name(self, policy: Policy) -> str:
        """What the server calls the policy's weights."""
        if not policy.adapter:
            return policy.model.removeprefix(VLLM)
        name = NAME.format(policy.adapter[:16])
        async with self._loading:
            if name not in self._loaded:
                await self._load(policy, name)
                self._loaded.add(name)
        return name

    async def _load(self, policy: Policy, name: str) -> None:
        if self._adapters is None:
            raise UsageError(f"adapter {policy.adapter[:12]}: this model was opened without a folder of adapters")
        folder = self._adapters.folder(policy.adapter)
        try:
            await self._posted(policy, "/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, mine=UNLOADED)
        except _Status as error:
            if "already been loaded" not in str(error):
                raise UsageError(
                    f"vLLM at {self.base_url} did not load adapter {policy.adapter[:12]} from {folder}: {error}. It must see that"
                    " folder, and be started with --enable-lora, a --max-lora-rank that is large enough, and"
                    " VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
                ) from error

    async def _posted(self, policy: Policy, path: str, body: Mapping[str, Any], *, mine: Collection[int] = ()) -> Any:
        """The server's JSON; raises _Status where that is one which the caller knows what to do with."""
        import openai

        try:
            return await self._client.post(path, cast_to=object, body=dict(body))
        except (openai.OpenAIError, ValueError) as error:
            secret = self._key if self._key != KEYLESS else None
            told = faults.told(error, secret=secret)
            if getattr(error, "status_code", None) in mine:
                raise _Status(told) from error
            here = f"model {policy.name} at {self.base_url}"
            raise faults.lasting(error, here, told) or ModelUnavailable(f"{here} gave no answer: {told}") from error


class _Status(Exception):
    """An error of the server in its own words; who asked knows what it means."""


def _given(prompt: Any, ids: Sequence[int]) -> tuple[float, ...]:
    """Log-probs of the last ids of the prompt, which are these."""
    if not ids:
        return ()
    rows = (prompt or [])[-len(ids) :]
    if len(rows) != len(ids) or any(str(id) not in (row or {}) for row, id in zip(rows, ids, strict=True)):
        raise UsageError(
            f"vLLM gave {len(rows)} log-probs for the last {len(ids)} ids of the prompt, or those of others: it must be started"
            " with its defaults for log-probs, and with the model's own tokenizer"
        )
    return tuple(float(row[str(id)]["logprob"]) for row, id in zip(rows, ids, strict=True))


def _cut(text: str, stop: Sequence[str]) -> str:
    cuts = [at for mark in stop if (at := text.find(mark)) >= 0]
    return text[: min(cuts)] if cuts else text


def _usage(answer: Mapping[str, Any], seconds: float) -> Usage:
    used = answer.get("usage") or {}
    return Usage(
        prompt_tokens=used.get("prompt_tokens") or 0, completion_tokens=used.get("completion_tokens") or 0,
        cached_tokens=(used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0, seconds=seconds,
        calls=1,
    )  # fmt: skip
