"""The gate beside a fixed-size test and cap-evolve's rule, on the same streams: errors, pairs, time; it asserts nothing.

Run from the repository: `python -m benchmarks.gate [--json] [--streams 4000]`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm, t

from evolve.budget import level as granted
from evolve.capital import Floats, band, differences
from evolve.gate import Rule, decide
from evolve.simulate import alike, campaign, graded, independent, simulate

Rows = list[dict[str, object]]
World = Callable[[np.random.Generator, int, int, float, float], Floats]

GRANTS = {"0.05": 0.05, **{f"grant {t}": granted(0.05, t, 50, 0) for t in (1, 2, 5, 10)}}
DESIGN = {
    (0.0, 0.1): ((68, 0.94), (86, 0.93), (107, 0.93), (129, 0.92), (137, 0.91)),
    (0.1, 0.2): ((158, 0.71), (255, 0.52), (None, 0.43), (None, 0.31), (None, 0.25)),
    (0.1, 0.3): ((45, 0.99), (74, 0.98), (93, 0.97), (112, 0.97), (122, 0.94)),
    (0.5, 0.7): ((74, 0.94), (122, 0.89), (144, 0.85), (176, 0.77), (192, 0.75)),
    (0.5, 0.8): ((33, 1.00), (50, 1.00), (60, 0.99), (71, 0.99), (76, 0.99)),
}
"""Median pairs (None: fewer than half admitted) and share admitted, as section 6 of the design states them."""


def mcnemar(d: Floats, level: float) -> NDArray[np.bool_]:
    """One-sided exact McNemar test of pass-or-fail pairs [streams, pairs], all of them at once."""
    better, worse = (d > 0).sum(axis=1), (d < 0).sum(axis=1)
    return np.asarray(binom.sf(better - 1, better + worse, 0.5) <= level)


def k_standard_errors(d: Floats, k: float) -> NDArray[np.bool_]:
    """cap-evolve's paired rule (core/cap_evolve/gate.py, 2026-08): mean > k SE, once, on a validation split of fixed size.

    k is widened to the Student t quantile of the same tail; with SE 0 any gain is accepted.
    """
    n = d.shape[1]
    error = d.std(axis=1, ddof=1) / np.sqrt(n)
    return np.asarray(d.mean(axis=1) > t.isf(norm.sf(k), n - 1) * error)


def mcnemar_power(n: int, incumbent: float, candidate: float, level: float) -> float:
    """Exact power of the fixed-size test with n independent pairs."""
    up, down = candidate * (1 - incumbent), incumbent * (1 - candidate)
    discordant = np.arange(n + 1)
    needed = binom.isf(level, discordant, 0.5) + 1
    return float(binom.pmf(discordant, n, up + down) @ binom.sf(needed - 1, discordant, up / (up + down)))


def mcnemar_size(power: float, incumbent: float, candidate: float, level: float) -> int:
    """The fewest pairs from which on the fixed-size test has this power."""
    low, high = 1, 2
    while mcnemar_power(high, incumbent, candidate, level) < power:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mcnemar_power(middle, incumbent, candidate, level) >= power else (middle, high)
    return high


def design_table(rng: np.random.Generator, streams: int) -> Rows:
    """Section 6's table, simulated again."""
    rows: Rows = []
    for (incumbent, candidate), stated in DESIGN.items():
        for (name, level), (pairs, share) in zip(GRANTS.items(), stated, strict=True):
            ended = simulate(independent(rng, streams, 300, incumbent, candidate), Rule(), level)
            waits = np.sort(np.where(ended.admitted, ended.pairs, 301))[streams // 2]
            size = mcnemar_size(float(ended.admitted.mean()), incumbent, candidate, level)
            rows.append(
                {
                    "arms": f"{incumbent:g} -> {candidate:g}",
                    "level": name,
                    "median": int(waits) if waits <= 300 else None,
                    "admitted": float(ended.admitted.mean()),
                    "design": f"{pairs or '-'}, {share:.2f}",
                    "mean pairs": float(ended.pairs.mean()),
                    "McNemar pairs": size,
                    "ratio": float(ended.pairs.mean()) / size,
                }
            )
    return rows


def useless_table(rng: np.random.Generator, streams: int) -> Rows:
    """What each rule admits of candidates that are no better, at level 0.05 where a rule has a level."""
    kinds: list[tuple[str, World, float]] = [
        *(("independent", independent, base) for base in (0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9)),
        *(("shared difficulty", alike, base) for base in (0.1, 0.5, 0.9)),
        *(("Beta rewards", graded, base) for base in (0.1, 0.5, 0.9)),
    ]
    rows: Rows = []
    for name, world, base in kinds:
        d = world(rng, streams, 400, base, base)
        patient, ended = simulate(d, Rule(max_pairs=400), patient=True), simulate(d, Rule())
        rows.append(
            {
                "A/A arms": name,
                "base": base,
                "gate, 400 looks": float(patient.admitted.mean()),
                "gate": float(ended.admitted.mean()),
                "median pairs": float(np.median(ended.pairs)),
                "McNemar n=100": None if world is graded else float(mcnemar(d[:, :100], 0.05).mean()),
                "k=1 SE n=20": float(k_standard_errors(d[:, :20], 1.0).mean()),
                "k=1 SE n=100": float(k_standard_errors(d[:, :100], 1.0).mean()),
                "k=2 SE n=100": float(k_standard_errors(d[:, :100], 2.0).mean()),
            }
        )
    return rows


def campaign_table(rng: np.random.Generator, campaigns: int) -> Rows:
    """Campaigns of 50 candidates of which five are better by 0.2: false discoveries, power and pairs of each rule."""
    return [row for base in (0.1, 0.5) for row in _campaigns(rng, campaigns, base)]


def _campaigns(rng: np.random.Generator, campaigns: int, base: float, size: int = 50) -> Rows:
    useful = rng.permuted(np.tile(np.arange(size) < size // 10, (campaigns, 1)), axis=1)
    streams = [independent(rng, campaigns, 300, base, base + 0.2 * useful[:, c]) for c in range(size)]

    def row(rule: str, admitted: NDArray[np.bool_], pairs: float) -> dict[str, object]:
        found = admitted.sum(axis=1)
        return {
            "base": base,
            "rule": rule,
            "false discovery rate": float(((admitted & ~useful).sum(axis=1) / np.maximum(found, 1)).mean()),
            "power": float(admitted[useful].mean()),
            "admitted": float(found.mean()),
            "pairs a candidate": pairs,
        }

    def gate(rule: str, levels: Callable[[int, int], float]) -> dict[str, object]:
        left = iter(streams)
        admitted, pairs = campaign(useful, lambda _: next(left), Rule(), levels)
        return row(rule, admitted, float(pairs.mean()))

    def fixed(rule: str, test: Callable[[Floats], NDArray[np.bool_]], n: int) -> dict[str, object]:
        return row(f"{rule}, n={n}", np.stack([test(d[:, :n]) for d in streams], axis=1), float(n))

    budgeted = gate("gate, error budget", lambda t, admissions: granted(0.05, t, size, admissions))
    strict = 0.05 / size
    n = mcnemar_size(float(str(budgeted["power"])), base, base + 0.2, strict)
    return [
        budgeted,
        gate("gate, 0.05 each", lambda t, admissions: 0.05),
        fixed(f"McNemar at 0.05 / {size}", lambda d: mcnemar(d, strict), min(n, 300)),
        fixed("McNemar at 0.05", lambda d: mcnemar(d, 0.05), 60),
        fixed("1 SE", lambda d: k_standard_errors(d, 1.0), 20),
        fixed("1 SE", lambda d: k_standard_errors(d, 1.0), 60),
        fixed("2 SE", lambda d: k_standard_errors(d, 2.0), 60),
    ]


def removal_table(rng: np.random.Generator, streams: int) -> Rows:
    """Removing what is not needed (true difference 0), at most 600 pairs."""
    rows: Rows = []
    for name, level in (("0.05", 0.05), ("first grant", granted(0.025, 1, 50, 0))):
        for margin in (0.1, 0.15):
            for base in (0.95, 0.9, 0.7):
                ended = simulate(independent(rng, streams, 600, base, base), Rule(margin=margin, max_pairs=600), level)
                waits = np.sort(np.where(ended.admitted, ended.pairs, 601))[streams // 2]
                rows.append(
                    {
                        "level": name,
                        "margin": margin,
                        "base": base,
                        "median": int(waits) if waits <= 600 else None,
                        "admitted": float(ended.admitted.mean()),
                        "rejected": float(ended.rejected.mean()),
                    }
                )
    return rows


def time_table(rng: np.random.Generator) -> Rows:
    """Milliseconds of one call on 400 pairs that decide nothing, the dearest case."""
    arms = {"pass or fail": rng.random((400, 2)) < (0.3, 0.38), "graded": rng.beta((3, 4.2), (7, 5.8), (400, 2))}
    return [_timed(name, [(float(a), float(b)) for a, b in values]) for name, values in arms.items()]


def _timed(name: str, pairs: list[tuple[float, float]]) -> dict[str, object]:
    rule, level = Rule(max_pairs=401), 1e-300
    return {
        "400 pairs": name,
        "ends": decide(pairs, rule, level=level).code,
        "decide, median ms": _milliseconds(lambda: decide(pairs, rule, level=level)),
        "band at every pair, median ms": _milliseconds(lambda: band(differences(pairs))),
    }


def _milliseconds(call: Callable[[], object], times: int = 51) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return 1000 * statistics.median(taken)


def table(title: str, rows: Rows) -> str:
    """Rows as aligned text."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    return "\n".join([title, *("  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in cells), ""])


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=4000, help="streams of each kind (default 4000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    rng, streams = np.random.default_rng(chosen.seed), chosen.streams
    tables = {
        "Useless candidates: share admitted": useless_table(rng, streams),
        "Better candidates: beside the design, and beside a McNemar test of equal level and power": design_table(rng, streams),
        "Campaigns of 50, five better by 0.2, at most 300 pairs each": campaign_table(rng, max(streams // 10, 20)),
        "Removal of what is not needed, at most 600 pairs": removal_table(rng, streams // 2),
        "Time": time_table(rng),
    }
    print(json.dumps(tables, indent=1) if chosen.json else "\n".join(table(*each) for each in tables.items()))


if __name__ == "__main__":
    main()
