"""The report: what was measured, on one self-contained page with the reasons to doubt it; it measures nothing itself."""

import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from pydantic import model_validator

from api import plots
from evolve.gate import LOST, SIDE, Rule
from evolve.lineage import Head
from evolve.measure import Measured
from evolve.remeasure import Remeasured
from evolve.verdict import Verdict
from harness.errors import UsageError
from harness.value import Value
from rl.recipe import Adapter

QUESTIONS: Final = {
    "better": "the candidate beats the incumbent",
    "kept": "the candidate is no worse than the incumbent, less the margin",
    "carries": "the adapter beats an agent with neither text nor adapter",
    "needed": "the text beats an agent with neither",
}


class Stage(Value):
    """Success on the test split at one point of the story."""

    name: str
    measured: Measured
    greedy: Measured | None = None
    """The same tasks at temperature 0."""
    source: str
    """Where the know-how of this stage came from, in words."""


class Candidate(Value):
    """One candidate with all that its trial saw."""

    name: str
    source: str
    """Where it came from, in words."""
    verdict: Verdict
    rule: Rule
    """What the trial had to show."""
    pairs: tuple[tuple[float, float], ...] = ()
    """(incumbent, candidate) rewards in draw order; those after the stop are drawn, and decide nothing."""
    text: str = ""
    """What it says, verbatim."""

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        judged, verdict = self.judged, self.verdict
        effect = sum(after - before for before, after in judged) / max(len(judged), 1)
        if len(judged) < verdict.pairs or (judged and abs(effect - verdict.effect) > 1e-6):
            raise ValueError(
                f"pairs of {self.name!r}: found {len(judged)} with a mean difference of {effect:+.6f}; its verdict rests on"
                f" {verdict.pairs} with {verdict.effect:+.6f}: give the pairs of trial {verdict.trial}, in draw order"
            )
        return self

    @property
    def judged(self) -> tuple[tuple[float, float], ...]:
        """The pairs that the decision rests on."""
        return self.pairs[: self.verdict.pairs]

    @property
    def outcomes(self) -> tuple[int, int, int]:
        """Pairs in which the candidate did better, the same, worse."""
        signs = [(after > before) - (after < before) for before, after in self.judged]
        return signs.count(1), signs.count(0), signs.count(-1)


class Curve(Value):
    """The losses of one training."""

    name: str
    adapter: Adapter


class Report(Value):
    title: str
    created: datetime
    model: str
    stages: tuple[Stage, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    heads: tuple[Head, ...] = ()
    """The lineage, oldest first; the last is live."""
    verdicts: tuple[Verdict, ...] = ()
    """Of heads that none of `candidates` made."""
    curves: tuple[Curve, ...] = ()
    """The trainings of this story, the one that was tried first."""
    fresh: tuple[Remeasured, ...] = ()
    """Effects that were measured again after an admission."""
    notes: tuple[str, ...] = ()

    def settled(self) -> tuple[Verdict, ...]:
        """Every verdict that is known here, once, in the order in which it was settled."""
        known = {(v.trial, v.created): v for v in (*(c.verdict for c in self.candidates), *self.verdicts)}
        return tuple(sorted(known.values(), key=lambda v: v.created))

    def made(self, head: Head) -> Verdict | None:
        """The verdict that made a head; None for one that no trial made, and where its verdict is not known here."""
        admitted = (v for v in self.settled() if v.trial == head.trial and v.decision == "admit")
        return next(admitted, None) if head.how == "admitted" else None


def render(report: Report) -> str:
    """The report as one HTML page that loads nothing and runs nothing; every word in it that is not ours is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(_FILTERS)
    template = environment.from_string((files("api") / "report.html.j2").read_text(encoding="utf-8"))
    settled = report.settled()
    page = template.render(
        report=report,
        lost=LOST,
        side=SIDE,
        questions=QUESTIONS,
        decided=Counter(c.verdict.decision for c in report.candidates),
        stages=report.stages and Markup(plots.stages([(s.name, s.measured, s.greedy) for s in report.stages])),
        sequences=[c.pairs and Markup(plots.sequence(c.verdict, c.pairs, c.rule)) for c in report.candidates],
        losses=report.curves and Markup(plots.losses([(c.name, c.adapter.trained) for c in report.curves])),
        lineage=report.heads and Markup(plots.lineage(report.heads, settled)),
        latest=plots.LATEST,
    )
    return page.lstrip()


def write(report: Report, path: Path) -> None:
    """Render and write the page at once or not at all; raises UsageError where `path` cannot be written."""
    page = render(report)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(page, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        advice = "give a directory that you may write to with --out"
        raise UsageError(f"report {path}: cannot be written ({error.strerror}); {advice}") from error


def _visible(text: str) -> str:
    """Text in which nothing hides: characters that do not print are named, whatever a stranger meant by them."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"⟨U+{ord(c):04X}⟩" for c in text)


_FILTERS: Final[dict[str, Callable[..., str]]] = {
    "visible": _visible,
    "percent": lambda share: f"{100 * share:.1f} %",
    "signed": lambda effect: f"{effect:+.3f}",
    "span": lambda bounds: f"{100 * bounds[0]:.1f} to {100 * bounds[1]:.1f} %",
    "band": lambda bounds: f"{bounds[0]:+.3f} to {bounds[1]:+.3f}",
    "grouped": lambda number: f"{number:,.0f}",
    "small": lambda number: f"{number:.4g}",
    "money": lambda dollars: f"{dollars:.4f} USD" if dollars else "0",
}
