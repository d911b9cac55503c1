"""Scripted: the fake model that ships; it says what it was told to, and counts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from harness.message import Completion, Message, Tokens, Usage, concatenated
from harness.policy import Policy, Sampling
from harness.tool import Tool

Output = str | Completion | Exception
Writer = Callable[[Sequence[Message], Sequence[Tool], Sampling], Output]


class Scripted:
    """A Model and a Scorer. `script` is a list, said in order, or a function of the prompt, the tools and the sampling.

    An exception in the script is raised; `gate`, when given, is awaited before each answer. `scores` maps a text to its
    log-prob for every word. Raises LookupError when a list runs out.
    """

    def __init__(
        self, script: Sequence[Output] | Writer, *, gate: asyncio.Event | None = None, scores: Mapping[str, float] | None = None
    ) -> None:
        self._script = script
        self._gate = gate
        self._scores = dict(scores or {})
        self.prompts: list[str] = []
        """Every prompt that was asked, as one text."""

    @property
    def calls(self) -> int:
        return len(self.prompts)

    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        self.prompts.append(concatenated(messages))
        if self._gate is not None:
            await self._gate.wait()
        if callable(self._script):
            output = self._script(messages, tools, sampling)
        elif self.calls <= len(self._script):
            output = self._script[self.calls - 1]
        else:
            raise LookupError(f"the script holds {len(self._script)} outputs, this is call {self.calls}")
        if isinstance(output, Exception):
            raise output
        if isinstance(output, str):
            output = Completion(text=output, finish="stop")
        words = len(self.prompts[-1].split())
        usage = Usage(prompt_tokens=words, completion_tokens=len(output.text.split()), calls=1)
        return output.replace(usage=output.usage if output.usage.calls else usage, model=policy.model)

    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        words = text.split()
        value = self._scores.get(text.strip(), -1.0)
        return Tokens(
            ids=tuple(range(len(words))), logprobs=(value,) * len(words), mask=(False,) * len(words), version="scripted"
        )
