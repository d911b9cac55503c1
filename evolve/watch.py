"""Watched metrics: what an admission may cost elsewhere, and the veto against it; rewards are the gate's business."""

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field

from evolve.capital import check_level, differences, lower
from harness.value import Value

FALSE_VETO: Final = 0.05
"""At most this share of candidates whose harm stays within the margin is vetoed, for each metric."""


class Watch(Value):
    """A metric in [0, 1] where more is worse: unsafe actions, cost as a share of its limit, failures on tasks passed before."""

    name: str
    margin: Annotated[float, Field(ge=0, lt=1)]
    """How much worse its mean may get, unnoticed."""
    require: bool = False
    """True: no admission until harm beyond the margin is excluded, instead of only not yet shown."""


class Watched(Value):
    """What the pairs say about one metric. Harm is the candidate's mean less the incumbent's, in [-1, 1]."""

    name: str
    margin: float
    harm: float
    """Mean harm over these pairs."""
    allowed: float
    """The most harm that the data still allow, at the granted level, at all pairs together."""
    veto: bool
    """Harm beyond the margin is shown: it beats an admission."""
    holds_back: bool
    """The metric is required, and harm beyond its margin is not excluded yet."""
    pairs: int
    reason: str


def judge(watch: Watch, pairs: Sequence[tuple[float, float]], level: float) -> Watched:
    """Judge (incumbent, candidate) values of one metric, each in [0, 1], in draw order, at the granted error level.

    A veto is shown by capital against "harm is at most the margin" reaching 20 at any pair; it cannot be outlived. It is a weak
    guard (a rise from 0.05 to 0.15 past a margin of 0.05 is seen in about one of four trials of 150 pairs), hence `allowed`.
    Raises Undefined (a ValueError) for values or levels that are not numbers in range. Source: DESIGN section 6, vetoes.
    """
    check_level(level)
    d = differences(pairs)
    shown, allowed = lower(d, FALSE_VETO), -lower(-d, level)
    veto, holds_back = shown > watch.margin, watch.require and not allowed < watch.margin
    margin = f"beyond the margin of {watch.margin:g}"
    if veto:
        reason = f"{watch.name}: harm {margin} is shown ({shown:+.3f} at least, level {FALSE_VETO:g}, {len(d)} pairs)"
    elif holds_back:
        reason = f"{watch.name}: harm {margin} is not excluded yet (up to {allowed:+.3f} at level {level:.4g}, {len(d)} pairs)"
    else:
        reason = f"{watch.name}: the data still allow harm up to {allowed:+.3f} at level {level:.4g} ({len(d)} pairs)"
    return Watched(
        name=watch.name,
        margin=watch.margin,
        harm=float(d.mean()) if len(d) else 0.0,
        allowed=allowed,
        veto=veto,
        holds_back=holds_back,
        pairs=len(d),
        reason=reason,
    )
