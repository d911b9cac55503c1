"""The gate: pairs of rewards in, a decision out; pure statistics that know no task, no store and no clock."""

import math
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from evolve.capital import SHARP, Floats, capital, check_level, differences, lower
from harness.value import Value

Code = Literal["admitted", "rejected", "futile", "max_pairs", "undecided"]

LOST: Final = 0.1
"""At most this share of the candidates that reach the smallest effect is rejected."""
PATIENCE: Final = 20
"""The first pair at which a trial may be called futile."""
SIDE: Final = 0.025
"""Error level of each side of the 95 % band, and of `Decision.high`."""


class Rule(Value):
    """What a trial must show, stated before its first pair."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Probability of admitting a candidate that is no better, when no error budget grants a level."""
    smallest_effect: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The gain in mean reward that is worth finding: candidates that cannot reach it are rejected early."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How much mean reward may be given away. 0 asks "is it better?"; more asks "is it no worse than that?" (a removal)."""
    max_pairs: Annotated[int, Field(ge=1)] = 300
    """The number of pairs at which an open trial ends as indecisive."""
    cap: Annotated[float | None, Field(ge=0)] = None
    """Mean reward that removals may have given away together, this one included; None: this one's margin."""

    @property
    def hope(self) -> float:
        """The difference that a rejection refutes: `smallest_effect`, or for a removal half of what may be given away."""
        return -self.margin / 2 if self.margin else self.smallest_effect


class Decision(Value):
    """A measured answer. Effects are differences of mean reward, candidate less incumbent, in [-1, 1]."""

    decision: Literal["admit", "reject", "indecisive"]
    code: Code
    """Why, for programs. The trial goes on only while this is `undecided`."""
    reason: str
    """Why, for people."""
    effect: float
    """Mean difference at the stop. Stopping inflates it: read it with the band."""
    low: float
    """Running one-sided lower bound at the granted level; the candidate is admitted if and only if it lies above -margin."""
    high: float
    """Running one-sided upper bound at level 0.025."""
    band: tuple[float, float]
    """Two-sided 95 % confidence sequence at the stop; it is not the decision level."""
    e_value: float
    """Capital against "no better than -margin" at the stop, not its maximum."""
    pairs: int
    """Pairs that were used: those up to the decision; later ones were ignored."""
    level: float
    """The granted error level."""


def decide(pairs: Sequence[tuple[float, float]], rule: Rule, *, level: float | None = None) -> Decision:
    """Judge (incumbent, candidate) rewards in [0, 1], given in draw order; `level` is the granted error, by default `rule.alpha`.

    Looking after every pair costs nothing: the error holds at all of them together. Admission and rejection are final, whatever
    follows; `futile` and `max_pairs` are judged at the last pair given, so that the same pairs under a larger `max_pairs` go on.
    Raises Undefined (a ValueError) for rewards or levels that are not numbers in range. Sources: Waudby-Smith and Ramdas (2024)
    for the capital; DESIGN section 6 for the rule.
    """
    granted = check_level(rule.alpha if level is None else level)
    d = differences(pairs)
    gain, loss = capital(d, -rule.margin), capital(-d, -rule.hope, SHARP)
    admitted = _first(gain, -math.log(granted))
    rejected = _first(loss, -math.log(LOST))
    stop = min(admitted, rejected, len(d))
    code: Code = "undecided"
    if admitted == stop:
        code = "admitted"
    elif rejected == stop:
        code = "rejected"
    elif stop >= rule.max_pairs:
        code = "max_pairs"
    elif stop >= PATIENCE and futile(d, float(gain[-1]), rule, granted):
        code = "futile"
    d = d[:stop]
    outer = lower(d, min(granted, SIDE))
    inner = lower(d, max(granted, SIDE), outer)
    low, under = (outer, inner) if granted < SIDE else (inner, outer)
    high = -lower(-d, SIDE)
    # Rounding must not contradict the decision.
    low = max(low, math.nextafter(-rule.margin, 1)) if code == "admitted" else min(low, -rule.margin)
    effect = float(d.mean()) if stop else 0.0
    return Decision(
        decision="admit" if code == "admitted" else "reject" if code == "rejected" else "indecisive",
        code=code,
        reason=_reason(code, rule, granted, stop, low),
        effect=effect,
        low=low,
        high=high,
        band=(under, high),
        e_value=math.exp(min(float(gain[stop - 1]), 700.0)) if stop else 1.0,
        pairs=stop,
        level=granted,
    )


def futile(d: Floats, gain: float, rule: Rule, level: float) -> bool:
    """Whether the pairs left cannot be expected to lift log capital `gain` to 1 / level, even if d is two standard errors better.

    For mean o and variance v the best constant bet grows log capital by about o^2 / (2 (v + o^2)) a pair (to second order).
    Stopping early costs power and no error.
    """
    x = (d + rule.margin) / (1 - rule.margin)
    t, mean = len(x), float(x.mean())
    variance = max((float(x @ x) + 0.25) / (t + 1) - mean**2, 0.01)
    hoped = mean + 2 * math.sqrt(variance / t)
    growth = hoped**2 / (2 * (variance + hoped**2)) if hoped > 0 else 0.0
    return gain + (rule.max_pairs - t) * growth < -math.log(level)


def _first(path: Floats, goal: float) -> int:
    """The pair, counted from 1, at which the path first reaches the goal; one more than there are if it never does."""
    reached = path >= goal
    return int(np.argmax(reached)) + 1 if reached.any() else len(path) + 1


def _reason(code: Code, rule: Rule, level: float, pairs: int, low: float) -> str:
    aim = f"no worse than the incumbent less {rule.margin:g}" if rule.margin else "better than the incumbent"
    match code:
        case "admitted":
            return f"{aim}: effect above {low:+.3f} at level {level:.4g}, after {pairs} pairs"
        case "rejected":
            return f"an effect of {rule.hope:+g} or more is ruled out at level {LOST:g} after {pairs} pairs"
        case "futile":
            return (
                f"the {rule.max_pairs - pairs} pairs left after {pairs} cannot be expected to show it {aim} at level {level:.4g}"
            )
        case "max_pairs":
            return f"{pairs} pairs did not decide; the same trial can go on with a larger max_pairs"
        case "undecided":
            return f"{pairs} pairs have not decided yet"
