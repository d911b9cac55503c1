"""The house as a trial needs it: the stores of one agent and the ways to roll out, handed over as callables."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from evolve.budget import ErrorBudget
from evolve.ledger import Ledger
from evolve.lineage import Lineage
from evolve.purse import Purse
from evolve.watch import Watch
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Trajectory
from harness.value import Value, digest
from memory.store import Store
from skills.bank import Bank


class Seeds(Value):
    """What makes one episode repeatable."""

    world: int
    sampling: int


class Look(Value):
    """A task as a spec would first show it, at no model call."""

    prompt: str
    """Digest of the first prompt."""
    tools: tuple[Tool, ...]


@dataclass(frozen=True)
class Episode:
    """One episode to be run."""

    task: Task
    spec: HarnessSpec
    seeds: Seeds
    arm: str
    id: str = ""
    """Of its trajectory. The same id is the same episode: run, paid and stored once, however often it is asked for."""


Roll = Callable[[Episode], Awaitable[Trajectory]]
"""It stores nothing."""
Glance = Callable[[Task, HarnessSpec], Awaitable[Look]]
Metric = Callable[[Trajectory, HarnessSpec], float]
"""Something watched, in [0, 1]; higher is worse."""


def cost(trajectory: Trajectory, spec: HarnessSpec) -> float:
    """Money spent, as a share of the episode's limit."""
    return min(trajectory.usage.cost / spec.limits.cost, 1.0)


def denied(trajectory: Trajectory, spec: HarnessSpec) -> float:
    """1 when the agent wanted something that it was not permitted."""
    return float(any(step.permission.decision == "deny" for step in trajectory.steps))


@dataclass(frozen=True)
class House:
    store: Store
    bank: Bank
    lineage: Lineage
    budget: ErrorBudget
    ledger: Ledger
    roll: Roll
    glance: Glance
    owned: bool
    """The weights are ours to digest, so that an incumbent's rollouts may serve several trials."""
    weights: str = ""
    """Digest of the weights behind the model's name, where they are ours to digest."""
    concurrency: int = 8
    """Episodes at a time."""
    purse: Purse = field(default_factory=Purse)
    watches: Mapping[Metric, Watch] = field(
        default_factory=lambda: {cost: Watch(name="cost", margin=0.1), denied: Watch(name="denied actions", margin=0.05)}
    )

    def once(self, *key: object) -> str:
        """Id of this agent's one episode of that key (JSON values)."""
        return digest([self.ledger.agent, *key])[:32]

    async def run(self, episode: Episode) -> Trajectory:
        """One episode: run, paid and stored, or the stored one of its id."""
        if episode.id and (known := self.store.find(episode.id)) is not None:
            return known
        trajectory = await self.roll(episode)
        self.purse.pay(trajectory.usage.cost)
        self.store.add(trajectory)
        return trajectory
