"""Vigil: the live head, watched on its own verified runs since it became live; an alarm re-opens a question, it moves nothing."""

from datetime import datetime

from evolve.change import Change, Edits
from evolve.drift import RUN_LENGTH, Detector, floor, watched
from evolve.ledger import Ledger
from evolve.lineage import CARRIED, Head, Lineage
from evolve.verdict import Verdict
from harness.task import Split
from harness.trajectory import Trajectory
from harness.value import Value
from memory.store import Store
from rl.shelf import Shelf

USE = "run"
"""Arm of the runs that a head is watched on: its use, not its trials."""
FRESH = "fresh"
"""Arm of the episodes that re-measure an admission."""
SPLITS: tuple[Split, ...] = ("train", "validate")
"""Test runs inform people and change nothing."""


class Vigil(Value):
    """What is known of the live head in use."""

    head: int
    made: Verdict | None = None
    """What made the head; None: it was never measured, so there is nothing to fall below."""
    floor: float = 0.0
    runs: int = 0
    """Verified runs seen."""
    evidence: float = 0.0
    run_length: float = RUN_LENGTH
    """Alarm when the evidence reaches it: the mean number of runs to a false alarm, at least."""
    alarm: int | None = None
    """The run at which it was raised, counted from 1."""
    reason: str

    @property
    def occasion(self) -> str:
        return f"drift of head {self.head}, seen at run {self.alarm}"


def vigil(lineage: Lineage, ledger: Ledger, store: Store, run_length: float = RUN_LENGTH) -> Vigil:
    """The live head against what it was measured to do; every verified run that it was used for counts, in order of arrival."""
    head = lineage.head()
    made, held = _measured(lineage, head)
    if made is None:
        return Vigil(head=head.number, run_length=run_length, reason="never measured: there is nothing that it could fall below")
    if made.kind == "retire" and made.share < 1:
        return Vigil(
            head=head.number, made=made, run_length=run_length,
            reason=f"measured on {made.share:.0%} of the tasks only, and its runs do not show which they are",
        )  # fmt: skip
    last = held or made
    lowest = floor(_rewards(last, head, ledger, store))
    detector = watched(_used(made, head, store, max(head.created, last.created)), lowest, run_length)
    return Vigil(
        head=head.number, made=made, floor=lowest, runs=detector.seen, evidence=detector.evidence, run_length=run_length,
        alarm=detector.alarm, reason=_reason(detector),
    )  # fmt: skip


def reopened(seen: Vigil, shelf: Shelf, lineage: Lineage) -> Change | None:
    """After an alarm, the Change that would bring back what the head had given up; None where it had given up nothing."""
    made = seen.made
    if seen.alarm is None or made is None or made.kind != "retire":
        return None
    return restoring(made.name, made.skills, shelf, lineage, why=seen.reason, occasion=seen.occasion, proposer="drift")


def restoring(
    name: str, skills: tuple[str, ...], shelf: Shelf, lineage: Lineage, *, why: str, occasion: str = "", proposer: str = "human"
) -> Change:
    """The Change that brings texts back, and takes off the head's adapter where that carries them and was put on last."""
    policy = lineage.head().spec.policy
    bound = {moved.reason for digest in skills for moved in lineage.bank.history(digest)[-1:] if moved.status == "internalised"}
    edits = Edits()
    if policy.adapter and CARRIED.format(policy.adapter) in bound:
        edits = Edits(policy=policy.replace(adapter=shelf.get(policy.adapter).parent))
    return Change(name=name, why=why, kind="restore", restores=skills, edits=edits, occasion=occasion, proposer=proposer)


def _measured(lineage: Lineage, head: Head) -> tuple[Verdict | None, Verdict | None]:
    """The verdict that made the head, and the last one in which it held its place against what that was about."""
    known = [v for v in lineage.verdicts() if v.pairs]
    made = [v for v in known if v.trial == head.trial and v.decision == "admit" and v.candidate == head.spec.digest]
    about = set(made[-1].skills) if made else set[str]()
    held = [v for v in known if v.head == head.number and v.decision == "reject" and about & set(v.skills)]
    return made[-1] if made else None, held[-1] if held else None


def _rewards(verdict: Verdict, head: Head, ledger: Ledger, store: Store) -> list[float]:
    """What the head earned in its trial, then on the fresh pairs after it."""
    as_candidate = verdict.candidate == head.spec.digest
    trial = [pair[as_candidate] for pair in ledger.values(verdict.trial, verdict.pairs)]
    fresh = store.of(split="validate", spec=head.spec.digest, arm=FRESH)
    later = sorted((run for run in fresh if run.created > verdict.created), key=lambda run: run.id)
    return trial + [run.evidence for run in later if run.evidence is not None]


def _used(made: Verdict, head: Head, store: Store, since: datetime) -> list[float]:
    """Rewards of the head's verified runs that that verdict is about."""
    runs = [run for split in SPLITS for run in store.of(split=split, spec=head.spec.digest, arm=USE) if run.created > since]
    ordered = sorted(runs, key=lambda run: (run.created, run.id))
    return [run.evidence for run in ordered if run.evidence is not None and _concerns(made, run)]


def _concerns(made: Verdict, run: Trajectory) -> bool:
    return made.share == 1 or any(hint.id in made.skills for hint in run.recalled.hints)


def _reason(detector: Detector) -> str:
    if detector.alarm is not None:
        return (
            f"mean reward fell below {detector.floor:.3f}, which the head had been measured to reach: noticed at run"
            f" {detector.alarm} since (a steady head gives a false alarm once in {detector.run_length:,.0f} runs at most)"
        )
    return f"no sign of a fall below {detector.floor:.3f} in {detector.seen} runs"
