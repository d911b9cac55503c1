"""The demo's second half: a skill moves from the prompt into weights, the text goes, drift is planted, the text comes back."""

from collections.abc import Sequence
from dataclasses import dataclass

from api.evidence import told
from api.report import Candidate, Curve, Stage
from api.screen import Screen
from api.settings import Settings
from api.train import curves, practise, staged
from api.wiring import Given, Platform, learning
from evolve.change import Change
from evolve.distil import Course, Distilled
from evolve.foresee import foresee
from evolve.gate import Rule
from evolve.house import Episode, Seeds
from evolve.loop import consider
from evolve.remeasure import Remeasured, remeasure
from evolve.rollouts import rollouts
from evolve.trial import Prepared
from evolve.verdict import Verdict
from evolve.vigil import USE, Vigil, reopened, vigil
from harness.errors import UsageError
from harness.message import Completion, Message
from harness.policy import Policy, Sampling
from harness.seams import Model
from harness.task import Task
from harness.tool import Tool
from harness.value import digest
from rl.shelf import Shelf
from skills.skill import Skill

RETIRE = Rule(margin=0.15, max_pairs=300)
RESTORE = Rule(max_pairs=300)
USED = 32
"""Runs between two looks at the head in use."""
LONGEST = 320
"""Runs after which a planted drift that nobody noticed is the story's failure."""


@dataclass(frozen=True)
class Internalised:
    """What the chapter's first part left behind."""

    distilled: Distilled
    row: Candidate
    fresh: tuple[Remeasured, ...]
    stages: tuple[Stage, ...]
    curves: tuple[Curve, ...]


async def trial(platform: Platform, screen: Screen, change: Change, validate: Sequence[Task], rule: Rule) -> Verdict:
    """One trial, forecast and told."""

    def before(prepared: Prepared) -> bool:
        screen.forecast(foresee(platform.house, prepared))
        return True

    with screen.trial(rule.max_pairs) as on:
        verdict = await consider(platform.house, change, validate, rule, before=before, on=on)
    assert verdict is not None, "nobody refused this trial"
    screen.verdict(verdict)
    return verdict


async def internalise(
    platform: Platform,
    settings: Settings,
    screen: Screen,
    skill: Skill,
    train: Sequence[Task],
    validate: Sequence[Task],
    test: Sequence[Task],
    seed: int,
) -> Internalised:
    """Distil, try the adapter in the text's place, and measure it on test tasks."""
    house = platform.house
    screen.title("Know-how into weights")
    course = Course(seed=seed)
    head = house.lineage.head().spec
    distilled = await practise(platform, learning(settings, platform), skill, train, course, screen, head, reference=True)
    verdict = await trial(platform, screen, distilled.change, validate, RETIRE)
    fresh: tuple[Remeasured, ...] = ()
    if verdict.decision == "admit":
        again = await remeasure(house, f"{skill.name}, in weights", head, house.lineage.head().spec, validate)
        screen.fresh(again)
        fresh = (again,)
    screen.title("What the shorter prompt is worth, on test tasks")
    stages = (await staged(platform, distilled, head, test, screen, seed))[1:]
    source = f"weights: {distilled.adapter.source}"
    return Internalised(
        distilled, told(house, distilled.change, verdict, RETIRE, source), fresh, tuple(stages), curves(distilled)
    )


async def use(platform: Platform, screen: Screen, tasks: Sequence[Task], label: str, most: int, seed: int) -> Vigil:
    """Use the live head on tasks as `assay run` does, a few at a time, until an alarm or `most` runs."""
    house, spec = platform.house, platform.house.lineage.head().spec
    seen = vigil(house.lineage, house.ledger, house.store)
    with screen.bar(label, most) as step:
        for first in range(0, most, USED):
            places = range(first, min(first + USED, most))
            keys = [digest([label, seed, place]) for place in places]
            chosen = [tasks[place % len(tasks)] for place in places]
            await rollouts(
                house,
                [
                    Episode(task, spec, Seeds(world=int(key[:14], 16), sampling=int(key[14:28], 16)), USE)
                    for task, key in zip(chosen, keys, strict=True)
                ],
                on=lambda run: step(""),
            )
            seen = vigil(house.lineage, house.ledger, house.store)
            if seen.alarm is not None:
                break
    screen.say(f"  {label}: {seen.reason}", style="red" if seen.alarm is not None else "")
    return seen


async def restored(platform: Platform, screen: Screen, seen: Vigil, validate: Sequence[Task]) -> Candidate:
    """What the alarm re-opened, tried; raises UsageError where there was no alarm."""
    house = platform.house
    change = reopened(seen, Shelf(house.lineage.database), house.lineage)
    if change is None:
        raise UsageError(f"the planted drift raised no alarm in {seen.runs} runs: evidence {seen.evidence:.1f}")
    verdict = await trial(platform, screen, change, validate, RESTORE)
    return told(house, change, verdict, RESTORE, f"the alarm: {seen.reason}")


class Forgetful:
    """The planted drift: a model that serves its bare weights under whatever adapter's name is asked for."""

    def __init__(self, inner: Model, version: str) -> None:
        self.inner, self.version = inner, version

    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        """The bare weights' answer, as if it were the adapter's."""
        answer = await self.inner.complete(policy.replace(adapter=""), messages, tools, sampling)
        said = f"{self.version}@{policy.adapter}" if policy.adapter else self.version
        return answer.replace(tokens=answer.tokens.replace(version=said))

    async def close(self) -> None:
        """End the model underneath."""
        await self.inner.close()  # type: ignore[attr-defined]


def forgetful(given: Given) -> Given:
    """The same model with the drift planted."""
    inner, scorer, owned = given
    return Forgetful(inner, str(getattr(inner, "version", ""))), scorer, owned
