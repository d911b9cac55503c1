"""Running and evolving on a user's own task file: what `assay run` and `assay evolve` do, in words for a person or JSON."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from api.evidence import stored, told
from api.report import Candidate, Report, write
from api.screen import Screen, Step
from api.settings import Settings
from api.tasks import Workload, load
from api.wiring import LOCAL, Platform, drafter, opened, unpriced
from evolve.change import Change
from evolve.foresee import foresee
from evolve.gate import Rule
from evolve.house import Episode, House, Seeds
from evolve.loop import explore, generation, propose, unfinished
from evolve.propose import from_successes
from evolve.purse import Purse
from evolve.rollouts import rollouts
from evolve.trial import Prepared
from evolve.verdict import Verdict
from harness.errors import Infrastructure, UsageError
from harness.policy import Policy
from harness.spec import HarnessSpec, Prompts
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest
from skills.draft import Refusal

TERMINAL = Prompts(dialect="terminal", system="Terminal. Type one command per line.", tokens=48)

DRAFTERS = ("worked", "contrast", "both")
UNPRICED = (
    "no price is known for {model}: its calls count as 0 USD, so --max-cost cannot stop them; --price IN/OUT (US dollars per"
    " million prompt and completion tokens) lets it. Begin without a price?"
)


@dataclass(frozen=True)
class Evolution:
    """What `assay evolve` was asked for."""

    skill: str | None
    examples: int
    tries: int
    drafter: str
    max_pairs: int
    max_cost: float
    smallest_effect: float
    campaign: int | None
    seed: int
    out: Path
    yes: bool


def first_spec(settings: Settings) -> HarnessSpec:
    """The root of a new lineage: small local models get the terminal, hosted ones native tool calls."""
    policy = Policy(model=settings.model)
    return HarnessSpec(policy=policy, prompts=TERMINAL) if settings.model.startswith(LOCAL) else HarnessSpec(policy=policy)


def run_tasks(settings: Settings, path: Path, *, split: str, limit: int | None, seed: int, as_json: bool) -> None:
    """Run the live head once on each task and print a line a run; raises UsageError for an unknown or empty split."""
    if split not in ("train", "validate", "test", "all"):
        raise UsageError(f"--split {split!r}: allowed are train, validate, test, all")
    workload = load(path)
    tasks = [t for t in workload.tasks if split in ("all", t.split)][:limit]
    if not tasks:
        raise UsageError(f"{path} has no task of the split {split!r}")
    screen = Screen(quiet=as_json)
    runs = asyncio.run(_run(settings, workload, tasks, seed, screen))
    if as_json:
        json.dump([_line(run) for run in runs], sys.stdout, indent=2)
        return
    for run in runs:
        screen.say(f"  {run.id[:12]}  {_outcome(run):10s}  {run.task.instruction[:80]}")
    judged = [run.evidence for run in runs if run.evidence is not None]
    mean = f"{sum(judged) / len(judged):.1%}" if judged else "unknown"
    screen.say(
        f"mean reward {mean} of {len(judged)} verified runs, {len(runs) - len(judged)} say nothing. Steps: assay runs show ID"
    )


async def _run(settings: Settings, workload: Workload, tasks: Sequence[Task], seed: int, screen: Screen) -> list[Trajectory]:
    async with opened(settings, workload, first_spec(settings)) as platform:
        house, spec = platform.house, platform.house.lineage.head().spec
        episodes = []
        for place, task in enumerate(tasks):
            key = digest([seed, place, task.digest])
            episodes.append(Episode(task, spec, Seeds(world=int(key[:14], 16), sampling=int(key[14:28], 16)), "run"))
        with screen.bar("tasks", len(tasks)) as step:
            return await rollouts(house, episodes, on=lambda run: step(_outcome(run)))


def evolve_tasks(settings: Settings, path: Path, plan: Evolution, *, as_json: bool) -> None:
    """One generation on a task file, with a report; asks before it may spend money unless `--yes`."""
    if plan.drafter not in DRAFTERS:
        raise UsageError(f"--drafter {plan.drafter!r}: allowed are {', '.join(DRAFTERS)}")
    workload = load(path)
    screen = Screen(quiet=as_json)
    for warning in workload.warnings:
        screen.say(f"warning: {warning}", style="yellow")
    train = [t for t in workload.tasks if t.split == "train"]
    validate = [t for t in workload.tasks if t.split == "validate"]
    if not train and plan.skill is None:
        raise UsageError(
            f'{path} has no train task to learn from; add lines with "split": "train", or try a stored skill with --skill'
        )
    verdicts = asyncio.run(_evolve(settings, workload, train, validate, plan, screen))
    if as_json:
        json.dump([v.model_dump(mode="json") for v in verdicts or ()], sys.stdout, indent=2)
    elif verdicts is not None and not verdicts:
        screen.say("nothing was proposed: no full success on train tasks yet. More --tries, easier tasks, or --drafter contrast")


async def _evolve(
    settings: Settings, workload: Workload, train: Sequence[Task], validate: Sequence[Task], plan: Evolution, screen: Screen
) -> list[Verdict] | None:
    """The verdicts of one round; None where the person did not agree to begin."""
    rule = Rule(smallest_effect=plan.smallest_effect, max_pairs=plan.max_pairs)
    purse = Purse(plan.max_cost)
    async with opened(settings, workload, first_spec(settings), campaign=plan.campaign, purse=purse) as platform:
        house = platform.house
        model = house.lineage.head().spec.policy.model
        if unpriced(settings, model) and not (plan.yes or screen.agrees(UNPRICED.format(model=model))):
            return None
        rows: list[Candidate] = []

        def after(change: Change, verdict: Verdict) -> None:
            screen.verdict(verdict)
            rows.append(told(house, change, verdict, rule))

        async def tried(changes: Sequence[Change]) -> list[Verdict]:
            with screen.trial(rule.max_pairs) as on:
                before = partial(_agreed, house, screen, plan)
                return await generation(house, changes, validate, rule, before=before, on=on, after=after)

        if plan.skill is not None:
            verdicts = await tried([stored(house, plan.skill)])
        else:
            begun, live = unfinished(house), house.lineage.head().number
            if begun:
                screen.say(f"going on with what was begun and not decided: {', '.join(change.name for change in begun)}")
            verdicts = await tried(begun)
            if house.lineage.head().number == live and not purse.empty:
                verdicts += await tried(await _drafted(platform, train, plan, screen))
        if purse.spent:
            screen.say(f"spent {purse.spent:.2f} of {purse.limit:.2f} USD")
        if rows:
            report = Report(
                title=f"Assay: {settings.agent}", created=datetime.now().astimezone(), model=model,
                candidates=tuple(rows), heads=tuple(house.lineage.heads()), verdicts=tuple(house.lineage.verdicts()),
            )  # fmt: skip
            write(report, plan.out / "report.html")
            screen.say(f"report: {(plan.out / 'report.html').resolve()}")
        return verdicts


async def _drafted(platform: Platform, train: Sequence[Task], plan: Evolution, screen: Screen) -> list[Change]:
    """Explore the train tasks, and draft from what happened."""
    with screen.bar("train tasks", plan.tries * len(train)) as step:
        groups = await explore(platform.house, train, tries=plan.tries, seed=plan.seed, on=partial(_seen, step))
    runs = [run for group in groups for run in group.members]
    if mute := [run for run in runs if run.evidence is None]:
        last = mute[-1].error.message if mute[-1].error else "its verifier gave no reward"
        said = f"{len(mute)} of {len(runs)} runs on train tasks say nothing; the last: {last}"
        if len(mute) == len(runs):
            raise Infrastructure(said)
        screen.say(f"  {said}", style="yellow")
    refused: list[Refusal] = []
    worked, contrast = from_successes(plan.examples), drafter(platform, refused.append)
    proposers = {"worked": [worked], "contrast": [contrast], "both": [worked, contrast]}[plan.drafter]
    changes = await propose(platform.house, groups, proposers)
    for refusal in refused:
        screen.say(f"  the drafter's answer is no skill ({refusal.code}): {refusal.reason}", style="dim")
    return changes


def _agreed(house: House, screen: Screen, plan: Evolution, prepared: Prepared) -> bool:
    """Print the forecast; ask when the trial may cost more than what is left of `--max-cost`, where it would be stopped."""
    forecast = foresee(house, prepared)
    screen.forecast(forecast)
    left = house.purse.left
    if plan.yes or forecast.most.cost <= left:
        return True
    return screen.agrees(f"it may cost up to {forecast.most.cost:.2f} USD, and stops after {left:.2f} USD. Begin?")


def _seen(step: Step, run: Trajectory) -> None:
    step(_outcome(run))


def _outcome(run: Trajectory) -> str:
    if run.error is not None:
        return f"error: {run.error.wall}"
    return "unverified" if run.reward is None else f"{run.reward.value:.2f}"


def _line(run: Trajectory) -> dict[str, object]:
    return {
        "id": run.id, "task": run.task.digest, "instruction": run.task.instruction, "split": run.task.split,
        "reward": run.reward.value if run.reward else None, "stop": run.stop, "answer": run.answer,
        "error": run.error.model_dump() if run.error else None, "usage": run.usage.model_dump(),
    }  # fmt: skip
