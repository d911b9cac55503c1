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
from api.report import Report, Tried, write
from api.screen import Screen, Step
from api.settings import Settings
from api.tasks import Workload, load
from api.wiring import LOCAL, Platform, drafter, opened
from evolve.change import Change
from evolve.foresee import foresee
from evolve.gate import Rule
from evolve.house import House, Seeds
from evolve.loop import consider, explore
from evolve.propose import from_successes
from evolve.rollouts import Episode, rollouts
from evolve.seams import Propose
from evolve.trial import Prepared
from evolve.verdict import Verdict
from harness.errors import UsageError
from harness.policy import Policy
from harness.spec import HarnessSpec, Prompts
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest

TERMINAL = Prompts(dialect="terminal", system="Terminal. Type one command per line.", tokens=48)

DRAFTERS = ("worked", "contrast", "both")


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
        json.dump([v.model_dump(mode="json") for v in verdicts], sys.stdout, indent=2)
    elif not verdicts:
        screen.say("nothing was proposed: no full success on train tasks yet. More --tries, easier tasks, or --drafter contrast")


async def _evolve(
    settings: Settings, workload: Workload, train: Sequence[Task], validate: Sequence[Task], plan: Evolution, screen: Screen
) -> list[Verdict]:
    rule = Rule(smallest_effect=plan.smallest_effect, max_pairs=plan.max_pairs)
    async with opened(settings, workload, first_spec(settings), campaign=plan.campaign) as platform:
        house = platform.house
        spent = 0.0
        if plan.skill is not None:
            changes: list[Change] = [stored(house, plan.skill)]
        else:
            with screen.bar("train tasks", plan.tries * len(train)) as step:
                seen = partial(_seen, step)
                groups = await explore(house, train, tries=plan.tries, seed=plan.seed, max_cost=plan.max_cost, on=seen)
            spent = sum(run.usage.cost for group in groups for run in group.members)
            head = house.lineage.head()
            proposers = _proposers(platform, plan)
            changes = [c for p in proposers for c in await p(head.spec, groups, house.lineage.tried())]
        verdicts: list[Verdict] = []
        rows: list[Tried] = []
        for change in changes:
            left = plan.max_cost - spent - sum(v.spent.cost for v in verdicts)
            with screen.trial(rule.max_pairs) as on:
                agreed = partial(_agreed, house, screen, plan, left)
                verdict = await consider(house, change, validate, rule, max_cost=left, before=agreed, on=on)
            if verdict is not None:
                screen.verdict(verdict)
                verdicts.append(verdict)
                rows.append(told(house, change, verdict, rule))
        if rows:
            report = Report(
                title=f"Assay: {settings.agent}", created=datetime.now().astimezone(), model=settings.model,
                candidates=tuple(rows), heads=tuple(house.lineage.heads()), verdicts=tuple(house.lineage.verdicts()),
            )  # fmt: skip
            write(report, plan.out / "report.html")
            screen.say(f"report: {(plan.out / 'report.html').resolve()}")
        return verdicts


def _agreed(house: House, screen: Screen, plan: Evolution, left: float, prepared: Prepared) -> bool:
    """Print the forecast; ask when the trial may cost more than what is left of `--max-cost`, where it would be stopped."""
    forecast = foresee(house, prepared)
    screen.forecast(forecast)
    if plan.yes or forecast.most.cost <= left:
        return True
    return screen.agrees(f"it may cost up to {forecast.most.cost:.2f} USD, and stops after {left:.2f} USD. Begin?")


def _proposers(platform: Platform, plan: Evolution) -> list[Propose]:
    worked, contrast = from_successes(plan.examples), drafter(platform)
    return {"worked": [worked], "contrast": [contrast], "both": [worked, contrast]}[plan.drafter]


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
