"""Proposers: from runs of the train split to Changes; each is a plain callable, and none writes anywhere."""

from collections.abc import Awaitable, Callable, Sequence

from evolve.change import Change
from evolve.seams import Propose
from evolve.verdict import Tried
from harness.group import Group
from harness.spec import HarnessSpec
from harness.trajectory import Trajectory
from skills.draft import Refusal, worked_example
from skills.skill import Skill

Contrast = Callable[[Trajectory, Trajectory], Awaitable[Skill | Refusal]]
"""A failure and a success to a skill, or the reason why there is none."""


def from_successes(examples: int = 3, name: str = "") -> Propose:
    """A worked-example skill from the agent's own first `examples` full successes, each of another task."""

    async def propose(spec: HarnessSpec, groups: Sequence[Group], tried: Sequence[Tried]) -> Sequence[Change]:
        wins = [run for group in groups for run in group.members if run.success and run.source == "policy"]
        chosen = list({run.task.digest: run for run in reversed(wins)}.values())[::-1][:examples]
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


def from_contrasts(contrast: Contrast, most: int = 3) -> Propose:
    """Skills that a model writes from a failure beside a success of the same task, at most `most` of them."""

    async def propose(spec: HarnessSpec, groups: Sequence[Group], tried: Sequence[Tried]) -> Sequence[Change]:
        changes: list[Change] = []
        for group in groups:
            failures = [run for run in group.members if run.evidence is not None and run.evidence < 1.0]
            successes = [run for run in group.members if run.success]
            if len(changes) == most or not failures or not successes:
                continue
            answer = await contrast(failures[0], successes[0])
            if isinstance(answer, Skill):
                runs = (failures[0].id, successes[0].id)
                changes.append(
                    Change(name=answer.name, why=answer.description, proposer="from_contrasts", drafts=(answer,), runs=runs)
                )
        return changes

    return propose
