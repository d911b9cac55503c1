"""Evolving on a user's own task file: what `assay evolve` does; killed anywhere, the same command goes on with the same round."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from api.alone import alone
from api.bench import Bench
from api.evidence import found, stored
from api.screen import Screen
from api.settings import Settings
from api.tasks import Workload, load
from api.wiring import Platform, drafter, opened
from api.work import first_spec, outcome
from evolve.change import Change
from evolve.gate import Rule
from evolve.house import House
from evolve.loop import explore, propose, unfinished
from evolve.propose import from_successes
from evolve.purse import Purse
from evolve.rounds import Round, Rounds, settled
from evolve.stale import latest, stale
from evolve.trial import STOPPED
from evolve.verdict import Verdict
from evolve.vigil import reopened, vigil
from harness.errors import Infrastructure, UsageError
from harness.task import Task
from rl.shelf import Shelf
from skills.draft import Refusal

DRAFTERS = ("worked", "contrast", "both")
NOTHING_STALE = "no active skill's evidence is stale"
NOTHING_PROPOSED = "nothing was tried: no full success on train tasks yet. More --tries, easier tasks, or --drafter contrast"


@dataclass(frozen=True)
class Evolution:
    """What `assay evolve` was asked for."""

    skill: str | None
    stale: bool
    examples: int
    tries: int
    drafter: str
    max_pairs: int
    max_cost: float
    smallest_effect: float
    margin: float
    cap: float | None
    campaign: int | None
    seed: int
    out: Path
    yes: bool

    @property
    def rule(self) -> Rule:
        """What each trial must show; a margin is for removals alone, and only `--stale` removes."""
        return Rule(
            smallest_effect=self.smallest_effect, max_pairs=self.max_pairs, cap=self.cap,
            margin=self.margin if self.stale else 0.0,
        )  # fmt: skip

    def command(self, tasks: Sequence[Task]) -> list[object]:
        """What makes it the same command: money, pairs and where the report goes may change from one time to the next."""
        asked = [self.skill, self.stale, self.examples, self.tries, self.drafter, self.seed, self.smallest_effect, self.margin]
        return ["evolve", *asked, sorted(task.digest for task in tasks)]


def evolve_tasks(settings: Settings, path: Path, plan: Evolution, *, as_json: bool) -> None:
    """One round on a task file, with a report; asks before it may spend money unless `--yes`."""
    if plan.drafter not in DRAFTERS:
        raise UsageError(f"--drafter {plan.drafter!r}: allowed are {', '.join(DRAFTERS)}")
    if plan.stale and not plan.margin:
        raise UsageError("--stale tries each skill's removal: say what it may cost in mean reward, such as --margin 0.1")
    workload = load(path)
    screen = Screen(quiet=as_json)
    for warning in workload.warnings:
        screen.say(f"warning: {warning}", style="yellow")
    train = [t for t in workload.tasks if t.split == "train"]
    validate = [t for t in workload.tasks if t.split == "validate"]
    if not train and plan.skill is None and not plan.stale:
        raise UsageError(
            f'{path} has no train task to learn from; add lines with "split": "train", or try a stored skill with --skill'
        )
    with alone(settings):
        verdicts = asyncio.run(_evolve(settings, workload, train, validate, plan, screen))
    if as_json:
        json.dump([v.model_dump(mode="json") for v in verdicts or ()], sys.stdout, indent=2)
    elif verdicts is not None and not verdicts:
        screen.say(NOTHING_STALE if plan.stale else NOTHING_PROPOSED)


async def _evolve(
    settings: Settings, workload: Workload, train: Sequence[Task], validate: Sequence[Task], plan: Evolution, screen: Screen
) -> list[Verdict] | None:
    """The verdicts of one round; None where the person did not agree to begin."""
    purse = Purse(plan.max_cost)
    async with opened(settings, workload, first_spec(settings), campaign=plan.campaign, purse=purse) as platform:
        house = platform.house
        bench = Bench(house, screen, plan.rule, plan.yes)
        if not bench.may_begin(settings):
            return None
        rounds = Rounds(house.lineage.database, settings.agent)
        command = plan.command(workload.tasks)
        now = rounds.under_way(command, house.lineage)
        if now is None and plan.skill is not None and (known := _active(house, plan.skill, screen)):
            return known
        if now is None:
            now = rounds.begin(command, house.lineage.head().number, _first(platform, plan, screen))
        elif now.changes:
            screen.say(f"going on with the round that was begun: {', '.join(change.name for change in now.changes)}")
        await bench.tried(now.begun, validate, settled(house.lineage, now))
        if _drafts(plan, now, bench):
            drafted = await _drafted(platform, train, plan, screen)
            now = now if purse.empty else rounds.propose(now.number, drafted)
        await bench.tried(now.drafted or (), validate, settled(house.lineage, now))
        bench.report(settings, plan.out)
        if _finished(now, bench):
            rounds.finish(now.number)
        return [bench.answers[change.digest] for change in now.changes if change.digest in bench.answers]


def _first(platform: Platform, plan: Evolution, screen: Screen) -> list[Change]:
    """What a round begins with: what was asked for by name, else what an alarm re-opened and what was left undecided."""
    house = platform.house
    if plan.skill is not None:
        return [stored(house, plan.skill)]
    seen = vigil(house.lineage, house.ledger, house.store)
    if plan.stale:
        queued = stale(house.lineage, house.weights, seen)
        for one in queued:
            screen.say(f"  stale: {one.name}: {one.why}")
        return [one.change for one in queued]
    if seen.alarm is not None:
        screen.say(f"ALARM, head {seen.head}: {seen.reason}", style="red")
    again = reopened(seen, Shelf(house.lineage.database), house.lineage)
    if seen.alarm is not None and again is None:
        screen.say("  it gave up no text that could come back; `assay evolve TASKS --stale --margin M` tries its skills again")
    begun = [change for change in unfinished(house) if again is None or change.effect != again.effect]
    if begun:
        screen.say(f"going on with what was begun and not decided: {', '.join(change.name for change in begun)}")
    return [*([again] if again else []), *begun]


def _active(house: House, wanted: str, screen: Screen) -> list[Verdict]:
    """The verdict of a skill that is in the prompt by one: it is told again, nothing is tried."""
    skill = found(house.bank, wanted)
    last = latest(house.lineage.verdicts(), skill.digest)
    if last is None or house.bank.status(skill.digest) != "active":
        return []
    screen.say(
        f"skill {skill.name} is active already (verdict {last.trial}). `assay skills retire {skill.name} TASKS.jsonl --margin M`"
        " asks whether it is still needed"
    )
    return [last]


def _drafts(plan: Evolution, now: Round, bench: Bench) -> bool:
    """Whether something new is to be proposed: not when the round moved the head already."""
    house = bench.house
    asked = plan.skill is None and not plan.stale
    return asked and now.drafted is None and house.lineage.head().number == now.head and not house.purse.empty


def _finished(now: Round, bench: Bench) -> bool:
    answered = [bench.answers.get(change.digest) for change in now.changes]
    return not bench.house.purse.empty and all(v is not None and v.code != STOPPED for v in answered)


async def _drafted(platform: Platform, train: Sequence[Task], plan: Evolution, screen: Screen) -> list[Change]:
    """Explore the train tasks, and draft from what happened."""
    with screen.bar("train tasks", plan.tries * len(train)) as step:
        groups = await explore(
            platform.house, train, tries=plan.tries, seed=plan.seed, on=lambda run: step(outcome(run))
        )  # fmt: skip
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
