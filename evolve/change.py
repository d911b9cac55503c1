"""Change: a proposal with its drafts inside, and what it makes of a spec; whether it is any good is for the trial."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from harness.errors import UsageError
from harness.policy import Policy
from harness.spec import HarnessSpec, Limits, Prompts, RecallSizes
from harness.value import Value, digest
from skills.bank import Revision
from skills.skill import Skill

Kind = Literal["add", "retire", "restore"]


class Edits(Value):
    """Fields of the spec that the change replaces; None leaves one alone."""

    policy: Policy | None = None
    prompts: Prompts | None = None
    tool_descriptions: Mapping[str, str] | None = None
    thinking: str | None = None
    guard: str | None = None
    recall: RecallSizes | None = None
    limits: Limits | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name in Edits.model_fields if (value := getattr(self, name)) is not None}


class Change(Value):
    name: str
    why: str = ""
    kind: Kind = "add"
    """Which stream of the error budget pays for its trial."""
    proposer: str = "human"
    drafts: tuple[Skill, ...] = ()
    """Skills that it adds: they ride inside, for proposers write nowhere else."""
    drops: tuple[str, ...] = ()
    """Digests of active skills that it removes from the prompt."""
    restores: tuple[str, ...] = ()
    """Digests of stored skills that it brings back."""
    edits: Edits = Edits()
    runs: tuple[str, ...] = ()
    """Trajectories that it was made from; all of the train split."""
    occasion: str = ""
    """What re-opened a question that may have been answered before, such as an alarm; empty: asked for the first time."""

    @model_validator(mode="after")
    def _says_something(self) -> "Change":
        if not (self.drafts or self.drops or self.restores or self.edits.given()):
            raise ValueError(f"change {self.name!r} changes nothing: give drafts, drops, restores or edits")
        return self

    @property
    def effect(self) -> str:
        """Digest of what it does, whoever proposed it and why; another occasion asks again."""
        drafts = sorted(skill.digest for skill in self.drafts)
        effect = [self.kind, drafts, sorted(self.drops), sorted(self.restores), self.edits.digest]
        return digest([*effect, self.occasion] if self.occasion else effect)

    @property
    def replaces(self) -> bool:
        """Weights take the place of a text."""
        return self.kind == "retire" and bool(self.drops) and self.edits.policy is not None

    @property
    def reach(self) -> Literal["prompt", "everywhere", "unseen"]:
        """Where it can be seen beforehand: in a task's first prompt, on every task (other weights), or not at all."""
        given = set(self.edits.given())
        if "policy" in given:
            return "everywhere"
        return "unseen" if given & {"thinking", "guard", "limits"} else "prompt"


def apply(change: Change, spec: HarnessSpec, revision: Revision) -> tuple[HarnessSpec, Revision]:
    """The candidate's spec and bank revision; pure.

    Raises UsageError when a draft is there already, or a dropped skill is not.
    """
    held = set(revision.skills)
    added = {skill.digest for skill in change.drafts} | set(change.restores)
    if doubled := sorted(held & added):
        raise UsageError(f"change {change.name!r} adds what the head has already: {', '.join(d[:12] for d in doubled)}")
    if missing := sorted(set(change.drops) - held):
        raise UsageError(f"change {change.name!r} drops what the head does not have: {', '.join(d[:12] for d in missing)}")
    after = Revision(skills=tuple(sorted((held - set(change.drops)) | added)))
    edited = spec.replace(**change.edits.given())
    return edited.replace(bank=after.digest if after.skills else ""), after
