"""The report's pictures: numbers in, one inline SVG out, its colours left to the page; they judge nothing and know no page."""

import html
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from evolve.capital import band, differences
from evolve.gate import Rule
from evolve.lineage import Head
from evolve.measure import Measured
from evolve.verdict import Verdict
from rl.recipe import Trained

TINY: Final = 1e-6
"""The smallest loss that is drawn: the axis is logarithmic."""
LATEST: Final = 30
"""Rows of the lineage that are drawn; the table beside it holds all."""

# Colours that stand in for the page's own, which differ in light and dark: `_svg` turns each into var(--name).
PAPER, INK, MUTED, LINE, BAND = "#00000a", "#00000b", "#00000c", "#00000d", "#00000e"
ADMIT, REJECT, INDECISIVE = "#00001a", "#00001b", "#00001c"
_NAMES: Final = {
    PAPER: "paper", INK: "ink", MUTED: "muted", LINE: "line", BAND: "band",
    ADMIT: "admit", REJECT: "reject", INDECISIVE: "indecisive",
}  # fmt: skip
_DECIDED: Final = {"admit": ADMIT, "reject": REJECT, "indecisive": INDECISIVE}
_MARKS: Final = {"admit": "o", "reject": "X", "indecisive": "D"}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none", "svg.hashsalt": "assay", "text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 10,
    "text.color": INK, "axes.edgecolor": MUTED, "axes.labelcolor": INK, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "legend.fontsize": 9,
}  # fmt: skip


def stages(rows: Sequence[tuple[str, Measured, Measured | None]]) -> str:
    """Success of each (name, measured, greedy or none) with its 95 % interval."""

    def draw(axes: Any) -> None:
        for place, (name, measured, greedy) in enumerate(rows):
            axes.text(0, place - 0.3, _short(name, 50), va="center")
            for each, y, mark, colour in ((measured, place, "o", BAND), (greedy, place + 0.24, "s", MUTED)):
                if each is not None:
                    axes.plot([each.low, each.high], [y, y], color=colour, linewidth=2.4, solid_capstyle="butt")
                    axes.plot(each.success, y, mark, color=colour, markersize=7)
        axes.plot([], [], "o", color=BAND, label="as sampled")
        axes.plot([], [], "s", color=MUTED, label="greedy")
        axes.set(xlim=(-0.02, 1.02), ylim=(len(rows) - 0.5, -0.6), yticks=[], xlabel="full successes, with 95 % interval")
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=LINE, linewidth=0.8)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    return _svg(draw, 1.0 + 0.8 * len(rows), "Success by stage with 95 % intervals: " + ", ".join(name for name, _, _ in rows))


def sequence(verdict: Verdict, pairs: Sequence[tuple[float, float]], rule: Rule) -> str:
    """The 95 % confidence sequence of the effect over the pairs, in draw order, with what the gate compared it to."""

    def draw(axes: Any) -> None:
        d = differences(pairs)
        x = np.arange(1, len(d) + 1)
        colour = _DECIDED[verdict.decision]
        axes.fill_between(x, *band(d), color=BAND, alpha=0.28, linewidth=0, label="95 %, not the decision level")
        axes.plot(x, d.cumsum() / x, color=BAND, linewidth=1.8, label="mean so far")
        axes.axhline(0.0 - rule.margin, color=INK, linewidth=1.2, label=f"admission threshold {0.0 - rule.margin:g}")
        smallest = "minus half the margin" if rule.margin else "smallest effect"
        axes.axhline(rule.hope, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), label=f"{smallest} {rule.hope:g}")
        axes.axvline(verdict.pairs, color=colour, linewidth=1.6, linestyle=(0, (1, 1.5)), label=f"stop: {verdict.decision}")
        axes.plot(verdict.pairs, verdict.low, "^", color=colour, markersize=8, clip_on=False, label="bound at granted level")
        axes.set(xlim=(0, len(d) * 1.04 + 1), ylim=(-1.04, 1.04), xlabel="pairs", ylabel="candidate less incumbent")
        axes.set_yticks([-1, -0.5, 0, 0.5, 1])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=LINE, linewidth=0.8)
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.17), ncols=2, columnspacing=0.8, handlelength=1.4)

    words = f"95 % confidence sequence of {verdict.name} over {len(pairs)} pairs; {verdict.decision} at pair {verdict.pairs}"
    return _svg(draw, 3.8, words)


