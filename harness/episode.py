"""Episode: the state that the agent's graph carries from node to node, and its summary as a Trajectory; it decides nothing."""

import operator
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Self, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import PendingWrite

from harness.approval import Answered, Approval
from harness.correction import Correction, Permission
from harness.hint import Recalled
from harness.message import Action, Finish, Observation, Tokens, Usage
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Failure, Step, Stop, Trajectory
from harness.value import Value

NEVER = 1_000_000


class Pending(Value):
    """An action that was decided and not done yet."""

    action: Action
    permission: Permission
    tool: Tool | None = None
    """For `ask`: what the human is shown, whatever becomes of the process until then."""


class Turn(Value):
    """One model output on its way into the world: what is left of its actions, and what its first step will record."""

    number: int
    pending: tuple[Pending, ...]
    thought: str = ""
    raw_thought: str = ""
    correction: Correction | None = None
    text: str = ""
    tokens: Tokens = Tokens()
    finish: Finish = "stop"
    usage: Usage = Usage()
    unhonoured: tuple[str, ...] = ()
    decided: datetime
    """When; the expiry of a question to a human counts from here."""

    @property
    def rest(self) -> "Turn | None":
        """What is left when the first action is done; the output's own record lies on its first step."""
        if len(self.pending) == 1:
            return None
        return Turn(number=self.number, pending=self.pending[1:], finish=self.finish, decided=self.decided)

    def approval(self, run: str) -> Approval:
        """The question about the first action that is left."""
        action, permission, tool = self.pending[0].action, self.pending[0].permission, self.pending[0].tool
        return Approval(
            run=run, action=action, tool=tool or Tool(name=action.tool), reason=permission.reason,
            expires=self.decided + timedelta(seconds=permission.seconds), default=permission.default,
        )  # fmt: skip

    def step(self, action: Action, permission: Permission, observation: Observation) -> Step:
        """The first action that is left, as it was done in the end."""
        return Step(
            turn=self.number, action=action, observation=observation, thought=self.thought, raw_thought=self.raw_thought,
            correction=self.correction, permission=permission, text=self.text, tokens=self.tokens, finish=self.finish,
            usage=self.usage, unhonoured=self.unhonoured,
        )  # fmt: skip


class Brief(Value):
    """What an episode begins with; it never changes."""

    run: str
    task: Task
    spec: HarnessSpec
    seed: int
    world_seed: int = 0
    arm: str = ""
    created: datetime


class Once(DeltaChannel[Any]):
    """A channel for what is written once: kept as that write, so that no later checkpoint repeats it."""

    def __init__(self, reducer: Any = None, typ: Any = None, *, snapshot_frequency: int = NEVER) -> None:
        super().__init__(reducer, typ, snapshot_frequency=snapshot_frequency)

    def from_checkpoint(self, checkpoint: Any) -> Self:
        # Nothing is stored: stay as empty as this is. The parent would make a value of the type, which has no empty one.
        return self.copy() if checkpoint is None or checkpoint is self.value else super().from_checkpoint(checkpoint)

    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        self.update([value for _, _, value in writes])

    def update(self, values: Sequence[Any]) -> bool:
        if values:
            self.value = values[-1]
        return bool(values)


class State(TypedDict, total=False):
    brief: Annotated[Brief, Once()]
    recalled: Annotated[Recalled, Once()]
    opening: Annotated[Observation, Once()]
    steps: Annotated[
        list[Step], DeltaChannel(lambda old, new: old + [s for batch in new for s in batch], list, snapshot_frequency=NEVER)
    ]
    """Kept as one write a step, so that all checkpoints together grow with the steps and not with their square."""
    turn: Turn | None
    turns: int
    usage: Annotated[Usage, operator.add]
    answer: str
    stop: Stop
    failure: Failure | None
    trajectory: Trajectory
    answered: Answered
    """No node writes it: it travels in a resume, and is named here so that every strict reader knows its type."""


NOUNS = (Brief, Recalled, Observation, Step, Turn, Usage, Failure, Trajectory, Answered)
"""Every type that a checkpoint may hold: the allow-list of the msgpack reader."""


def exhausted(state: State) -> bool:
    """Whether the episode has used up its tokens, money or time."""
    used, limits = state.get("usage", Usage()), state["brief"].spec.limits
    tokens = used.prompt_tokens + used.completion_tokens
    return tokens >= limits.tokens or used.cost >= limits.cost or used.seconds >= limits.seconds


def summary(state: State) -> Trajectory:
    """The finished episode, before it is judged."""
    brief = state["brief"]
    policy = brief.spec.policy
    return Trajectory(
        id=brief.run, task=brief.task, spec=brief.spec.digest, policy=policy.name,
        seed=brief.seed, world_seed=brief.world_seed, arm=brief.arm, recalled=state.get("recalled", Recalled()),
        opening=state.get("opening", Observation()), steps=tuple(state.get("steps", [])), answer=state.get("answer", ""),
        usage=state.get("usage", Usage()), stop=state.get("stop", "done"), error=state.get("failure"), created=brief.created,
    )  # fmt: skip
