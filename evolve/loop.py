"""The loop on one page: run, propose, try, decide, and the one back-edge, from a verdict to the next head."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from evolve.change import Change
from evolve.gate import Decision, Rule
from evolve.house import House, Seeds
from evolve.seams import Propose
from evolve.trial import Prepared, prepare, trial
from evolve.verdict import Verdict
from harness.errors import SplitError
from harness.group import Group
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest

EXPLORE = "explore"
"""Arm of the runs that proposals are made from."""


async def explore(
    house: House,
    tasks: Sequence[Task],
    *,
    tries: int = 1,
    enough: int | None = None,
    counts: Callable[[Trajectory], bool] = lambda run: run.success,
    seed: int = 0,
    max_cost: float = math.inf,
    on: Callable[[Trajectory], None] = lambda _: None,
) -> list[Group]:
    """Run train tasks under the live head and store what happened: the raw material of proposals.

    Ends with the first `enough` runs that count (full successes, if nothing else is said) in the order of the tasks: neither
    the speed of an episode nor a restart changes what is learned from. Stored runs are not repeated; stops at `max_cost`
    US dollars.
    Raises SplitError for tasks that may not be learned from.
    """
    if wrong := {t.split for t in tasks} - {"train"}:
        raise SplitError(f"only train tasks may be explored; found {sorted(wrong)}")
    spec = house.lineage.head().spec
    stored = {(run.task.digest, run.seed): run for run in house.store.of(split="train", spec=spec.digest, arm=EXPLORE)}

    async def one(task: Task, number: int) -> Trajectory:
        key = digest([seed, task.digest, number])
        seeds = Seeds(world=int(key[:14], 16), sampling=int(key[14:28], 16))
        if (known := stored.get((task.digest, seeds.sampling))) is not None and known.evidence is not None:
            return known
        trajectory = await house.roll(task, spec, seeds, EXPLORE)
        house.store.add(trajectory)
        return trajectory

    jobs = iter([(task, number) for number in range(tries) for task in tasks])
    under_way = deque(asyncio.create_task(one(*job)) for job in islice(jobs, house.concurrency))
    found: dict[str, list[Trajectory]] = {}
    wins, spent = 0, 0.0
    try:
        while under_way and (enough is None or wins < enough) and spent < max_cost:
            trajectory = await under_way[0]
            under_way.popleft()
            found.setdefault(trajectory.task.digest, []).append(trajectory)
            wins += counts(trajectory)
            spent += trajectory.usage.cost
            on(trajectory)
            under_way.extend(asyncio.create_task(one(*job)) for job in islice(jobs, 1))
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return [Group(task=runs[0].task, members=tuple(runs)) for runs in found.values()]


async def generation(
    house: House,
    groups: Sequence[Group],
    propose: Sequence[Propose],
    tasks: Sequence[Task],
    rule: Rule,
    *,
    max_cost: float | None = None,
    before: Callable[[Prepared], bool] = lambda _: True,
    on: Callable[[Change, Decision], None] = lambda change, decision: None,
) -> list[Verdict]:
    """One round: every proposal is tried against the head that is live by then, and settled.

    `before` sees each trial before it begins (to print its forecast) and may refuse it.
    """
    verdicts: list[Verdict] = []
    for proposer in propose:
        for change in await proposer(house.lineage.head().spec, groups, house.lineage.tried()):
            verdict = await consider(house, change, tasks, rule, max_cost=max_cost, before=before, on=on)
            if verdict is not None:
                verdicts.append(verdict)
    return verdicts


async def consider(
    house: House,
    change: Change,
    tasks: Sequence[Task],
    rule: Rule,
    *,
    max_cost: float | None = None,
    before: Callable[[Prepared], bool] = lambda _: True,
    on: Callable[[Change, Decision], None] = lambda change, decision: None,
) -> Verdict | None:
    """Try one change and settle the verdict; None when `before` refused."""
    prepared = await prepare(house, change, tasks, rule)
    if not before(prepared):
        return None
    verdict = await trial(house, prepared, max_cost=max_cost, on=lambda decision: on(change, decision))
    house.lineage.settle(change, verdict, prepared.candidate, prepared.revision)
    return verdict
