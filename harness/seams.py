"""The seams of the ground floor: each takes nouns and returns nouns; none receives a config, a state bag or a store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from pydantic import JsonValue

from harness.correction import Correction, Permission
from harness.hint import Recalled
from harness.message import Action, Completion, Message, Observation, Tokens
from harness.policy import Policy, Sampling
from harness.reward import Reward
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Step, Trajectory


class Model(Protocol):
    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        """One output: text, raw calls, tokens, usage.

        Raises AgentFailure or Infrastructure, and UsageError where a person must change a setting; nothing else.
        """
        ...


class Scorer(Protocol):
    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        """Log-probs of `text` as a continuation of the messages (concatenated as they stand)."""
        ...


class Environment(Protocol):
    """Made anew for each episode; there is no reset."""

    @property
    def tools(self) -> Sequence[Tool]: ...
    async def start(self) -> Observation: ...
    async def step(self, action: Action) -> Observation:
        """The agent's mistake is an Observation with `error`; only a broken world raises Infrastructure."""
        ...

    async def state(self) -> Mapping[str, JsonValue]: ...
    async def close(self) -> None: ...


class Ask(Protocol):
    """One call of the bound model, parsed, repaired once when it cannot be parsed."""

    async def __call__(self, messages: Sequence[Message], *, prefix: str = "") -> Completion: ...


OpenEnvironment = Callable[[Task, int], Environment]
"""Task and world seed to a fresh environment."""
Recall = Callable[[Task, HarnessSpec], Awaitable[Recalled]]
Think = Callable[[Task, Sequence[Message], Ask], Awaitable[Completion]]
Guard = Callable[[Task, Sequence[Step], Completion], Awaitable[Correction]]
Permit = Callable[[Task, Sequence[Step], Action], Awaitable[Permission]]
Verify = Callable[[Task, Trajectory, Mapping[str, JsonValue]], Awaitable[Reward]]
