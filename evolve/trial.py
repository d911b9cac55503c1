"""The trial: a change against the live head, matched arms on the validate split; it answers and moves nothing."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from scipy.stats import fisher_exact

from evolve.arms import Paused
from evolve.budget import Grant
from evolve.change import Change, Edits, apply
from evolve.debt import afford
from evolve.gate import Decision, Rule, decide
from evolve.house import House
from evolve.ledger import Opened, Rollout
from evolve.pairs import Pairs
from evolve.questions import Judged, Side, asked
from evolve.verdict import Answer, Arm, Verdict
from harness.errors import SplitError, UsageError
from harness.message import Usage
from harness.spec import HarnessSpec
from harness.task import Task
from harness.value import digest
from skills.bank import Revision

SUSPICION = 0.01
"""Level of the test that both arms met infrastructure failures equally often (Fisher's exact test)."""

STOPPED = "stopped"
"""Code of a verdict that money ended and not the gate."""


@dataclass(frozen=True)
class Prepared:
    """A trial that could begin: nothing has been paid, no index of the budget is taken."""

    id: str
    change: Change
    head: int
    incumbent: HarnessSpec
    candidate: HarnessSpec
    revision: Revision
    tasks: tuple[Task, ...]
    concerned: frozenset[str]
    """Digests of the tasks that the change can touch."""
    neither: HarnessSpec | None
    """Where weights replace a text: the head without the text."""
    spoken: frozenset[str]
    """Digests of the tasks that the replaced text speaks to."""
    rule: Rule
    opened: Opened | None
    grant: Grant
    """What the trial has, or would get."""
    duplicate: str = ""
    """Which draft the head has already, under whatever name; empty: none."""

    @property
    def pool(self) -> str:
        """Digest of the tasks, whatever their order."""
        return digest(sorted(t.digest for t in self.tasks))

    @property
    def share(self) -> float:
        return sum(t.digest in self.concerned for t in self.tasks) / len(self.tasks)


async def prepare(house: House, change: Change, tasks: Sequence[Task], rule: Rule) -> Prepared:
    """Check a change against the live head and find the tasks that it concerns, at no model cost.

    Raises SplitError when `tasks` are not all of the validate split, or the change was made from other runs than
    train; UsageError when a tool has `world` effects, since a trial would cause them for real, many times, and for a
    removal without a margin or beyond the cap of what removals may give away.
    """
    wrong = sorted({t.split for t in tasks} - {"validate"})
    if wrong or not tasks:
        raise SplitError(f"a trial draws from validate tasks alone; found {len(tasks)} tasks, of splits {wrong or 'none'}")
    for run in change.runs:
        if (source := house.store.get(run).task.split) != "train":
            raise SplitError(f"change {change.name!r} was made from run {run} of the {source} split: learn from train alone")
    if change.kind == "retire":
        afford(change, rule, house.lineage.verdicts())
    head = house.lineage.head()
    revision = house.bank.revision(head.spec.bank)
    pool = digest(sorted(t.digest for t in tasks))
    trial = digest([head.number, head.spec.digest, change.effect, pool])[:32]
    opened = house.ledger.trial(trial)
    grant = opened.grant if opened else house.budget.peek(change.kind)
    if duplicate := _duplicate(house, change, head.spec):
        return Prepared(
            id=trial, change=change, head=head.number, incumbent=head.spec, candidate=head.spec, revision=revision,
            tasks=tuple(tasks), concerned=frozenset(), neither=None, spoken=frozenset(), rule=rule, opened=opened, grant=grant,
            duplicate=duplicate,
        )  # fmt: skip
    neither = apply(change.replace(edits=Edits()), head.spec, revision)[0] if change.replaces else None
    candidate, revision = apply(change, head.spec, revision)
    if opened is None:
        with house.lineage.database.write() as session:
            for skill in change.drafts:
                house.bank.put(session, skill)
            house.bank.put_revision(session, revision)
    concerned = await _concerned(house, head.spec, candidate, tasks, everywhere=change.reach != "prompt")
    spoken = await _concerned(house, head.spec, neither, tasks, everywhere=False) if neither else frozenset[str]()
    return Prepared(
        id=trial, change=change, head=head.number, incumbent=head.spec, candidate=candidate, revision=revision,
        tasks=tuple(tasks), concerned=concerned, neither=neither, spoken=spoken, rule=rule, opened=opened, grant=grant,
    )  # fmt: skip


async def trial(house: House, prepared: Prepared, *, on: Callable[[Decision], None] = lambda _: None) -> Verdict:
    """Run the pairs that are still missing, as few as the gate needs, and answer.

    Stopping anywhere (Ctrl-C, a kill, an empty purse) loses no finished rollout, and calling again goes on
    from there with the old grant. Raises Paused when an arm's infrastructure failed three times in a row.
    """
    if prepared.duplicate:
        return _verdict(prepared, None, None, decide([], prepared.rule), "reject", "duplicate", prepared.duplicate)
    if not prepared.concerned or (prepared.neither is not None and not prepared.spoken):
        reason = f"never recalled: no first prompt of {len(prepared.tasks)} validate tasks differs"
        return _verdict(prepared, None, None, decide([], prepared.rule), "reject", "never_recalled", reason)
    opened = prepared.opened or house.ledger.open(
        prepared.id, prepared.change, prepared.head, prepared.pool, house.budget, owned=house.owned
    )
    pairs = _pairs(house, prepared, opened)
    began = monotonic()
    try:
        judged = await pairs.run(lambda now: on(now.first))
    except Paused as paused:
        if unequal := _unequal(pairs):
            return _verdict(
                prepared, opened, pairs, pairs.judged().first, "indecisive", "unequal_failures", f"{unequal}; {paused}"
            )
        raise
    return _weighed(house, prepared, opened, pairs, judged).replace(seconds=monotonic() - began)


def _pairs(house: House, prepared: Prepared, opened: Opened) -> Pairs:
    arms: dict[Side, HarnessSpec] = {"incumbent": prepared.incumbent, "candidate": prepared.candidate}
    concerned: dict[Side, frozenset[str]] = dict.fromkeys(arms, prepared.concerned)
    if prepared.neither is not None:
        arms["neither"], concerned["neither"] = prepared.neither, prepared.spoken
    questions = asked(prepared.rule, replaces=prepared.neither is not None)
    return Pairs(house, opened, arms, concerned, prepared.tasks, questions, prepared.rule)


def _weighed(house: House, prepared: Prepared, opened: Opened, pairs: Pairs, judged: Judged) -> Verdict:
    """The gate's answer, unless something else forbids it."""
    decision = judged.first
    if unequal := _unequal(pairs):
        return _verdict(prepared, opened, pairs, decision, "indecisive", "unequal_failures", unequal)
    for watched in pairs.watched():
        if judged.decision == "admit" and watched.veto:
            return _verdict(prepared, opened, pairs, decision, "reject", "veto", watched.reason)
        if judged.decision == "admit" and watched.holds_back:
            return _verdict(prepared, opened, pairs, decision, "indecisive", "required", watched.reason)
    if judged.code == "undecided":
        spent = f"{house.purse.spent:.2f} of {house.purse.limit:.2f} USD are spent"
        reason = f"stopped after {len(pairs.complete)} pairs: {spent}; run it again to go on from there"
        return _verdict(prepared, opened, pairs, decision, "indecisive", STOPPED, reason)
    return _verdict(prepared, opened, pairs, decision, judged.decision, judged.code, judged.reason)


def _duplicate(house: House, change: Change, spec: HarnessSpec) -> str:
    active = {skill.content: skill.name for skill in house.bank.skills(spec.bank)}
    said = [f"{draft.name!r} says what {active[draft.content]!r} says" for draft in change.drafts if draft.content in active]
    return f"the head has it already: {'; '.join(said)}" if said else ""


async def _concerned(
    house: House, incumbent: HarnessSpec, candidate: HarnessSpec, tasks: Sequence[Task], *, everywhere: bool
) -> frozenset[str]:
    """Digests of the tasks whose first prompt differs; all of them where `everywhere` something may differ."""
    distinct = {t.digest: t for t in tasks}
    looks = {}
    for spec in (incumbent, candidate):
        looks[spec.digest] = await asyncio.gather(*(house.glance(task, spec) for task in distinct.values()))
    dangerous = {t.name for seen in looks.values() for look in seen for t in look.tools if t.effect == "world"}
    if dangerous:
        lines = "; ".join(f'"effects": {{"{name}": "episode"}}' for name in sorted(dangerous))
        raise UsageError(
            f"a trial would run these tools with `world` effects for real, many times: {', '.join(sorted(dangerous))}. Where a"
            f' tool changes only what its own episode owns, declare it with @tool(effect="episode"), or add to its task: {lines}'
        )
    if everywhere:
        return frozenset(distinct)
    before, after = looks[incumbent.digest], looks[candidate.digest]
    return frozenset(d for d, old, new in zip(distinct, before, after, strict=True) if old.prompt != new.prompt)


def _unequal(pairs: Pairs) -> str:
    """Why the arms' infrastructure failures are suspicious; empty when they are not."""
    (failed, fine), (failed_after, fine_after) = pairs.attempts()
    chance = float(fisher_exact([[failed, fine], [failed_after, fine_after]]).pvalue)
    if chance >= SUSPICION:
        return ""
    return (
        f"infrastructure failed {failed} of {failed + fine} attempts of the incumbent and {failed_after} of"
        f" {failed_after + fine_after} of the candidate (p = {chance:.1g}): repeating them would favour one arm"
    )


def _verdict(
    prepared: Prepared, opened: Opened | None, pairs: Pairs | None, decision: Decision, answer: Answer, code: str, reason: str
) -> Verdict:
    judged = pairs.complete[: decision.pairs] if pairs else []
    acted = [p.candidate.watched.get("corrected", 0.0) > 0 for p in judged]
    return Verdict(
        trial=prepared.id, change=prepared.change.digest, name=prepared.change.name, kind=prepared.change.kind,
        head=prepared.head, incumbent=prepared.incumbent.digest, candidate=prepared.candidate.digest,
        decision=answer, code=code, reason=reason, effect=decision.effect, low=decision.low, high=decision.high,
        band=decision.band, e_value=decision.e_value, pairs=decision.pairs,
        level=opened.grant.level if opened else None, index=opened.grant.index if opened else None,
        share=prepared.share, drawn=len({p.draw.task.digest for p in judged}),
        activations=sum(acted) if prepared.change.edits.guard is not None else None,
        before=_arm([p.incumbent for p in judged]), after=_arm([p.candidate for p in judged]),
        neither=_arm([p.rollouts["neither"] for p in (pairs.complete if pairs else ()) if "neither" in p.rollouts]),
        answers=pairs.judged().answers if pairs else (), margin=prepared.rule.margin, policy=prepared.candidate.policy.name,
        weights=pairs.house.weights if pairs else "",
        skills=(*(skill.digest for skill in prepared.change.drafts), *prepared.change.restores, *prepared.change.drops),
        watched=pairs.watched() if pairs else (), created=datetime.now(UTC),
    )  # fmt: skip


def _arm(rollouts: list[Rollout]) -> Arm:
    if not rollouts:
        return Arm()
    return Arm(
        success=sum(r.value or 0.0 for r in rollouts) / len(rollouts),
        episodes=len(rollouts),
        failures=sum(r.failures for r in rollouts),
        usage=sum((r.usage for r in rollouts), Usage()),
    )
