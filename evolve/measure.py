"""Measure: success of one spec on the test split, for reports; what it returns may inform people and change nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from evolve.arms import draws
from evolve.forecast import clopper_pearson
from evolve.house import Episode, House, Seeds
from evolve.rollouts import rollouts
from harness.errors import Infrastructure, SplitError
from harness.message import Usage
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import Value


class Measured(Value):
    """Share of full successes with its 95 % interval (Clopper-Pearson)."""

    success: float
    n: int
    low: float
    high: float
    reward: float
    """Mean reward."""
    prompt_tokens: float
    """Mean prompt tokens of an episode's first call."""
    usage: Usage


async def measure(
    house: House,
    spec: HarnessSpec,
    tasks: Sequence[Task],
    n: int,
    *,
    label: str,
    seed: int = 0,
    on: Callable[[Trajectory], None] = lambda _: None,
) -> Measured:
    """Run `n` episodes on tasks of the test split: each once, or drawn with replacement where `n` exceeds their number.

    Raises SplitError for other tasks, Infrastructure when an episode said nothing.
    """
    if not tasks or any(t.split != "test" for t in tasks):
        raise SplitError("a report measures test tasks alone; give tasks of the split 'test'")
    chosen = list(islice(draws(seed, label, 0, tasks), n))
    if n <= len(tasks):
        chosen = [replace(draw, task=task) for draw, task in zip(chosen, sorted(tasks, key=lambda t: t.digest), strict=False)]
    runs = await rollouts(house, [Episode(d.task, spec, Seeds(world=d.world, sampling=d.incumbent), label) for d in chosen], on)
    if mute := [run for run in runs if run.evidence is None]:
        raise Infrastructure(f"{label}: episode {mute[0].id} says nothing: {mute[0].error}; run it again")
    wins = sum(run.evidence == 1.0 for run in runs)
    low, high = clopper_pearson(wins, n)
    return Measured(
        success=wins / n, n=n, low=low, high=high, reward=sum(run.evidence or 0.0 for run in runs) / n,
        prompt_tokens=sum(run.steps[0].usage.prompt_tokens if run.steps else 0 for run in runs) / n,
        usage=sum((run.usage for run in runs), Usage()),
    )  # fmt: skip
