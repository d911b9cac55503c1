"""Asking: one call of the bound model, with the seed of its turn, parsed, and repaired once by asking again; it never acts."""

import hashlib
from collections.abc import Sequence

from harness.errors import Unparsed
from harness.message import Completion, Message, Usage
from harness.policy import Sampling
from harness.prompt import parse, sampling
from harness.seams import Model
from harness.spec import HarnessSpec
from harness.tool import ANSWER, Tool

REPAIR = "That held neither a tool call nor an answer. Call one tool, or answer in plain words."


class Asking:
    """The `Ask` of one turn. `usage` is what was spent so far, also when a call failed in the end."""

    def __init__(self, model: Model, spec: HarnessSpec, seed: int, turn: int) -> None:
        self.model, self.spec, self.seed, self.turn = model, spec, seed, turn
        self.tools: Sequence[Tool] = ()
        self.usage = Usage()
        self._asked = 0

    async def __call__(self, messages: Sequence[Message], *, prefix: str = "") -> Completion:
        """The completion with its actions; raises Unparsed when also the repair held none."""
        completion = await self._once(messages, prefix)
        try:
            return parse(self.spec.prompts, completion, self.tools)
        except Unparsed:
            said = (Message(role="assistant", content=completion.text), Message(role="user", content=REPAIR))
            return parse(self.spec.prompts, await self._once((*messages, *said), prefix), self.tools)

    async def _once(self, messages: Sequence[Message], prefix: str) -> Completion:
        native = self.spec.prompts.dialect == "native"
        tools = [tool for tool in self.tools if tool.name != ANSWER.name] if native else []
        completion = await self.model.complete(self.spec.policy, messages, tools, self._sampling(prefix))
        self.usage = self.usage + completion.usage.replace(seconds=0.0)
        return completion

    def _sampling(self, prefix: str) -> Sampling:
        """Every call of every turn of every episode has a seed of its own, the same in every process."""
        key = hashlib.sha256(f"{self.seed}:{self.turn}:{self._asked}".encode()).digest()
        self._asked += 1
        return sampling(self.spec.prompts, int.from_bytes(key[:7]), prefix)
