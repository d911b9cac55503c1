"""Verdict: the measured answer to a Change, with everything that a reader needs to doubt it; `gate` decides, this records."""

from datetime import datetime
from typing import Literal

from evolve.change import Kind
from evolve.questions import Answered
from evolve.watch import Watched
from harness.message import Usage
from harness.value import Value

Answer = Literal["admit", "reject", "indecisive"]


class Arm(Value):
    """One side of the pairs that were judged."""

    success: float | None = None
    """Mean reward."""
    episodes: int = 0
    failures: int = 0
    """Attempts that met an infrastructure failure and were repeated with the same seeds."""
    usage: Usage = Usage()


class Verdict(Value):
    trial: str
    change: str
    """Digest of the Change."""
    name: str
    kind: Kind
    head: int
    """Number of the head that it was tried against."""
    incumbent: str
    candidate: str
    """Digests of the two specs."""
    decision: Answer
    code: str
    """Machine-readable reason: all that a proposer learns besides the decision."""
    reason: str
    effect: float = 0.0
    """Mean difference in reward, candidate less incumbent, over the tasks concerned; biased upwards at stopping."""
    low: float = -1.0
    high: float = 1.0
    """One-sided running bounds: admitted if and only if `low` exceeds minus the margin."""
    band: tuple[float, float] = (-1.0, 1.0)
    """Two-sided 95 % confidence sequence; not the decision level."""
    e_value: float = 1.0
    pairs: int = 0
    level: float | None = None
    """Error level that the budget granted; None when no pair was needed."""
    index: int | None = None
    """Place in its stream of the error budget."""
    share: float = 0.0
    """Share of the validate tasks whose first prompt the change touches."""
    drawn: int = 0
    """Distinct tasks among the pairs."""
    activations: int | None = None
    """For changes that cannot be seen beforehand: episodes in which they acted."""
    before: Arm = Arm()
    after: Arm = Arm()
    neither: Arm = Arm()
    """Where weights replace a text: the arm without both."""
    answers: tuple[Answered, ...] = ()
    """Every question of the trial; the first is the one that `effect` and the bounds are about."""
    margin: float = 0.0
    """Mean reward that a removal may give away."""
    policy: str = ""
    """`model@adapter` of the candidate: the evidence is about this policy and no other."""
    weights: str = ""
    """Digest of the weights behind that name, where they are ours to digest."""
    skills: tuple[str, ...] = ()
    """Digests of the skills that it is about."""
    watched: tuple[Watched, ...] = ()
    seconds: float = 0.0
    """Wall time of the run that ended with this verdict; the arms' own seconds overlap."""
    created: datetime

    @property
    def overall(self) -> float:
        """Effect over the whole split: effect where it applies, times the share of tasks concerned."""
        return self.effect * self.share

    @property
    def spent(self) -> Usage:
        return self.before.usage + self.after.usage + self.neither.usage


class Tried(Value):
    """All that a proposer learns of an earlier proposal: never effects, never pairs."""

    change: str
    name: str
    decision: Answer
    code: str
