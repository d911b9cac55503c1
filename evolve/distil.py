"""Distil: a skill's own successes to an adapter that should carry it, and the Change that would put it in the text's place."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from evolve.change import Change, Edits, apply
from evolve.house import House
from evolve.loop import explore
from harness.errors import UsageError
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import Value
from rl.dataset import Ids, Row, rows
from rl.recipe import Adapter, Point, Recipe, Trained, training
from rl.shelf import Shelf
from skills.skill import Skill

LEAST: Final = 8
"""Correct runs below which nothing is trained."""
Train = Callable[[Sequence[Row], Recipe, str, Callable[[Point], None]], Awaitable[Trained]]
"""Rows, a recipe, the parent adapter's digest (empty: none) and who hears of each step, to an adapter on disk."""


@dataclass(frozen=True)
class Learning:
    """What turns runs into weights, handed over as callables: no tensor passes here."""

    base: str
    """Digest of the weights."""
    ids: Callable[[HarnessSpec], Ids]
    train: Train
    shelf: Shelf
    work: Path
    """Where unfinished trainings keep their checkpoints."""


class Course(Value):
    """How much is practised and how it is trained."""

    runs: Annotated[int, Field(ge=LEAST)] = 48
    """Correct runs to learn from."""
    tries: Annotated[int, Field(ge=1)] = 2
    """Runs of each train task, at most, until there are enough correct ones."""
    rounds: Annotated[int, Field(ge=1, le=2)] = 1
    """2: a second training goes on with the first adapter's own successes."""
    seed: int = 0
    recipe: Recipe = Recipe()


@dataclass(frozen=True)
class Distilled:
    adapter: Adapter
    change: Change
    matched: tuple[Adapter, Adapter] | None
    """Adapters of equally many correct runs: with the skill in the prompt, and without it; None: there were none without."""


async def distil(
    house: House,
    learning: Learning,
    skill: Skill,
    tasks: Sequence[Task],
    course: Course,
    *,
    head: HarnessSpec | None = None,
    reference: bool = True,
    on_run: Callable[[Trajectory], None] = lambda run: None,
    on_step: Callable[[str, Point], None] = lambda label, point: None,
) -> Distilled:
    """Practise train tasks with the skill in the prompt, and train an adapter on the correct runs as if it had not been there.

    `head`: the spec that is practised with, and that the Change is about; the live head's if nothing is said.
    `reference`: also train the two adapters of `Distilled.matched`. Nothing is run or trained twice: killed anywhere, the same
    call goes on. Raises UsageError when the skill is not active, or too few runs are correct; SplitError for tasks that may
    not be learned from.
    """
    head = head or house.lineage.head().spec
    if skill.digest not in house.bank.revision(head.bank).skills:
        raise UsageError(
            f"skill {skill.name} is {house.bank.status(skill.digest)}, not active: only what has earned its place in the prompt"
            " is trained into weights. `assay skills list` shows what is active"
        )
    begun = _Apprentice(house, learning, skill, course, on_run, on_step)
    correct = await begun.practised(head, tasks)
    name = head.policy.adapter
    adapter = await begun.trained(correct, head, name, "training", "the agent's own correct runs with the skill in its prompt")
    used = correct
    if course.rounds == 2:
        dropped = Change(name=skill.name, kind="retire", drops=(skill.digest,))
        student, _ = apply(dropped, _carrying(head, adapter), house.bank.revision(head.bank))
        own = await begun.practised(student, tasks)
        source = f"the correct runs of adapter {adapter.name[:12]} without the skill"
        adapter = await begun.trained(own, student, adapter.name, "second round", source)
        used = correct + own
    change = Change(
        name=skill.name, why=f"adapter {adapter.name[:12]} carries it", kind="retire", proposer="distil", drops=(skill.digest,),
        edits=Edits(policy=head.policy.replace(adapter=adapter.name)), runs=tuple(run.id for run in used),
    )  # fmt: skip
    return Distilled(adapter, change, await begun.reference(correct, head) if reference else None)


def _carrying(spec: HarnessSpec, adapter: Adapter) -> HarnessSpec:
    return spec.replace(policy=spec.policy.replace(adapter=adapter.name))


@dataclass(frozen=True)
class _Apprentice:
    """One skill on its way into weights."""

    house: House
    learning: Learning
    skill: Skill
    course: Course
    on_run: Callable[[Trajectory], None]
    on_step: Callable[[str, Point], None]

    async def practised(self, spec: HarnessSpec, tasks: Sequence[Task]) -> list[Trajectory]:
        """The first correct runs of train tasks under `spec`; where the skill is in its bank, of those that recalled it."""
        shown = bool(spec.bank) and self.skill.digest in self.house.bank.revision(spec.bank).skills

        def counts(run: Trajectory) -> bool:
            return run.success and (not shown or any(hint.id == self.skill.digest for hint in run.recalled.hints))

        course = self.course
        groups = await explore(
            self.house, tasks, spec=spec, tries=course.tries, enough=course.runs, counts=counts, seed=course.seed, on=self.on_run
        )
        runs = [run for group in groups for run in group.members]
        correct = [run for run in runs if counts(run)]
        if len(correct) < LEAST:
            raise UsageError(
                f"skill {self.skill.name}: {len(correct)} correct runs in {len(runs)} tries on train tasks, and training needs"
                f" {LEAST} at least; give more train tasks, or more --tries (now {course.tries})"
            )
        return correct

    async def trained(
        self, runs: Sequence[Trajectory], spec: HarnessSpec, parent: str, label: str, source: str, *, skill: bool = True
    ) -> Adapter:
        """The adapter of these runs, trained now or before."""
        learning, recipe = self.learning, self.course.recipe
        learnt: list[Row] = []
        for run in runs:
            tools = (await self.house.glance(run.task, spec)).tools
            learnt += rows(run, spec, tools, learning.ids(spec), without=(self.skill.digest,))
        name = training(recipe, learnt, learning.base, parent)
        if (known := learning.shelf.trained(name)) is not None:
            return known
        made = await learning.train(learnt, recipe, parent, lambda point: self.on_step(label, point))
        adapter = Adapter(
            base=learning.base, parent=parent, skill=self.skill.digest if skill else "", source=source,
            runs=tuple(run.id for run in runs), recipe=recipe, training=name, trained=made, created=datetime.now(UTC),
        )  # fmt: skip
        learning.shelf.put(adapter)
        shutil.rmtree(learning.work / name[:32], ignore_errors=True)
        return adapter

    async def reference(self, correct: Sequence[Trajectory], head: HarnessSpec) -> tuple[Adapter, Adapter] | None:
        """What the skill itself brought: equally many correct runs with it and without it, as far as the latter are stored."""
        dropped = Change(name=self.skill.name, kind="retire", drops=(self.skill.digest,))
        bare, _ = apply(dropped, head, self.house.bank.revision(head.bank))
        stored = self.house.store.of(split="train", spec=bare.digest, success=True)
        without = sorted(stored, key=lambda run: run.id)[: len(correct)]
        if not without:
            return None
        parent, many = head.policy.adapter, len(without)
        return (
            await self.trained(correct[:many], head, parent, "matched, with the skill", f"the first {many} of the correct runs"),
            await self.trained(without, bare, parent, "matched, without", f"{many} correct runs without the skill", skill=False),
        )
