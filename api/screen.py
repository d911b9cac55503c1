"""The screen: progress bars and verdicts in words for a person at a terminal; `--json` output never passes here."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.prompt import Confirm

from evolve.change import Change
from evolve.foresee import Forecast
from evolve.gate import Decision
from evolve.measure import Measured
from evolve.remeasure import Remeasured
from evolve.verdict import Verdict
from harness.message import Usage

COLOURS = {"admit": "green", "reject": "red", "indecisive": "yellow"}
Step = Callable[[str], None]


class Screen:
    """Words and bars on standard error, so that standard output stays free for results."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self._pairs: Progress | None = None
        """The bar of the trial that runs."""

    def say(self, text: str = "", style: str = "") -> None:
        """A line of plain text; markup in it is not interpreted."""
        self.console.print(escape(text), style=style or None)

    def agrees(self, question: str) -> bool:
        """Ask; without a person at the terminal the answer is no, and says how to say yes."""
        self._ended()
        try:
            return Confirm.ask(f"  {escape(question)}", console=self.console, default=False)
        except EOFError:
            self.say("\n  nobody answered; --yes agrees beforehand, --max-cost sets the limit")
            return False

    def title(self, text: str) -> None:
        self.console.print()
        self.console.print(escape(text), style="bold")

    @contextlib.contextmanager
    def bar(self, label: str, total: int) -> Iterator[Step]:
        """A progress bar; each call of what it yields is one step further, with a remark."""
        with self._progress() as progress:
            task = progress.add_task(escape(label), total=total, note="")
            yield lambda note: progress.update(task, advance=1, note=escape(note))

    @contextlib.contextmanager
    def steps(self) -> Iterator[Callable[[str, int, int, str], None]]:
        """A bar for each label it is called with: (label, steps done, of how many, remark); with the time that is left."""
        with self._progress(TimeRemainingColumn(elapsed_when_finished=True)) as progress:
            known: dict[str, TaskID] = {}

            def on(label: str, done: int, total: int, note: str) -> None:
                if label not in known:
                    known[label] = progress.add_task(escape(label), total=total, note="")
                progress.update(known[label], completed=done, note=escape(note))

            yield on

    @contextlib.contextmanager
    def trial(self, total: int) -> Iterator[Callable[[Change, Decision], None]]:
        """A bar over the pairs of whatever trial runs, with the running band; a question or a verdict ends it."""

        def on(change: Change, decision: Decision) -> None:
            if self._pairs is None:
                self._pairs = self._progress()
                self._pairs.add_task(escape(f"trial of {change.name}"), total=total, note="")
                self._pairs.start()
            low, high = decision.band
            note = f"effect {decision.effect:+.2f}, 95 % [{low:+.2f}, {high:+.2f}]"
            self._pairs.update(self._pairs.task_ids[0], completed=decision.pairs, note=escape(note))

        try:
            yield on
        finally:
            self._ended()

    def _progress(self, clock: ProgressColumn | None = None) -> Progress:
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), clock or TimeElapsedColumn())
        return Progress(*columns, TextColumn("{task.fields[note]}"), console=self.console)

    def _ended(self) -> None:
        if self._pairs is not None:
            self._pairs.stop()
            self._pairs = None

    def forecast(self, forecast: Forecast) -> None:
        """What a trial may find and cost, before it is paid."""
        low, high = forecast.base_band
        based = (
            f"success so far {forecast.base:.0%} [{low:.0%}, {high:.0%}] in {forecast.runs} runs"
            if forecast.runs
            else "success unknown, 50 % assumed"
        )
        self.say(f"  forecast for {forecast.name}: {based}; concerns {forecast.share:.0%} of the validate tasks")
        if forecast.margin:
            beside = f"; {forecast.neither:.0%} without text and adapter" if forecast.neither is not None else ""
            self.say(f"    margin {forecast.margin:g}: the mean reward that it may give away{beside}")
        for chance in forecast.chances:
            need = f"half of them within {chance.pairs_to_admit} pairs" if chance.pairs_to_admit else "fewer than half ever"
            said = f"{chance.effect:+.3g}" if forecast.margin else f"{chance.effect:+.1f}"
            self.say(f"    a true {said} is admitted with chance {chance.admitted:.2f} ({need})")
        if forecast.supposed is None:
            self.say("    there is no room above this success for an effect of +0.1")
            likely = ""
        else:
            likely = f"at {forecast.supposed:+.2g} about {forecast.pairs:.0f} pairs, {_cost(forecast.expected)}; "
        granted = f"    granted error level {forecast.level:.4f} (trial {forecast.index} of its stream)"
        self.say(f"{granted}; {likely}at most {_cost(forecast.most)}")

    def verdict(self, verdict: Verdict) -> None:
        """A measured answer, with what one needs to doubt it."""
        self._ended()
        self.console.print(
            f"  [{COLOURS[verdict.decision]}]{verdict.decision.upper()}[/] {escape(verdict.name)}: {escape(verdict.reason)}"
        )
        for answered in verdict.answers[1:]:
            told = answered.decision
            self.say(
                f"    {answered.question.name}: effect {told.effect:+.3f}, 95 % [{told.band[0]:+.3f}, {told.band[1]:+.3f}],"
                f" {told.pairs} pairs: {told.code}"
            )
        low, high = verdict.band
        said = f"    effect {verdict.effect:+.3f}, 95 % [{low:+.3f}, {high:+.3f}] (the mean at stopping is biased upwards)"
        self.say(
            f"{said}; {verdict.pairs} pairs of {verdict.drawn} tasks; {_cost(verdict.spent.replace(seconds=verdict.seconds))}"
        )

    def fresh(self, again: Remeasured) -> None:
        """An admission, measured again."""
        low, high = again.band
        self.say(f"    on {again.pairs} fresh pairs: effect {again.effect:+.3f}, 95 % [{low:+.3f}, {high:+.3f}]")

    def measured(self, label: str, measured: Measured, greedy: Measured | None = None) -> None:
        beside = f"; greedy {greedy.success:.1%} [{greedy.low:.1%}, {greedy.high:.1%}]" if greedy else ""
        figure = f"{measured.success:.1%} of {measured.n} test episodes, 95 % [{measured.low:.1%}, {measured.high:.1%}]"
        self.say(f"  {label}: {figure}; {measured.prompt_tokens:.0f} prompt tokens{beside}")


def _cost(used: Usage) -> str:
    money = f", {used.cost:.2f} USD" if used.cost else ""
    return f"{used.prompt_tokens + used.completion_tokens:,} tokens, {used.seconds:.0f} s{money}"
