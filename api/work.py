"""Running the live head on a user's own task file: what `assay run` does, in words for a person or JSON."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from api.screen import Screen
from api.settings import Settings
from api.tasks import Workload, load
from api.wiring import LOCAL, opened
from evolve.house import Episode, Seeds
from evolve.rollouts import rollouts
from evolve.vigil import USE, Vigil, vigil
from harness.errors import UsageError
from harness.policy import Policy
from harness.spec import HarnessSpec, Prompts
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest

TERMINAL = Prompts(dialect="terminal", system="Terminal. Type one command per line.", tokens=48)


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
    runs, seen = asyncio.run(_run(settings, workload, tasks, seed, screen))
    if as_json:
        json.dump([_line(run) for run in runs], sys.stdout, indent=2)
        return
    for run in runs:
        screen.say(f"  {run.id[:12]}  {outcome(run):10s}  {run.task.instruction[:80]}")
    judged = [run.evidence for run in runs if run.evidence is not None]
    mean = f"{sum(judged) / len(judged):.1%}" if judged else "unknown"
    screen.say(
        f"mean reward {mean} of {len(judged)} verified runs, {len(runs) - len(judged)} say nothing. Steps: assay runs show ID"
    )
    if seen.alarm is not None:
        screen.say(f"ALARM, head {seen.head}: {seen.reason}. `assay evolve {path}` asks the gate again", style="red")


async def _run(
    settings: Settings, workload: Workload, tasks: Sequence[Task], seed: int, screen: Screen
) -> tuple[list[Trajectory], Vigil]:
    async with opened(settings, workload, first_spec(settings)) as platform:
        house, spec = platform.house, platform.house.lineage.head().spec
        episodes = []
        for place, task in enumerate(tasks):
            key = digest([seed, place, task.digest])
            episodes.append(Episode(task, spec, Seeds(world=int(key[:14], 16), sampling=int(key[14:28], 16)), USE))
        with screen.bar("tasks", len(tasks)) as step:
            runs = await rollouts(house, episodes, on=lambda run: step(outcome(run)))
        return runs, vigil(house.lineage, house.ledger, house.store)


def outcome(run: Trajectory) -> str:
    """How a run ended, in a word."""
    if run.error is not None:
        return f"error: {run.error.wall}"
    return "unverified" if run.reward is None else f"{run.reward.value:.2f}"


def _line(run: Trajectory) -> dict[str, object]:
    return {
        "id": run.id, "task": run.task.digest, "instruction": run.task.instruction, "split": run.task.split,
        "reward": run.reward.value if run.reward else None, "stop": run.stop, "answer": run.answer,
        "error": run.error.model_dump() if run.error else None, "usage": run.usage.model_dump(),
    }  # fmt: skip
