"""What a trial can be expected to find and after how many pairs, before its first one is paid; it knows no price and no clock."""

from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, betaincinv

from evolve.capital import Floats
from evolve.gate import Rule
from evolve.questions import simulate_replacement
from evolve.simulate import Outcomes, independent, simulate
from harness.value import Value


class Chance(Value):
    """What becomes of candidates with one true effect; each interval is an exact one of 95 %, of the simulation alone."""

    effect: float
    """True difference in mean reward, candidate less incumbent."""
    admitted: float
    """Share that is admitted within `max_pairs`."""
    admitted_band: tuple[float, float]
    pairs: int
    """Median number of pairs until the trial is over, however it ends."""
    pairs_band: tuple[int, int]
    mean_pairs: float
    """Mean number of pairs until the trial is over: what a trial costs in the long run."""
    pairs_to_admit: int | None
    """Pairs within which half of all such candidates are admitted; None: fewer than half ever are."""


def chances(
    rule: Rule, level: float, base: float, effects: Sequence[float] = (0.1, 0.2, 0.3), streams: int = 2000, seed: int = 0
) -> tuple[Chance, ...]:
    """Simulate the gate on independent pass-or-fail arms, the incumbent passing with probability `base`.

    Effects that `base` leaves no room for (base + effect outside [0, 1]) are left out. Arms that share their tasks' difficulty
    need fewer pairs, so this errs on the dear side. Raises Undefined for a level outside (0, 1).
    """
    rng = np.random.default_rng(seed)
    return tuple(
        _chance(effect, rule, level, independent(rng, streams, rule.max_pairs, base, min(max(base + effect, 0.0), 1.0)))
        for effect in effects
        if -1e-9 <= base + effect <= 1 + 1e-9
    )


def replacement_chances(
    rule: Rule, level: float, text: float, neither: float, streams: int = 2000, seed: int = 0
) -> tuple[Chance, ...]:
    """As `chances`, for weights in a text's place: the three arms pass independently, an agent without both with `neither`.

    The effects are 0 (the weights carry all of it) and half of what may be given away.
    """
    rng = np.random.default_rng(seed)

    def arm(success: float) -> Floats:
        return (rng.random((streams, rule.max_pairs)) < success).astype(float)

    effects = [effect for effect in (0.0, -rule.margin / 2) if text + effect >= 0]
    return tuple(
        _told(effect, rule, simulate_replacement(arm(text), arm(text + effect), arm(neither), rule, level)) for effect in effects
    )


def _chance(effect: float, rule: Rule, level: float, d: Floats) -> Chance:
    return _told(effect, rule, simulate(d, rule, level))


def _told(effect: float, rule: Rule, ended: Outcomes) -> Chance:
    streams = len(ended.pairs)
    waits = np.sort(np.where(ended.admitted, ended.pairs, rule.max_pairs + 1))
    middle = int(waits[streams // 2])
    costs = np.sort(ended.pairs)
    below, above = _ranks(streams)
    return Chance(
        effect=effect,
        admitted=float(ended.admitted.mean()),
        admitted_band=clopper_pearson(int(ended.admitted.sum()), streams),
        pairs=int(costs[streams // 2]),
        pairs_band=(int(costs[below]), int(costs[above])),
        mean_pairs=float(costs.mean()),
        pairs_to_admit=middle if middle <= rule.max_pairs else None,
    )


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a probability, from `hits` in `trials` (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


def _ranks(streams: int) -> tuple[int, int]:
    """Places in a sorted sample between which the median lies in at least 95 % of samples (binomial order statistics)."""
    below = max(int(np.searchsorted(bdtr(np.arange(streams), streams, 0.5), 0.025)) - 1, 0)
    return below, streams - 1 - below
