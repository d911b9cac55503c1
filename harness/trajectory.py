"""Step and Trajectory: one finished episode as data, failures included; storing it is for the memory room."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from harness.correction import Correction, Permission
from harness.hint import Recalled
from harness.message import Action, Finish, Observation, Tokens, Usage
from harness.reward import Reward
from harness.task import Task
from harness.value import Value, digest

Source = Literal["policy", "teacher", "oracle", "human", "recorded", "imagined"]
Stop = Literal["done", "answer", "limit", "error", "denied"]


class Parent(Value):
    """Where a branched or resumed rollout left its parent."""

    trajectory: str
    step: int


class Failure(Value):
    """An error with the wall it crossed; `infrastructure` ones say nothing about the agent."""

    wall: str
    message: str
    infrastructure: bool = False


class Step(Value):
    """One action and what came of it. Steps of one model output share `turn`; its tokens lie on the first of them."""

    turn: int
    action: Action
    observation: Observation
    thought: str = ""
    raw_thought: str = ""
    """What the model thought before the guard corrected it; empty when it was left alone."""
    correction: Correction | None = None
    permission: Permission = Permission(decision="allow")
    text: str = ""
    """The output as the model wrote it."""
    tokens: Tokens = Tokens()
    finish: Finish = "stop"
    usage: Usage = Usage()
    role: str = "agent"
    """Which of several agents acted."""
    unhonoured: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """Tool and arguments without the call's id: equal for equal deeds (16 hex digits)."""
        return digest([self.action.kind, self.action.tool, dict(self.action.arguments), self.action.problem])[:16]


class Trajectory(Value):
    id: str
    task: Task
    spec: str
    """Digest of the HarnessSpec."""
    policy: str
    """`model@adapter` of the spec's policy; the weights' digest is on each step's tokens."""
    seed: int
    """Sampling seed of the whole episode."""
    world_seed: int = 0
    arm: str = ""
    """incumbent, candidate, base, ... where rollouts are compared."""
    source: Source = "policy"
    parent: Parent | None = None
    recalled: Recalled = Recalled()
    opening: Observation = Observation()
    """What the environment said before the first action."""
    steps: tuple[Step, ...] = ()
    answer: str = ""
    state: Mapping[str, JsonValue] = {}
    """Terminal backend state that the verifier saw."""
    reward: Reward | None = None
    usage: Usage = Usage()
    stop: Stop = "done"
    error: Failure | None = None
    created: datetime

    @property
    def success(self) -> bool:
        """A reward of 1 and nothing less."""
        return self.reward is not None and self.reward.value == 1.0

    @property
    def evidence(self) -> float | None:
        """The reward as the gate counts it: 0 for the agent's failure, None where the episode says nothing."""
        if self.error is not None:
            return None if self.error.infrastructure else 0.0
        return None if self.reward is None else self.reward.value
