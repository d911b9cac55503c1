"""Proposers: from runs of the train split to Changes; each is a plain callable, and none writes anywhere."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from evolve.change import Change
from evolve.seams import Propose
from evolve.verdict import Tried
from harness.group import Group
from harness.spec import HarnessSpec
from harness.trajectory import Trajectory
from skills.draft import Refusal, worked_example
from skills.skill import Skill

ASKED: Final = 3
"""Failures that are shown for each draft that is wanted, before a model that writes nothing usable is left in peace."""
Contrast = Callable[[Trajectory, Sequence[Trajectory]], Awaitable[Skill | Refusal]]
"""A failure and the successes at hand to a skill made of it and the nearest of them, or to the reason why there is none."""


def clean(run: Trajectory) -> bool:
    """A full success on whose way nothing failed: an example without fumbles."""
    return run.success and not any(step.observation.error for step in run.steps)


def from_successes(examples: int = 3, name: str = "") -> Propose:
    """A worked-example skill from the agent's own first `examples` full successes, each of another task, clean ones first."""

    async def propose(spec: HarnessSpec, groups: Sequence[Group], tried: Sequence[Tried]) -> Sequence[Change]:
        wins = [run for group in groups for run in group.members if run.success and run.source == "policy"]
        each = list({run.task.digest: run for run in reversed(wins)}.values())[::-1]
        chosen = sorted(each, key=lambda run: not clean(run))[:examples]
        if not chosen:
            return ()
        skill = worked_example(chosen, name=name)
        change = Change(
            name=skill.name, why=f"the agent's own first {len(chosen)} successes, as worked examples", proposer="from_successes",
            drafts=(skill,), runs=tuple(run.id for run in chosen),
        )  # fmt: skip
        decided = {t.change for t in tried if t.decision != "indecisive"}
        return () if change.digest in decided else (change,)

    return propose


def from_contrasts(contrast: Contrast, most: int = 3, refused: Callable[[Refusal], None] = lambda _: None) -> Propose:
    """Skills that a model writes from a failure beside the nearest success, at most `most`, each from another task.

    `refused` hears why an answer was no skill.
    """

    async def propose(spec: HarnessSpec, groups: Sequence[Group], tried: Sequence[Tried]) -> Sequence[Change]:
        runs = [run for group in groups for run in group.members]
        successes = [run for run in runs if run.success]
        failures = list({run.task.digest: run for run in runs if run.evidence is not None and run.evidence < 1.0}.values())
        changes: list[Change] = []
        for failure in failures[: ASKED * most] if successes else ():
            answer = await contrast(failure, successes)
            if isinstance(answer, Skill):
                changes.append(
                    Change(
                        name=answer.name, why=answer.description, proposer="from_contrasts", drafts=(answer,),
                        runs=answer.provenance.runs,
                    )
                )  # fmt: skip
            else:
                refused(answer)
            if len(changes) == most:
                break
        return changes

    return propose
