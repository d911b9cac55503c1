"""Training on a user's own task file: what `assay train` does; killed anywhere, the same command goes on from where it was."""

import asyncio
import json
import sys
from collections.abc import Sequence
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
from evolve.trial import prepare
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
    purse = Purse(plan.max_cost)
    async with opened(settings, workload, first_spec(settings), purse=purse) as platform:
        house = platform.house
        skill = found(house.bank, plan.skill)
        if said := carried(platform, skill):
            screen.say(said)
            verdicts = {v.trial: v for v in house.lineage.verdicts()}
            result.verdict = verdicts.get(house.bank.history(skill.digest)[-1].verdict)
            shelf, bound = Shelf(house.lineage.database), house.bank.history(skill.digest)[-1].reason
            result.adapter = next((a for a in shelf.all() if CARRIED.format(a.name) == bound), None)
            return result
        teacher = learning(settings, platform)
        result.distilled = await practise(platform, teacher, skill, of["train"], plan.course, screen, reference=plan.reference)
        result.adapter = result.distilled.adapter
        if plan.margin is None:
            await _margins(platform, result.distilled, of["validate"], plan, screen, path)
            return result
        head = house.lineage.head().spec
        rule = Rule(margin=plan.margin, cap=plan.cap, max_pairs=plan.max_pairs)
        bench = Bench(house, screen, rule, plan.yes)
        await bench.tried([result.distilled.change], of["validate"])
        result.verdict = bench.answers.get(result.distilled.change.digest)
        if result.verdict is not None and of["test"]:
            result.stages = await staged(platform, result.distilled, head, of["test"], screen, plan.course.seed)
        bench.report(settings, plan.out, stages=tuple(result.stages), curves=curves(result.distilled))
        return result


def carried(platform: Platform, skill: Skill) -> str:
    """Who carries a skill that is in the weights already; empty: it is not."""
    house = platform.house
    if house.bank.status(skill.digest) != "internalised":
        return ""
    last = house.bank.history(skill.digest)[-1]
    return (
        f"skill {skill.name} is internalised already, {last.reason[:31]} (verdict {last.verdict}). `assay skills restore"
        f" {skill.name} TASKS.jsonl` asks whether its text should come back"
    )


async def practise(
    platform: Platform, teacher: Learning, skill: Skill, train: Sequence[Task], course: Course, screen: Screen, *, reference: bool
) -> Distilled:
    """Distil with progress: tries, then the loss of each step."""
    tries = count(1)
    most = course.tries * len(train)
    with screen.steps() as progress:
        distilled = await distil(
            platform.house, teacher, skill, train, course, reference=reference,
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
