"""The forecast of one trial before its first pair is paid: chances by the gate's simulation, pairs, tokens, time and money."""

from collections.abc import Sequence

from evolve.forecast import Chance, chances, clopper_pearson, replacement_chances
from evolve.house import House
from evolve.trial import Prepared
from harness.message import Usage
from harness.spec import HarnessSpec
from harness.task import Split
from harness.trajectory import Trajectory
from harness.value import Value

SEEN: tuple[Split, ...] = ("train", "validate")
"""A forecast may look at what trials may look at: never at test runs."""
ASSUMED = 0.5
"""Success of an incumbent that has never been measured: where a trial is dearest."""


class Forecast(Value):
    name: str
    base: float
    """Success of the incumbent; over `runs` stored episodes, or assumed when there are none."""
    base_band: tuple[float, float]
    runs: int
    neither: float | None = None
    """Where weights replace a text: success of an agent without both, over its stored episodes, or 0 without any."""
    margin: float = 0.0
    """What a removal may give away."""
    share: float
    """Share of the validate tasks that the change concerns."""
    level: float
    index: int
    chances: tuple[Chance, ...]
    supposed: float | None
    """The effect that `pairs` supposes: +0.2, or the largest of `chances`, for a removal 0; None: there is no room for any."""
    pairs: float
    """Expected pairs, were the effect as supposed."""
    most: Usage
    """What `max_pairs` would cost."""
    expected: Usage
    """What `pairs` would cost; seconds are wall time at the house's concurrency."""


def foresee(house: House, prepared: Prepared) -> Forecast:
    """Forecast a prepared trial from the stored runs of the live head; costs no model call."""
    rule, level = prepared.rule, prepared.grant.level
    runs = _seen(house, prepared.incumbent)
    base, band = _success(runs, ASSUMED)
    neither = None
    if prepared.neither is not None:
        neither, _ = _success(_seen(house, prepared.neither), 0.0)
        known = replacement_chances(rule, level, base, min(neither, base))
    elif rule.margin:
        known = chances(rule, level, base, (0.0, -rule.margin / 2))
    else:
        known = chances(rule, level, base)
    supposed = known[0 if rule.margin else min(1, len(known) - 1)] if known else None
    pairs = supposed.mean_pairs if supposed else float(rule.max_pairs)
    arms = 2 if prepared.neither is None else 3
    spent = sum((run.usage for run in runs), Usage())
    return Forecast(
        name=prepared.change.name, base=base, base_band=band, runs=len(runs), neither=neither, margin=rule.margin,
        share=prepared.share, level=level, index=prepared.grant.index, chances=known,
        supposed=supposed.effect if supposed else None, pairs=pairs,
        most=_scaled(spent, len(runs), arms * rule.max_pairs, house.concurrency),
        expected=_scaled(spent, len(runs), arms * pairs, house.concurrency),
    )  # fmt: skip


def _seen(house: House, spec: HarnessSpec) -> list[Trajectory]:
    stored = (run for split in SEEN for run in house.store.of(split=split, spec=spec.digest))
    return [run for run in stored if run.evidence is not None]


def _success(runs: Sequence[Trajectory], assumed: float) -> tuple[float, tuple[float, float]]:
    wins = sum(run.evidence == 1.0 for run in runs)
    return wins / len(runs) if runs else assumed, clopper_pearson(wins, len(runs))


def _scaled(spent: Usage, runs: int, episodes: float, concurrency: int) -> Usage:
    """The cost of so many episodes, by what `runs` of them cost."""
    if not runs:
        return Usage()
    each = episodes / runs
    return Usage(
        prompt_tokens=round(spent.prompt_tokens * each),
        completion_tokens=round(spent.completion_tokens * each),
        cost=spent.cost * each,
        seconds=spent.seconds * each / concurrency,
    )
