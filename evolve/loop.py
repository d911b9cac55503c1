"""The loop on one page: run, propose, try, decide, and the one back-edge, from a verdict to the next head."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count, islice

from evolve.change import Change
from evolve.gate import Decision, Rule
from evolve.house import Episode, House, Seeds
from evolve.seams import Propose
from evolve.trial import STOPPED, Prepared, prepare, trial
from evolve.verdict import Verdict
from harness.errors import SplitError
from harness.group import Group
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest

EXPLORE = "explore"
"""Arm of the runs that proposals are made from."""


async def explore(
    house: House,
    tasks: Sequence[Task],
    *,
    spec: HarnessSpec | None = None,
    tries: int = 1,
    enough: int | None = None,
    counts: Callable[[Trajectory], bool] = lambda run: run.success,
    seed: int = 0,
    on: Callable[[Trajectory], None] = lambda _: None,
) -> list[Group]:
    """Run train tasks under the live head, or `spec`, and store what happened: the raw material of proposals.

    Ends with the first `enough` runs that count (full successes, if nothing else is said) in the order of the tasks: neither
    the speed of an episode nor a restart changes what is learned from. Stored runs are neither repeated nor paid again; ends
    when the purse is empty.
    Raises SplitError for tasks that may not be learned from.
    """
    if wrong := {t.split for t in tasks} - {"train"}:
        raise SplitError(f"only train tasks may be explored; found {sorted(wrong)}")
    under = spec or house.lineage.head().spec

    async def one(task: Task, number: int) -> Trajectory:
        key = digest([seed, task.digest, number])
        seeds = Seeds(world=int(key[:14], 16), sampling=int(key[14:28], 16))
        ids = (house.once(EXPLORE, under.digest, key, attempt) for attempt in count())
        id = next(id for id in ids if (known := house.store.find(id)) is None or known.evidence is not None)
        return await house.run(Episode(task, under, seeds, EXPLORE, id))

    distinct = {task.digest: task for task in tasks}.values()
    jobs = iter([(task, number) for number in range(tries) for task in distinct])
    under_way = deque(asyncio.create_task(one(*job)) for job in islice(jobs, house.concurrency))
    found: dict[str, list[Trajectory]] = {}
    wins = 0
    try:
        while under_way and (enough is None or wins < enough) and not house.purse.empty:
            trajectory = await under_way[0]
            under_way.popleft()
            found.setdefault(trajectory.task.digest, []).append(trajectory)
            wins += counts(trajectory)
            on(trajectory)
            under_way.extend(asyncio.create_task(one(*job)) for job in islice(jobs, 1))
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return [Group(task=runs[0].task, members=tuple(runs)) for runs in found.values()]


def unfinished(house: House) -> list[Change]:
    """Changes whose trial against the live head was begun, and then stopped or killed: they come before anything new."""
    last = {verdict.trial: verdict.code for verdict in house.lineage.verdicts()}
    begun = house.ledger.changes(house.lineage.head().number)
    return [change for trial, change in begun.items() if last.get(trial, STOPPED) == STOPPED]


async def propose(house: House, groups: Sequence[Group], proposers: Sequence[Propose]) -> list[Change]:
    """What every proposer makes of the runs, in order."""
    spec, tried = house.lineage.head().spec, house.lineage.tried()
    return [change for proposer in proposers for change in await proposer(spec, groups, tried)]


async def generation(
    house: House,
    changes: Sequence[Change],
    tasks: Sequence[Task],
    rule: Rule,
    *,
    before: Callable[[Prepared], bool] = lambda _: True,
    on: Callable[[Change, Decision], None] = lambda change, decision: None,
    after: Callable[[Change, Verdict], None] = lambda change, verdict: None,
) -> list[Verdict]:
    """One round: each change is tried against the head that is live by then, and settled, until the purse is empty.

    `before` sees each trial before it begins (to print its forecast) and may refuse it; `after` sees its verdict.
    """
    verdicts: list[Verdict] = []
    for change in changes:
        if house.purse.empty:
            break
        verdict = await consider(house, change, tasks, rule, before=before, on=on)
        if verdict is not None:
            verdicts.append(verdict)
            after(change, verdict)
    return verdicts


async def consider(
    house: House,
    change: Change,
    tasks: Sequence[Task],
    rule: Rule,
    *,
    before: Callable[[Prepared], bool] = lambda _: True,
    on: Callable[[Change, Decision], None] = lambda change, decision: None,
) -> Verdict | None:
    """Try one change and settle the verdict; None when `before` refused."""
    prepared = await prepare(house, change, tasks, rule)
    if not before(prepared):
        return None
    verdict = await trial(house, prepared, on=lambda decision: on(change, decision))
    house.lineage.settle(change, verdict, prepared.candidate, prepared.revision)
    return verdict
