"""The bench: the trials of one command, each forecast before it and told after it, and one report of them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from api.evidence import told
from api.report import Candidate, Report, write
from api.screen import Screen
from api.settings import Settings
from api.wiring import unpriced
from evolve.change import Change
from evolve.foresee import foresee
from evolve.gate import Rule
from evolve.house import House
from evolve.loop import generation
from evolve.trial import Prepared
from evolve.verdict import Verdict
from harness.task import Task

NONE: Final[Mapping[str, Verdict]] = MappingProxyType({})
UNPRICED = (
    "no price is known for {model}: its calls count as 0 USD, so --max-cost cannot stop them; --price IN/OUT (US dollars per"
    " million prompt and completion tokens) lets it. Begin without a price?"
)


@dataclass
class Bench:
    house: House
    screen: Screen
    rule: Rule
    yes: bool
    """Nobody is asked before a trial that may cost more than is left."""
    rows: list[Candidate] = field(default_factory=list)
    answers: dict[str, Verdict] = field(default_factory=dict)
    """By the digest of the change."""

    def may_begin(self, settings: Settings) -> bool:
        """Ask where a hosted model's calls have no known price."""
        model = self.house.lineage.head().spec.policy.model
        return not unpriced(settings, model) or self.yes or self.screen.agrees(UNPRICED.format(model=model))

    async def tried(self, changes: Sequence[Change], tasks: Sequence[Task], known: Mapping[str, Verdict] = NONE) -> None:
        """One trial after the other, against whatever head is live by then; those with a `known` verdict are told again."""
        for change in changes:
            if change.digest in known:
                self.keep(change, known[change.digest])
        changes = [change for change in changes if change.digest not in known]
        with self.screen.trial(self.rule.max_pairs) as on:
            await generation(self.house, changes, tasks, self.rule, before=self._agreed, on=on, after=self.keep)

    def keep(self, change: Change, verdict: Verdict) -> None:
        """Tell a verdict and put it into the report."""
        self.screen.verdict(verdict)
        self.answers[change.digest] = verdict
        self.rows.append(told(self.house, change, verdict, self.rule))

    def report(self, settings: Settings, out: Path, **more: Any) -> None:
        """Write DIR/report.html, where anything was tried; `more` are further fields of the Report."""
        if self.house.purse.spent:
            self.screen.say(f"spent {self.house.purse.spent:.2f} of {self.house.purse.limit:.2f} USD")
        if not self.rows:
            return
        lineage = self.house.lineage
        report = Report(
            title=f"Assay: {settings.agent}", created=datetime.now().astimezone(), model=lineage.head().spec.policy.model,
            candidates=tuple(self.rows), heads=tuple(lineage.heads()), verdicts=tuple(lineage.verdicts()), **more,
        )  # fmt: skip
        write(report, out / "report.html")
        self.screen.say(f"report: {(out / 'report.html').resolve()}")

    def _agreed(self, prepared: Prepared) -> bool:
        """Print the forecast; ask when the trial may cost more than what is left of `--max-cost`, where it would be stopped."""
        forecast = foresee(self.house, prepared)
        self.screen.forecast(forecast)
        left = self.house.purse.left
        if self.yes or forecast.most.cost <= left:
            return True
        return self.screen.agrees(f"it may cost up to {forecast.most.cost:.2f} USD, and stops after {left:.2f} USD. Begin?")
