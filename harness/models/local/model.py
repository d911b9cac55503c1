"""LocalModel: the Model and Scorer seams over the engine; text becomes ids here, and ids that were produced stay as they are."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from harness.adapters import Adapters
from harness.errors import UsageError
from harness.message import Completion, Message, Tokens, Usage
from harness.models.local.engine import Engine, Output, Request
from harness.models.local.load import load
from harness.models.local.lora import Lora, read
from harness.models.local.memory import ATTENTION
from harness.policy import Policy, Sampling
from harness.tool import Tool

LOCAL: Final = "local/"
LOADED: Final = 8
"""Adapters kept in memory, the least recently used leaving first."""


class LocalModel:
    """One set of weights in this process; everything that is asked at the same time is decoded in one batch.

    `name` is the embedded model's or a folder; `models` is where the embedded one is converted to, once; `adapters` is where
    the LoRA adapters lie that a policy may name: each request has its own, or none. `threads` is set for the whole process:
    two pools on the same cores starve each other. Loaded on first use, in about a second.
    """

    def __init__(
        self, name: str, *, models: Path, adapters: Path | None = None, threads: int | None = None, slots: int = 64
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.name = LOCAL + name
        self.weights = weights = load(name, models, ATTENTION)
        self.version = weights.digest
        self.tokenizer = weights.tokenizer
        self.engine = Engine(weights, slots=slots)
        self._adapters = Adapters(adapters) if adapters is not None else None
        self._loras: OrderedDict[str, Lora] = OrderedDict()
        self._loading = threading.Lock()
        self._eos = self.tokenizer.eos_token_id
        self._encoded: dict[str, tuple[int, ...]] = {}

    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        """One output. Tools are shown by the terminal dialect only; `json_schema` is not honoured.

        Raises ContextOverflow when the prompt does not fit, UsageError for another model's policy, and for an adapter that is
        not there, damaged, or made for other weights.
        """
        lora = await self._lora(policy)
        prompt, shared = self.ids(messages, template=sampling.template)
        begun = self._encode(sampling.prefix)
        request = Request(
            prompt=prompt + begun,
            shared=shared,
            lora=lora,
            max_new=sampling.max_tokens,
            ends=_Ends(self.tokenizer, sampling.stop),
            scored=len(begun),
            temperature=policy.temperature,
            top_p=policy.top_p,
            seed=sampling.seed,
        )
        output = await asyncio.wrap_future(self.engine.submit(request))
        unhonoured = (*(("json_schema",) if sampling.json_schema is not None else ()), *(("tools",) if tools else ()))
        return Completion(
            text=sampling.prefix + self._text(output.ids[len(begun) :], sampling.stop),
            tokens=self._tokens(output, lora, given=len(begun)),
            usage=Usage(
                prompt_tokens=len(request.prompt),
                completion_tokens=len(output.ids) - len(begun),
                cached_tokens=output.cached,
                calls=1,
            ),
            finish="stop" if output.ended else "length",
            model=self.name,
            unhonoured=unhonoured,
        )

    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        """Log-probs of `text` after the messages, concatenated as they stand; batched with whatever else is asked."""
        lora = await self._lora(policy)
        prompt, shared = self.ids(messages, template=False)
        scored = self._encode(text)
        if not scored:
            return Tokens(version=self._version(lora))
        request = Request(prompt=prompt + scored, shared=shared, lora=lora, scored=len(scored))
        output = await asyncio.wrap_future(self.engine.submit(request))
        return self._tokens(output, lora, given=len(scored))

    async def close(self) -> None:
        """Finish what is under way and end the worker."""
        await asyncio.to_thread(self.engine.close)

    async def _lora(self, policy: Policy) -> Lora | None:
        """The policy's adapter, loaded on first use."""
        if policy.model != self.name:
            raise UsageError(f"this process has loaded {self.name}; the policy asks for {policy.model}")
        if not policy.adapter:
            return None
        if policy.adapter in self._loras:
            self._loras.move_to_end(policy.adapter)
            return self._loras[policy.adapter]
        return await asyncio.to_thread(self._load, policy.adapter)

    def _load(self, digest: str) -> Lora:
        if self._adapters is None:
            raise UsageError(
                f"adapter {digest[:12]}: this model was opened without a folder of adapters; give LocalModel(adapters=)"
            )
        with self._loading:
            if digest not in self._loras:
                self._loras[digest] = read(self._adapters.folder(digest), digest, self.weights.model.model)
                while len(self._loras) > LOADED:
                    self._loras.popitem(last=False)
            return self._loras[digest]

    def ids(self, messages: Sequence[Message], *, template: bool) -> tuple[tuple[int, ...], int]:
        """Prompt ids, and how many of them the leading system messages are: the part that many prompts share."""
        if template:
            return self._templated(messages)
        ids: list[int] = []
        shared = 0
        for place, message in enumerate(messages):
            ids += message.tokens.ids or self._encode(_words(message))
            if message.role == "system" and all(m.role == "system" for m in messages[:place]):
                shared = len(ids)
        return tuple(ids) or (self._eos,), shared

    def _templated(self, messages: Sequence[Message]) -> tuple[tuple[int, ...], int]:
        """The chat template's prompt; outputs that were produced before are put back as their own ids."""
        chat = [{"role": "user" if m.role == "tool" else m.role, "content": _words(m)} for m in messages]
        marks = {}
        for place, message in enumerate(messages):
            if message.role == "assistant" and message.tokens.ids:
                marks[f"\x00{place}\x00"] = message.tokens.ids
                chat[place]["content"] = f"\x00{place}\x00"
        text = self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids: list[int] = []
        for mark, produced in marks.items():
            before, _, text = text.partition(mark)
            ids += [*self._encode(before), *(produced[:-1] if produced[-1] == self._eos else produced)]
        return (*ids, *self._encode(text)), 0

    def _encode(self, text: str) -> tuple[int, ...]:
        known = self._encoded.get(text)
        if known is None:
            known = tuple(self.tokenizer.encode(text, add_special_tokens=False))
            if len(self._encoded) > 4096:
                self._encoded.clear()
            self._encoded[text] = known
        return known

    def _text(self, ids: Sequence[int], stop: tuple[str, ...]) -> str:
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
        cuts = [at for mark in stop if (at := text.find(mark)) >= 0]
        return text[: min(cuts)] if cuts else text

    def _tokens(self, output: Output, lora: Lora | None, *, given: int) -> Tokens:
        """The first `given` ids were not the agent's choice."""
        mask = (False,) * given + (True,) * (len(output.ids) - given)
        return Tokens(ids=output.ids, logprobs=output.logprobs, mask=mask, version=self._version(lora))

    def _version(self, lora: Lora | None) -> str:
        return f"{self.version}@{lora.digest}" if lora else self.version


class _Ends:
    """Whether an output is complete: the end token came, or a stop string stands in its text."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...]) -> None:
        self.tokenizer, self.eos, self.stop = tokenizer, tokenizer.eos_token_id, stop

    def __call__(self, new: Sequence[int]) -> bool:
        if new[-1] == self.eos:
            return True
        return any(mark in self.tokenizer.decode(new[-(len(mark) + 3) :]) for mark in self.stop)


def _words(message: Message) -> str:
    return message.content if isinstance(message.content, str) else "".join(p.text for p in message.content if p.type == "text")
