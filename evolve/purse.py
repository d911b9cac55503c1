"""The purse: what one command may still spend; whatever asks a model pays here. It knows no error levels: see budget.py."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import Refused, UsageError
from harness.message import Completion, Message
from harness.policy import Policy, Sampling
from harness.seams import Model
from harness.tool import Tool


@dataclass
class Purse:
    limit: float = math.inf
    """US dollars."""
    spent: float = 0.0

    def __post_init__(self) -> None:
        """Raises UsageError for a limit that nothing could reach by counting."""
        if math.isnan(self.limit) or self.limit < 0:
            raise UsageError(f"--max-cost {self.limit}: allowed are US dollars, 0 or more, such as 2.50")

    @property
    def empty(self) -> bool:
        """Nothing is left; what costs nothing never empties it."""
        return self.spent > 0 and self.spent >= self.limit

    @property
    def left(self) -> float:
        return max(self.limit - self.spent, 0.0)

    def pay(self, cost: float) -> None:
        self.spent += cost


@dataclass(frozen=True)
class Paid:
    """A model whose every call is paid from a purse, for those who ask it outside of an episode."""

    model: Model
    purse: Purse

    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        """The model's completion; raises Refused when the purse is empty."""
        if self.purse.empty:
            raise Refused(f"{self.purse.spent:.2f} USD are spent, {self.purse.limit:.2f} were allowed: --max-cost allows more")
        completion = await self.model.complete(policy, messages, tools, sampling)
        self.purse.pay(completion.usage.cost)
        return completion
