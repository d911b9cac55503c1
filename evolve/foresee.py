"""The forecast of one trial before its first pair is paid: chances by the gate's simulation, pairs, tokens, time and money."""

from evolve.forecast import Chance, chances, clopper_pearson
from evolve.house import House
from evolve.trial import Prepared
from harness.message import Usage
from harness.task import Split
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
    share: float
    """Share of the validate tasks that the change concerns."""
    level: float
    index: int
    chances: tuple[Chance, ...]
    supposed: float | None
    """The effect that `pairs` supposes: +0.2, or the largest of `chances`; None where there is no room for any."""
    pairs: float
    """Expected pairs, were the effect as supposed."""
    most: Usage
    """What `max_pairs` would cost."""
    expected: Usage
    """What `pairs` would cost; seconds are wall time at the house's concurrency."""


def foresee(house: House, prepared: Prepared) -> Forecast:
    """Forecast a prepared trial from the stored runs of the live head; costs no model call."""
    seen = (run for split in SEEN for run in house.store.of(split=split, spec=prepared.incumbent.digest))
    runs = [run for run in seen if run.evidence is not None]
    wins = sum(run.evidence == 1.0 for run in runs)
    base = wins / len(runs) if runs else ASSUMED
    spent = sum((run.usage for run in runs), Usage())
    known = chances(prepared.rule, prepared.grant.level, base)
    supposed = known[min(1, len(known) - 1)] if known else None
    pairs = supposed.mean_pairs if supposed else float(prepared.rule.max_pairs)
    return Forecast(
        name=prepared.change.name, base=base, base_band=clopper_pearson(wins, len(runs)), runs=len(runs), share=prepared.share,
        level=prepared.grant.level, index=prepared.grant.index, chances=known,
        supposed=supposed.effect if supposed else None, pairs=pairs,
        most=_scaled(spent, len(runs), prepared.rule.max_pairs, house.concurrency),
        expected=_scaled(spent, len(runs), pairs, house.concurrency),
    )  # fmt: skip


def _scaled(spent: Usage, runs: int, pairs: float, concurrency: int) -> Usage:
    """The cost of two arms over `pairs` pairs, by what `runs` episodes cost."""
    if not runs:
        return Usage()
    each = 2 * pairs / runs
    return Usage(
        prompt_tokens=round(spent.prompt_tokens * each),
        completion_tokens=round(spent.completion_tokens * each),
        cost=spent.cost * each,
        seconds=spent.seconds * each / concurrency,
    )
