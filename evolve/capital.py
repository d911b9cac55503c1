"""What a bettor against "the mean of d is at most m" owns after each pair, and the bounds that follow; it decides nothing."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError

Floats = NDArray[np.float64]

EVEN: Final[Floats] = (np.arange(16) + 0.5) / 16
"""Sixteen bets spread evenly over (0, 1): a uniform prior, nothing to tune."""
SHARP: Final[Floats] = np.sin(np.pi / 2 * EVEN)
"""Bets that lean towards 1: quick against candidates that change nothing."""

_NEAREST = 1e-9
"""Bounds closer to -1 than this are reported as -1."""


class Undefined(UsageError, ValueError):
    """Numbers that no honest decision can rest on: missing, not finite, or out of range."""


def differences(pairs: object) -> Floats:
    """candidate - incumbent of `[(incumbent, candidate), ...]`, each in [0, 1]: shape [pairs], values in [-1, 1].

    Raises Undefined with the first offending pair (counted from 1).
    """
    try:
        values = np.asarray(pairs)
    except ValueError as error:
        raise Undefined(f"pairs: every pair needs an (incumbent, candidate) reward; {error}") from error
    if values.size == 0:
        return np.empty(0)
    if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in "biuf":
        raise Undefined(
            f"pairs: found an array of shape {values.shape} and type {values.dtype}; "
            "allowed is a sequence of (incumbent, candidate), two numbers in [0, 1]"
        )
    values = values.astype(np.float64)
    wrong = ~((values >= 0) & (values <= 1)).all(axis=1)
    if wrong.any():
        first = int(wrong.argmax())
        raise Undefined(f"pair {first + 1}: found {values[first].tolist()}; allowed are two rewards in [0, 1]")
    found: Floats = values[:, 1] - values[:, 0]
    return found


def check_level(level: float) -> float:
    """The level itself; raises Undefined unless it lies strictly between 0 and 1."""
    if not 0 < level < 1:
        raise Undefined(f"level: found {level!r}; allowed is an error probability strictly between 0 and 1")
    return float(level)


def capital(d: Floats, bound: float, bets: Floats = EVEN) -> Floats:
    """log K(bound) after every pair: d has shape [..., pairs], so has the answer.

    K(m) is the mean over the bets l of prod(1 + l (d - m) / (1 + m)). While E[d] <= m it is a non-negative supermartingale that
    starts at 1, so it ever reaches 1 / level with probability at most level (Ville). It falls in m, and does not depend on the
    order of the pairs in a prefix. Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (2024),
    sections 4 and 5.
    """
    return _log_mean(_wealth(d, bound, bets))


def lower(d: Floats, level: float, start: float = -1.0) -> float:
    """The running one-sided lower bound of E[d] on the whole prefix d [pairs]: every m below it was refuted at some pair.

    `start` is a bound already known from a shorter prefix. In log(1 / (1 + m)), K is a sum of exponentials with positive
    weights, so log K and its maximum over the prefixes are convex there: Newton's steps, taken from the refuted side, approach
    the bound without ever passing it.
    """
    goal = -math.log(check_level(level))
    depth = -math.log(max(1 + start, _NEAREST))
    for _ in range(64 if d.size else 0):
        bound = math.exp(-depth) - 1
        wealth = _wealth(d, bound, EVEN)
        top = wealth.max(axis=0)
        leaders = np.flatnonzero(top >= top.max() - math.log(len(EVEN)))
        path = _log_mean(wealth[:, leaders])
        leader = int(path.argmax())
        excess, best = float(path[leader]) - goal, int(leaders[leader])
        if excess < -1e-12:
            break
        start = max(start, bound)
        growth = (d[: best + 1] + 1) * math.exp(depth)
        slopes = EVEN * (growth / (1 + EVEN[:, None] * (growth - 1))).sum(axis=1)
        weights = np.exp(wealth[:, best] - top[best])
        step = excess / float(weights @ slopes / weights.sum())
        depth -= step
        if step < 1e-12:
            break
    return start


def band(d: Floats, level: float = 0.05) -> tuple[Floats, Floats]:
    """The two-sided confidence sequence of E[d] for a plot: its lower and upper bound after every pair, each [pairs].

    Both hold at all pairs together with probability 1 - level, whatever E[d] is and whenever one looks.
    """
    return _running(d, level / 2), -_running(-d, level / 2)


def _running(d: Floats, level: float) -> Floats:
    bounds, goal = np.empty(len(d)), -math.log(check_level(level))
    done, known = 0, -1.0
    while done < len(d):
        news = capital(d, max(known, _NEAREST - 1))[done:] > goal + 1e-9
        quiet = int(news.argmax()) if news.any() else len(news)
        bounds[done : done + quiet] = known
        done += quiet
        if done < len(d):
            known = lower(d[: done + 1], level, known)
            bounds[done] = known
            done += 1
    return bounds


def _wealth(d: Floats, bound: float, bets: Floats) -> Floats:
    """log of what each bet owns after every pair: [..., bets, pairs]."""
    return np.log(1 + bets[:, None] * ((d + 1) / (1 + bound) - 1)[..., None, :]).cumsum(axis=-1)


def _log_mean(wealth: Floats) -> Floats:
    """log of the bets' mean wealth: [..., bets, pairs] to [..., pairs]."""
    top = wealth.max(axis=-2)
    return np.asarray(top + np.log(np.exp(wealth - top[..., None, :]).mean(axis=-2)))
