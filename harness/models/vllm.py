"""A vLLM server (`vllm/NAME`): token ids in and out, log-probs, and LoRA adapters that are loaded by name when they are needed.

Start it with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora`, in its default mode of raw log-probs; it
must see the folder of adapters under the same path. Whoever reaches that server may load files: keep it on a private network.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.adapters import Adapters
from harness.errors import ModelUnavailable, UsageError
from harness.message import Completion, Finish, Message, Tokens, Usage, concatenated
from harness.models import chat, faults
from harness.policy import Policy, Sampling
from harness.tool import Tool

VLLM: Final = "vllm/"
NAME: Final = "assay-{}"
"""Of a served adapter: one name for ever for one digest, since vLLM's prefix cache goes by names."""
FINISH: Mapping[str, Finish] = {"length": "length", "tool_calls": "calls"}
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
        concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = 5,
    ) -> None:
        """`base_url` ends in /v1; `adapters` is the folder of those that a policy may name; `timeout` is in seconds."""
        self.base_url, self._key = base_url.rstrip("/"), api_key or KEYLESS
        self._adapters = Adapters(adapters.resolve()) if adapters is not None else None
        self._gate, self._loading = asyncio.Semaphore(concurrency), asyncio.Lock()
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
            "max_tokens": sampling.max_tokens, "return_token_ids": True,
        }  # fmt: skip
        if sampling.json_schema is not None:
            asked["response_format"] = chat.response_format(dict(sampling.json_schema))
        if sampling.stop:
            asked |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
        if not sampling.template:
            return await self._continued(policy, messages, sampling, asked)
        said = chat.turns(messages, template=True)
        if sampling.prefix:
            said.append({"role": "assistant", "content": sampling.prefix})
            asked |= {"continue_final_message": True, "add_generation_prompt": False}
        asked |= {"messages": said, "logprobs": True, **({"tools": functions} if (functions := chat.functions(tools)) else {})}
        answer = await self._asked(policy, "/chat/completions", asked)
        choice = answer["choices"][0]
        spoken, scored = choice["message"], (choice.get("logprobs") or {}).get("content") or []
        calls = tuple(
            chat.call(place, one.get("id"), one["function"].get("name"), one["function"].get("arguments"))
            for place, one in enumerate(spoken.get("tool_calls") or ())
        )
        return Completion(
            text=sampling.prefix + _cut(spoken.get("content") or "", sampling.stop), calls=calls, usage=_usage(answer),
            tokens=self._tokens(policy, choice, [float(one["logprob"]) for one in scored]), model=answer["model"],
            finish="calls" if calls else FINISH.get(choice["finish_reason"], "stop"),
        )  # fmt: skip

    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        """Log-probs of `text` after the messages, concatenated as they stand."""
        prompt, scored = await self.ids(policy, messages), await self._encode(policy, text)
        if not scored:
            return Tokens(version=self._version(policy))
        asked = {"prompt": [*prompt, *scored], "max_tokens": 1, "prompt_logprobs": 0, "return_token_ids": True}
        answer = await self._asked(policy, "/completions", asked)
        found = _given(answer["choices"][0], scored)
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
        prompt, begun = await self.ids(policy, messages), await self._encode(policy, sampling.prefix)
        asked |= {"prompt": [*prompt, *begun], "logprobs": 0}
        if begun:
            asked["prompt_logprobs"] = 0
        answer = await self._asked(policy, "/completions", asked)
        choice = answer["choices"][0]
        own = self._tokens(policy, choice, (choice.get("logprobs") or {}).get("token_logprobs") or [])
        tokens = own.replace(
            ids=begun + own.ids, logprobs=(_given(choice, begun) if begun else ()) + own.logprobs,
            mask=(False,) * len(begun) + own.mask,
        )  # fmt: skip
        return Completion(
            text=sampling.prefix + _cut(choice["text"], sampling.stop), tokens=tokens, usage=_usage(answer),
            finish=FINISH.get(choice["finish_reason"], "stop"), model=answer["model"],
        )  # fmt: skip

    def _tokens(self, policy: Policy, choice: Mapping[str, Any], logprobs: Sequence[float]) -> Tokens:
        ids = choice.get("token_ids")
        if ids is None or len(ids) != len(logprobs):
            found = "no token ids" if ids is None else f"{len(ids)} token ids with {len(logprobs)} log-probs"
            raise UsageError(f"vLLM at {self.base_url} gave {found}: version 0.10.2 or newer gives both, for each token")
        return Tokens(ids=tuple(ids), logprobs=tuple(logprobs), mask=(True,) * len(ids), version=self._version(policy))

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
            self._encoded[name, text] = tuple(answer["tokens"])
        return self._encoded[name, text]

    async def _asked(self, policy: Policy, path: str, asked: Mapping[str, Any]) -> Any:
        """The answer of the policy's own weights, its adapter loaded first; one that the server has dropped is loaded again."""
        name = await self._name(policy)
        async with self._gate:
            try:
                answer = await self._posted(policy, path, {**asked, "model": name}, missing=bool(policy.adapter))
            except _Missing:
                self._loaded.discard(name)
                name = await self._name(policy)
                answer = await self._posted(policy, path, {**asked, "model": name})
        if answer["model"] != name:
            raise UsageError(
                f"vLLM at {self.base_url} was asked for {name} and answered as {answer['model']}: what it served is not known."
                " Give every adapter and model a server's name of its own"
            )
        return answer

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
            await self._posted(policy, "/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, missing=True)
        except _Missing as error:
            raise UsageError(
                f"vLLM at {self.base_url} did not load adapter {policy.adapter[:12]} from {folder}: {error}. It must see that"
                " folder, and be started with --enable-lora, a --max-lora-rank that is large enough, and"
                " VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            ) from error
        except UsageError as error:
            if "already been loaded" not in str(error):
                raise

    async def _posted(self, policy: Policy, path: str, body: Mapping[str, Any], *, missing: bool = False) -> Any:
        """The server's JSON; raises _Missing on 404 where `missing` says that the caller knows what to do."""
        import openai

        try:
            return await self._client.post(path, cast_to=object, body=dict(body))
        except openai.OpenAIError as error:
            secret = self._key if self._key != KEYLESS else None
            told = faults.told(error, secret=secret)
            if missing and getattr(error, "status_code", None) == 404:
                raise _Missing(told) from error
            here = f"model {policy.name} at {self.base_url}"
            raise faults.lasting(error, here, told) or ModelUnavailable(f"{here} gave no answer: {told}") from error


class _Missing(Exception):
    """The server knows nothing of that name."""


def _given(choice: Mapping[str, Any], ids: Sequence[int]) -> tuple[float, ...]:
    """Log-probs of the last ids of the prompt."""
    rows = (choice.get("prompt_logprobs") or [])[-len(ids) :]
    if len(rows) != len(ids):
        raise UsageError(f"vLLM gave {len(rows)} prompt log-probs for {len(ids)} ids: start it without what turns them off")
    return tuple(float(row[str(id)]["logprob"]) for row, id in zip(rows, ids, strict=True))


def _cut(text: str, stop: Sequence[str]) -> str:
    cuts = [at for mark in stop if (at := text.find(mark)) >= 0]
    return text[: min(cuts)] if cuts else text


def _usage(answer: Mapping[str, Any]) -> Usage:
    used = answer.get("usage") or {}
    return Usage(
        prompt_tokens=used.get("prompt_tokens") or 0, completion_tokens=used.get("completion_tokens") or 0,
        cached_tokens=(used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0, calls=1,
    )  # fmt: skip
