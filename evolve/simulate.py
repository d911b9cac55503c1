"""The gate run on many made-up streams at once, with exactly its rule; it is evidence about the gate, never about a candidate."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evolve.capital import EVEN, SHARP, Floats, check_level
from evolve.gate import LOST, PATIENCE, Rule


@dataclass(frozen=True)
class Outcomes:
    """How the trials ended, each field of shape [streams]."""

    code: NDArray[np.str_]
    """Reason codes as in `Decision.code`."""
    pairs: NDArray[np.int64]
    """Pairs until the end."""
    effect: Floats
    """Mean difference at the end."""

    @property
    def admitted(self) -> NDArray[np.bool_]:
        return np.asarray(self.code == "admitted")

    @property
    def rejected(self) -> NDArray[np.bool_]:
        return np.asarray(self.code == "rejected")


def simulate(d: Floats, rule: Rule, level: float | Floats | None = None, *, patient: bool = False) -> Outcomes:
    """Try every stream of differences d [streams, pairs], in [-1, 1], looking after every pair as a trial does.

    `level` may differ between streams. `patient` never stops as futile: what `decide` says of the whole stream, unless it calls
    it futile at its last pair. Streams shorter than `max_pairs` may end `undecided`; pairs after `max_pairs` are not used.
    """
    streams, length = d.shape
    levels = np.broadcast_to(np.asarray(rule.alpha if level is None else level, dtype=np.float64), streams)
    for extreme in (levels.min(initial=0.5), levels.max(initial=0.5)):
        check_level(float(extreme))
    code = np.full(streams, "max_pairs" if length >= rule.max_pairs else "undecided", dtype="U9")
    pairs = np.full(streams, min(length, rule.max_pairs))
    effect = d[:, : rule.max_pairs].mean(axis=1)
    bets, sharp = EVEN[:, None], SHARP[:, None]
    open_, columns = np.arange(streams), np.ascontiguousarray(d.T)
    gain, loss = np.ones((16, streams)), np.ones((16, streams))
    total, squares = np.zeros(streams), np.zeros(streams)
    for t in range(1, min(length, rule.max_pairs) + 1):
        now = columns[t - 1, open_]
        x = (now + 1) / (1 - rule.margin) - 1
        gain *= 1 + bets * x
        loss *= 1 + sharp * ((1 - now) / (1 - rule.hope) - 1)
        total += x
        squares += x * x
        owned, goal = gain.mean(axis=0), 1 / levels[open_]
        admitted = owned >= goal
        rejected = (loss.mean(axis=0) >= 1 / LOST) & ~admitted
        ended = admitted | rejected
        if not patient and PATIENCE <= t < rule.max_pairs:
            mean = total / t
            variance = np.maximum((squares + 0.25) / (t + 1) - mean**2, 0.01)
            hoped = np.maximum(mean + 2 * np.sqrt(variance / t), 0)
            growth = hoped**2 / (2 * (variance + hoped**2))
            ended |= np.log(owned) + (rule.max_pairs - t) * growth < np.log(goal)
        if ended.any():
            which = open_[ended]
            code[which] = np.where(admitted, "admitted", np.where(rejected, "rejected", "futile"))[ended]
            pairs[which] = t
            effect[which] = (total[ended] / t) * (1 - rule.margin) - rule.margin
            kept = ~ended
            open_, gain, loss = open_[kept], gain[:, kept], loss[:, kept]
            total, squares = total[kept], squares[kept]
        if not len(open_):
            break
    return Outcomes(code=code, pairs=pairs, effect=effect)


def independent(rng: np.random.Generator, streams: int, pairs: int, incumbent: float, candidate: float | Floats) -> Floats:
    """Differences [streams, pairs] of two arms that pass or fail independently; `candidate` may be one probability a stream."""
    shape, candidate = (streams, pairs), np.reshape(candidate, (-1, 1))
    return np.subtract(rng.random(shape) < candidate, rng.random(shape) < incumbent, dtype=np.float64)


def alike(rng: np.random.Generator, streams: int, pairs: int, incumbent: float, candidate: float, spread: float = 1.0) -> Floats:
    """As `independent`, but both arms share each task's difficulty: its success rate is Beta(incumbent, 1 - incumbent) / spread.

    A better candidate closes the same share of every task's gap to 1; a worse one loses the same share of every task's success.
    """
    shape = (streams, pairs)
    first = rng.beta(incumbent / spread, (1 - incumbent) / spread, shape)
    if candidate >= incumbent:
        second = first + (candidate - incumbent) / (1 - incumbent) * (1 - first)
    else:
        second = first * candidate / incumbent
    return np.subtract(rng.random(shape) < second, rng.random(shape) < first, dtype=np.float64)


def graded(rng: np.random.Generator, streams: int, pairs: int, incumbent: float, candidate: float, spread: float = 0.5) -> Floats:
    """Differences of two arms with graded rewards, independent Beta(mean, 1 - mean) / spread."""
    shape = (streams, pairs)
    first = rng.beta(incumbent / spread, (1 - incumbent) / spread, shape)
    return np.asarray(rng.beta(candidate / spread, (1 - candidate) / spread, shape) - first)


def campaign(
    useful: NDArray[np.bool_], draw: Callable[[NDArray[np.bool_]], Floats], rule: Rule, levels: Callable[[int, int], float]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Try the candidates of many campaigns one after the other, each admission raising the later levels of its campaign.

    `useful` [campaigns, candidates] says which candidates are better, `draw` makes their streams [campaigns, pairs], `levels`
    gives the level of trial t (from 1) after so many admissions. Returns what was admitted, and the pairs spent, like `useful`.
    """
    admitted, pairs = np.zeros_like(useful), np.zeros(useful.shape, dtype=np.int64)
    for t in range(useful.shape[1]):
        before = admitted.sum(axis=1)
        level = np.array([levels(t + 1, each) for each in range(t + 1)])[before]
        ended = simulate(draw(useful[:, t]), rule, level)
        admitted[:, t], pairs[:, t] = ended.admitted, ended.pairs
    return admitted, pairs
