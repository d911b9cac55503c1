"""Training on a user's own task file: what `assay train` does; killed anywhere, the same command goes on from where it was."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from api.alone import alone
from api.bench import Bench
from api.evidence import found
from api.report import Curve, Stage
from api.screen import Screen
from api.settings import Settings
from api.tasks import Workload, load
from api.wiring import Platform, learning, opened
from api.work import first_spec, outcome
from evolve.change import apply
from evolve.distil import Course, Distilled, Learning, distil
from evolve.foresee import foresee
from evolve.gate import Rule
from evolve.lineage import CARRIED
from evolve.measure import measure
from evolve.purse import Purse
from evolve.rounds import Round, Rounds, settled
from evolve.trial import STOPPED, prepare
from evolve.verdict import Verdict
from harness.spec import HarnessSpec
from harness.task import Task
from rl.recipe import Adapter
from rl.shelf import Shelf
from skills.skill import Skill

PRACTICE = "practice on train tasks"
MARGINS = (0.1, 0.15, 0.2)
"""What the forecast shows where no margin was stated."""


@dataclass(frozen=True)
class Training:
    """What `assay train` was asked for."""

    skill: str
    course: Course
    margin: float | None
    cap: float | None
    max_pairs: int
    max_cost: float
    reference: bool
    out: Path
    yes: bool

    @property
    def rule(self) -> Rule:
        """What the trial must show, once a margin is stated."""
        return Rule(margin=self.margin or 0.0, cap=self.cap, max_pairs=self.max_pairs)

    def command(self, skill: Skill, tasks: Sequence[Task]) -> list[object]:
        """What makes it the same command: money, pairs and where the report goes may change from one time to the next."""
        asked = [skill.digest, self.course.digest, self.margin, self.reference]
        return ["train", *asked, sorted(task.digest for task in tasks)]


@dataclass
class Result:
    """What came of it, as far as it came."""

    distilled: Distilled | None = None
    adapter: Adapter | None = None
    verdict: Verdict | None = None
    stages: list[Stage] = field(default_factory=list)

    def data(self) -> dict[str, object]:
        matched = self.distilled.matched if self.distilled else None
        return {
            "adapter": self.adapter.model_dump(mode="json") if self.adapter else None,
            "matched": [adapter.model_dump(mode="json") for adapter in matched or ()],
            "verdict": self.verdict.model_dump(mode="json") if self.verdict else None,
            "stages": [stage.model_dump(mode="json") for stage in self.stages],
        }


def train_tasks(settings: Settings, path: Path, plan: Training, *, as_json: bool) -> None:
    """Practise, train, and try the adapter in the text's place; without a margin it stops before the trial, with a forecast."""
    workload = load(path)
    screen = Screen(quiet=as_json)
    with alone(settings):
        result = asyncio.run(_train(settings, workload, plan, screen, path))
    if as_json:
        json.dump(result.data(), sys.stdout, indent=2)


async def _train(settings: Settings, workload: Workload, plan: Training, screen: Screen, path: Path) -> Result:
    result = Result()
    of = {split: [t for t in workload.tasks if t.split == split] for split in ("train", "validate", "test")}
    async with opened(settings, workload, first_spec(settings), purse=Purse(plan.max_cost)) as platform:
        house = platform.house
        skill = found(house.bank, plan.skill)
        rounds, command = Rounds(house.lineage.database, settings.agent), plan.command(skill, workload.tasks)
        now = rounds.under_way(command, house.lineage)
        if now is None:
            if _carried(platform, skill, result, screen):
                return result
            teacher = learning(settings, platform)
            now = rounds.begin(command, house.lineage.head().number, ())
        else:
            screen.say("going on with the training that was begun")
            teacher = learning(settings, platform)
        head = next(one.spec for one in house.lineage.heads() if one.number == now.head)
        distilled = await practise(platform, teacher, skill, of["train"], plan.course, screen, head, reference=plan.reference)
        result.distilled, result.adapter = distilled, distilled.adapter
        now = rounds.propose(now.number, [distilled.change])
        if plan.margin is None:
            await _margins(platform, distilled, of["validate"], plan, screen, path)
        else:
            await _tried(platform, Bench(house, screen, plan.rule, plan.yes), now, head, of, plan, result, settings)
        if plan.margin is None or (result.verdict is not None and result.verdict.code != STOPPED):
            rounds.finish(now.number)
    return result


