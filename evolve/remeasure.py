"""Fresh pairs of two specs: what an admission was really worth (the effect at stopping is inflated), and the noise of A/A."""

from collections.abc import Callable, Sequence
from itertools import islice

from evolve.arms import draws
from evolve.capital import band, differences
from evolve.forecast import clopper_pearson
from evolve.house import Episode, House, Seeds
from evolve.rollouts import evidence
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import Value

FRESH = 50


class Remeasured(Value):
    name: str
    effect: float
    """Mean difference in reward, second spec less first."""
    band: tuple[float, float]
    """Two-sided 95 % confidence sequence at this number of pairs."""
    pairs: int
    before: tuple[float, float]
    after: tuple[float, float]
    """95 % intervals of full success of each spec (Clopper-Pearson)."""
    base: float
    """Mean reward of the first."""


async def remeasure(
    house: House,
    name: str,
    before: HarnessSpec,
    after: HarnessSpec,
    tasks: Sequence[Task],
    pairs: int = FRESH,
    on: Callable[[Trajectory], None] = lambda _: None,
) -> Remeasured:
    """Run `pairs` new pairs; it moves nothing. Give the tasks that the change concerned; the same spec twice is A/A."""
    places = list(islice(draws(0, f"fresh:{name}:{before.digest}:{after.digest}", 0, tasks), pairs))
    old = [Episode(d.task, before, Seeds(world=d.world, sampling=d.incumbent), "fresh") for d in places]
    new = [Episode(d.task, after, Seeds(world=d.world, sampling=d.incumbent + 1), "fresh") for d in places]
    values = await evidence(house, [*old, *new], on)
    first, second = values[:pairs], values[pairs:]
    d = differences(list(zip(first, second, strict=True)))
    lows, highs = band(d)
    return Remeasured(
        name=name, effect=float(d.mean()), band=(float(lows[-1]), float(highs[-1])), pairs=pairs,
        before=clopper_pearson(sum(x == 1.0 for x in first), pairs),
        after=clopper_pearson(sum(x == 1.0 for x in second), pairs),
        base=sum(first) / pairs,
    )  # fmt: skip
