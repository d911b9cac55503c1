"""Stale: active skills whose evidence is about another policy than the live one; each is to be tried again, not trusted."""

from evolve.change import Change
from evolve.lineage import Lineage
from evolve.verdict import Verdict
from evolve.vigil import Vigil
from harness.value import Value


class Stale(Value):
    """One active skill that has to earn its place again."""

    skill: str
    """Digest."""
    name: str
    why: str
    occasion: str

    @property
    def change(self) -> Change:
        """Without it: admitted where that costs no more than the margin, rejected where the skill still earns its place."""
        return Change(
            name=self.name, why=self.why, kind="retire", drops=(self.skill,), occasion=self.occasion, proposer="stale"
        )  # fmt: skip


def stale(lineage: Lineage, weights: str = "", seen: Vigil | None = None) -> list[Stale]:
    """The head's active skills whose last settled verdict was under another policy, or which an alarm of `seen` is about.

    `weights` is the digest of the weights behind the model's name, where that is known. Skills that no verdict is about are
    unmeasured, which is another thing.
    """
    spec, verdicts = lineage.head().spec, lineage.verdicts()
    found = []
    for skill in lineage.bank.skills(spec.bank) if spec.bank else ():
        verdict = latest(verdicts, skill.digest)
        if verdict is None:
            continue
        if why := _differs(verdict, spec.policy.name, weights):
            occasion = f"stale: {spec.policy.name} {weights}".strip()
            found.append(Stale(skill=skill.digest, name=skill.name, why=why, occasion=occasion))
        elif seen is not None and seen.alarm is not None and seen.made is not None and skill.digest in seen.made.skills:
            found.append(Stale(skill=skill.digest, name=skill.name, why=seen.reason, occasion=seen.occasion))
    return found


def latest(verdicts: list[Verdict], skill: str) -> Verdict | None:
    """The last verdict that settled something about a skill."""
    about = [v for v in verdicts if skill in v.skills and v.decision != "indecisive" and v.pairs]
    return about[-1] if about else None


def _differs(verdict: Verdict, policy: str, weights: str) -> str:
    if verdict.policy != policy:
        return f"its evidence is about {_short(verdict.policy)}, the head has {_short(policy)}"
    if weights and verdict.weights and verdict.weights != weights:
        return f"its evidence is about weights {verdict.weights[:12]}, the head's are {weights[:12]}"
    return ""


def _short(policy: str) -> str:
    model, _, adapter = policy.partition("@")
    return f"{model} with adapter {adapter[:12]}" if adapter else f"{model} without an adapter"
