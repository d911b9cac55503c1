"""Worlds for trials: a house on real stores whose episodes are drawn from stated success probabilities; no model in it."""

import asyncio
import math
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from evolve.budget import ErrorBudget
from evolve.change import Change
from evolve.house import Episode, House, Look, Seeds
from evolve.ledger import Ledger
from evolve.lineage import Lineage
from evolve.purse import Purse
from harness.message import Action, Observation, Usage
from harness.policy import Policy
from harness.reward import Reward
from harness.spec import HarnessSpec
from harness.task import Split, Task
from harness.tool import Tool
from harness.trajectory import Failure, Step, Trajectory
from memory.database import Database
from memory.store import Store
from skills.bank import Bank
from skills.skill import Provenance, Skill

ROOT = HarnessSpec(policy=Policy(model="scripted/world"))
Outcome = float | Failure
DOWN = Failure(wall="model", message="503 from the provider", infrastructure=True)


def tasks(n: int, split: Split = "validate") -> list[Task]:
    return [Task(instruction=f"{split} task {i}", environment="world", data={"i": i}, split=split) for i in range(n)]


def skill(name: str = "helpful", body: str = "do it right") -> Skill:
    return Skill(name=name, description=f"{name}: how to do it", body=body, provenance=Provenance(source="human"))


def adding(name: str = "helpful", runs: tuple[str, ...] = ()) -> Change:
    return Change(name=name, drafts=(skill(name),), runs=runs)


class Killed(Exception):
    """The process died in the middle of an episode."""


def finished(
    task: Task, spec: HarnessSpec, seeds: Seeds, arm: str, outcome: Outcome, *, cost: float = 0.0, steps: int = 0
) -> Trajectory:
    """A trajectory with this reward, or this failure."""
    step = Step(turn=0, action=Action(kind="answer", text="done"), observation=Observation(), text="done")
    return Trajectory(
        id=uuid.uuid4().hex, task=task, spec=spec.digest, policy=spec.policy.model, seed=seeds.sampling, world_seed=seeds.world,
        arm=arm, steps=(step,) * steps, usage=Usage(cost=cost),
        reward=None if isinstance(outcome, Failure) else Reward(value=outcome),
        error=outcome if isinstance(outcome, Failure) else None, created=datetime.now().astimezone(),
    )  # fmt: skip


@dataclass
class World:
    """`outcome(task, recalled, rng)`: what becomes of an episode that did or did not recall the candidate's skill."""

    folder: Path
    outcome: Callable[[Task, bool, random.Random], Outcome]
    recalls: Callable[[Task], bool] = lambda task: True
    tools: tuple[Tool, ...] = ()
    delay: Callable[[Task, float], float] = lambda task, reward: 0.0
    concurrency: int = 8
    owned: bool = True
    price: float = 0.0
    """US dollars an episode."""
    limit: float = math.inf
    """Of the purse."""
    steps: int = 0
    """Steps that an episode's trajectory holds."""
    dies_after: int | None = None
    """The process dies when so many episodes have been begun."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(arm, task digest) of every episode that was run."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database = Database(f"sqlite:///{self.folder / 'world.db'}")
        self.bank = Bank(self.database)
        self.budget = ErrorBudget(self.database)
        self.lineage = Lineage(self.database, self.bank, self.budget)
        self.lineage.begin(ROOT)
        self.house = House(
            store=Store(self.database), bank=self.bank, lineage=self.lineage, budget=self.budget,
            ledger=Ledger(self.database), roll=self.roll, glance=self.glance, owned=self.owned, concurrency=self.concurrency,
            purse=Purse(self.limit),
        )  # fmt: skip

    def recalled(self, task: Task, spec: HarnessSpec) -> bool:
        return bool(spec.bank) and self.recalls(task)

    async def roll(self, episode: Episode) -> Trajectory:
        task, spec, seeds, arm = episode.task, episode.spec, episode.seeds, episode.arm
        if self.dies_after is not None and len(self.calls) >= self.dies_after:
            raise Killed
        self.calls.append((arm, task.digest))
        rng = random.Random(f"{seeds.world}:{seeds.sampling}:{len(self.calls) if self.fresh_on_retry else 0}")
        outcome = self.outcome(task, self.recalled(task, spec), rng)
        await asyncio.sleep(self.delay(task, outcome if isinstance(outcome, float) else 0.0))
        run = finished(task, spec, seeds, arm, outcome, cost=self.price, steps=self.steps)
        return run.replace(id=episode.id) if episode.id else run

    fresh_on_retry: bool = False
    """An attempt with the same seeds may end otherwise, as with a flaky provider."""

    async def glance(self, task: Task, spec: HarnessSpec) -> Look:
        return Look(prompt=f"{task.digest}:{self.recalled(task, spec)}", tools=self.tools)


def chance(without: float, with_skill: float) -> Callable[[Task, bool, random.Random], Outcome]:
    """Success probabilities without and with the skill in the prompt."""
    return lambda task, recalled, rng: float(rng.random() < (with_skill if recalled else without))