async def _tried(
    platform: Platform, bench: Bench, now: Round, head: HarnessSpec, of: Mapping[str, Sequence[Task]], plan: Training,
    result: Result, settings: Settings,
) -> None:  # fmt: skip
    """The trial, the stages on test tasks, and the report."""
    distilled = result.distilled
    assert distilled is not None, "trials come after training"
    await bench.tried([distilled.change], of["validate"], settled(platform.house.lineage, now))
    result.verdict = bench.answers.get(distilled.change.digest)
    if result.verdict is not None and of["test"]:
        result.stages = await staged(platform, distilled, head, of["test"], bench.screen, plan.course.seed)
    bench.report(settings, plan.out, stages=tuple(result.stages), curves=curves(distilled))


def _carried(platform: Platform, skill: Skill, result: Result, screen: Screen) -> bool:
    """Whether a skill is in the weights already: then its adapter and its verdict are told again."""
    house = platform.house
    if house.bank.status(skill.digest) != "internalised":
        return False
    last = house.bank.history(skill.digest)[-1]
    result.verdict = next((v for v in house.lineage.verdicts() if v.trial == last.verdict and v.decision == "admit"), None)
    shelf = Shelf(house.lineage.database)
    result.adapter = next((a for a in shelf.all() if CARRIED.format(a.name) == last.reason), None)
    named = f"carried by adapter {result.adapter.name[:12]}" if result.adapter else last.reason
    screen.say(
        f"skill {skill.name} is internalised already, {named} (verdict {last.verdict}). `assay skills restore"
        f" {skill.name} TASKS.jsonl` asks whether its text should come back"
    )
    return True


async def practise(
    platform: Platform, teacher: Learning, skill: Skill, train: Sequence[Task], course: Course, screen: Screen, head: HarnessSpec,
    *, reference: bool,
) -> Distilled:  # fmt: skip
    """Distil with progress: tries, then the loss of each step."""
    tries = count(1)
    most = course.tries * len(train)
    with screen.steps() as progress:
        distilled = await distil(
            platform.house, teacher, skill, train, course, head=head, reference=reference,
            on_run=lambda run: progress(PRACTICE, next(tries), most, outcome(run)),
            on_step=lambda label, point: progress(label, point.step, course.recipe.steps, f"loss {point.loss:.4f}"),
        )  # fmt: skip
    adapter = distilled.adapter
    made = adapter.trained
    screen.say(
        f"  adapter {adapter.name[:12]}: {len(adapter.runs)} correct runs ({adapter.source}), {adapter.recipe.steps} steps in"
        f" {made.seconds:.0f} s, loss {made.curve[0].loss:.3f} to {made.curve[-1].loss:.4f}; kept step {made.kept}"
    )
    return distilled


async def staged(
    platform: Platform, distilled: Distilled, head: HarnessSpec, test: Sequence[Task], screen: Screen, seed: int
) -> list[Stage]:
    """Success on test tasks: with the text, with the adapter in its place, and with two adapters of equally many runs."""
    bare, _ = apply(distilled.change, head, platform.house.bank.revision(head.bank))
    stages = [("with skill", head, "the text in the prompt"), ("internalised", bare, f"weights: {distilled.adapter.source}")]
    if distilled.matched is not None:
        many = len(distilled.matched[1].runs)
        for adapter, label in zip(distilled.matched, ("with the skill", "without it"), strict=True):
            spec = bare.replace(policy=bare.policy.replace(adapter=adapter.name))
            stages.append((f"{many} runs {label}", spec, f"weights: {adapter.source}"))
    found = []
    for label, spec, source in stages:
        with screen.bar(f"{label}, test split", len(test)) as step:
            measured = await measure(platform.house, spec, test, len(test), label=label, seed=seed, on=lambda run: step(""))
        screen.measured(label, measured)
        found.append(Stage(name=label, measured=measured, source=source))
    return found


def curves(distilled: Distilled) -> tuple[Curve, ...]:
    """The losses of every training, for the report."""
    return tuple(Curve(name=f"adapter {a.name[:12]}", adapter=a) for a in (distilled.adapter, *(distilled.matched or ())))


async def _margins(
    platform: Platform, distilled: Distilled, validate: Sequence[Task], plan: Training, screen: Screen, path: Path
) -> None:
    """What a trial would need at several margins: the person states one."""
    for margin in MARGINS:
        rule = Rule(margin=margin, cap=1.0, max_pairs=plan.max_pairs)
        screen.forecast(foresee(platform.house, await prepare(platform.house, distilled.change, validate, rule)))
    screen.say(
        f"the adapter is stored, and nothing was tried. Say how much mean reward may be given away, and run it again: assay train"
        f" {path} --skill {plan.skill} --margin M (practice and training are not repeated)"
    )
