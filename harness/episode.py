"""Episode: the state that the agent's graph carries from node to node, and its summary as a Trajectory; it decides nothing."""

import operator
from datetime import datetime
from typing import Annotated, TypedDict

from langgraph.channels.delta import DeltaChannel

from harness.correction import Correction, Permission
from harness.hint import Recalled
from harness.message import Action, Finish, Observation, Tokens, Usage
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Failure, Step, Stop, Trajectory
from harness.value import Value

NEVER = 1_000_000


class Pending(Value):
    """An action that was decided and not done yet."""

    action: Action
    permission: Permission


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


class Brief(Value):
    """What an episode begins with; it never changes."""

    run: str
    task: Task
    spec: HarnessSpec
    seed: int
    world_seed: int = 0
    arm: str = ""
    created: datetime


class State(TypedDict, total=False):
    brief: Brief
    recalled: Recalled
    opening: Observation
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


NOUNS = (Brief, Recalled, Observation, Step, Turn, Usage, Failure, Trajectory)
"""Every type that a checkpoint may hold: the allow-list of the msgpack reader."""


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