def losses(rows: Sequence[tuple[str, Trained]]) -> str:
    """Loss by step of each (name, training), held-out losses as marks, the step that was kept ringed."""

    def draw(axes: Any) -> None:
        for (name, trained), colour in zip(rows, (BAND, ADMIT, INDECISIVE), strict=False):
            steps = [point.step for point in trained.curve]
            axes.plot(steps, [max(point.loss, TINY) for point in trained.curve], color=colour, linewidth=1.6, label=_short(name))
            axes.plot([p.step for p in trained.held], [max(p.loss, TINY) for p in trained.held], "s", color=colour, markersize=4)
            kept = next(point for point in trained.held if point.step == trained.kept)
            axes.plot(kept.step, max(kept.loss, TINY), "o", markersize=11, markerfacecolor="none", markeredgecolor=colour)
        axes.set_yscale("log")
        axes.set(xlabel="step", ylabel="loss, nats a token")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=LINE, linewidth=0.8)
        axes.legend(loc="upper right")

    return _svg(draw, 3.2, "Training loss by step: " + ", ".join(name for name, _ in rows))


def lineage(heads: Sequence[Head], verdicts: Sequence[Verdict]) -> str:
    """The heads on one line, the newest last, each followed by what was tried against it in vain; dashed: gone back to."""

    def draw(axes: Any) -> None:
        places = {row.number: y for y, row in enumerate(rows) if isinstance(row, Head)}
        spine = list(places.values())
        axes.plot([0] * len(spine), spine, color=MUTED, linewidth=1.6, zorder=0)
        for y, row in enumerate(rows):
            if isinstance(row, Verdict):
                start = places.get(row.head, -0.5)
                axes.plot([0, 0.55, 0.55], [start, start, y], color=MUTED, linewidth=1, zorder=0)
                axes.plot(0.55, y, _MARKS[row.decision], color=_DECIDED[row.decision], markersize=8)
                axes.text(0.95, y, f"{row.decision}: {_short(row.name)}", va="center", color=MUTED)
                continue
            fill = {"admitted": ADMIT, "root": INK}.get(row.how, PAPER)
            axes.plot(0, y, "o", markersize=18, markerfacecolor=fill, markeredgecolor=INK if fill == PAPER else fill)
            axes.text(0, y + 0.02, str(row.number), ha="center", va="center", color=INK if fill == PAPER else PAPER, fontsize=9)
            how = "forced, unmeasured" if row.how == "forced" else row.how
            axes.text(0.95, y, f"{how}: {_short(row.change)}" if row.change else how, va="center")
            if (back := _restored(row, heads)) in places:
                axes.plot([-0.4, -0.9, -0.9, -0.4], [y, y, places[back], places[back]], color=INK, linestyle=(0, (3, 2)))
        axes.set(xlim=(-1, 8), ylim=(len(rows) - 0.4, -0.6))
        axes.axis("off")

    rows = list(_rows(heads, verdicts))[-LATEST:]
    return _svg(draw, 0.2 + 0.42 * len(rows), f"Lineage of {len(heads)} heads")


def _rows(heads: Sequence[Head], verdicts: Sequence[Verdict]) -> Iterator[Head | Verdict]:
    last = {v.trial: v for v in verdicts}.values()
    for head in heads:
        yield head
        yield from (v for v in last if v.head == head.number and v.decision != "admit")


def _restored(head: Head, heads: Sequence[Head]) -> int | None:
    """Number of the head that a rollback went back to."""
    same = [h.number for h in heads if h.number < head.number and h.spec.digest == head.spec.digest]
    return same[0] if head.how == "rollback" and same else None


def _short(text: str, longest: int = 34) -> str:
    """One printable line: labels are made by strangers too."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _svg(draw: Callable[[Any], None], height: float, words: str) -> str:
    """What `draw` puts on its axes, as an SVG element for the inside of a page; `words` are for those who cannot see it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the browser's fonts have it
        figure = Figure(figsize=(4.3, height), layout="constrained")
        draw(figure.add_subplot())
        with io.StringIO() as out:
            figure.savefig(out, format="svg", transparent=True)
            drawn = out.getvalue()
    start = re.search(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', drawn, re.DOTALL)
    assert start is not None, "matplotlib writes an svg element with a viewBox"
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", drawn[start.end() :], flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # several pictures share one page
    body = re.sub(r"'DejaVu Sans'", "var(--sans)", body)
    body = re.sub(r"(fill|stroke): (#0000\w\w)", lambda found: f"{found[1]}: var(--{_NAMES[found[2]]})", body)
    return f'<svg {start[1]} role="img" aria-label="{html.escape(_short(words, 300))}">{body}'
