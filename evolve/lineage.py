"""The lineage of one agent: its heads, each with its parent and the verdict that made it; it decides nothing.

A verdict, the new head, the bank revision, the skills' statuses and the error budget are committed in one transaction.
"""

from datetime import UTC, datetime
from typing import Final, Literal, cast

from sqlalchemy import JSON, Column
from sqlmodel import Field, Session, SQLModel, col, select

from evolve.budget import ErrorBudget
from evolve.change import Change
from evolve.verdict import Tried, Verdict
from harness.errors import UsageError
from harness.spec import HarnessSpec
from harness.value import Value
from memory.database import Database, Moment
from skills.bank import Bank, Moved, Revision
from skills.skill import Status

CARRIED: Final = "carried by adapter {}"
"""Reason of the move that binds an internalised skill to the adapter that carries it."""
How = Literal["root", "admitted", "forced", "rollback"]


class Head(Value):
    """A spec that is or was live."""

    number: int
    parent: int | None = None
    how: How
    spec: HarnessSpec
    change: str = ""
    """Name of the change that made it."""
    trial: str = ""
    """Id of the trial whose verdict made it; empty: unmeasured."""
    created: datetime


class HeadRow(SQLModel, table=True):
    __tablename__ = "head"
    tenant: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    parent: int | None = None
    how: str
    spec: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))
    change: str = ""
    trial: str = ""
    created: datetime = Field(sa_type=Moment)


class VerdictRow(SQLModel, table=True):
    __tablename__ = "verdict"
    tenant: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    trial: str = Field(primary_key=True)
    place: int = Field(primary_key=True)
    decision: str
    body: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))


class Lineage:
    def __init__(self, database: Database, bank: Bank, budget: ErrorBudget, agent: str = "main") -> None:
        self.database, self.bank, self.budget, self.agent = database, bank, budget, agent
        database.create(HeadRow, VerdictRow)

    def heads(self) -> list[Head]:
        """Every head, oldest first; the last one is live."""
        with self.database.read() as session:
            rows = session.exec(select(HeadRow).where(*self._mine(HeadRow)).order_by(col(HeadRow.number))).all()
            return [_head(row) for row in rows]

    def head(self) -> Head:
        """The live head; raises UsageError where the lineage has not begun."""
        heads = self.heads()
        if not heads:
            raise UsageError(f"agent {self.agent!r} has no lineage yet; `assay run` or `assay evolve` begins one")
        return heads[-1]

    def begin(self, spec: HarnessSpec) -> Head:
        """The live head; where there is none, `spec` becomes the root."""
        with self.database.write() as session:
            return _head(self._last(session) or self._append(session, spec, how="root"))

    def verdicts(self) -> list[Verdict]:
        """Every verdict in the order in which it was settled."""
        with self.database.read() as session:
            rows = session.exec(select(VerdictRow).where(*self._mine(VerdictRow))).all()
            return sorted((Verdict.model_validate(row.body) for row in rows), key=lambda v: v.created)

    def tried(self) -> list[Tried]:
        """What proposers may know of the past."""
        return [Tried(change=v.change, name=v.name, decision=v.decision, code=v.code) for v in self.verdicts()]

    def settle(self, change: Change, verdict: Verdict, spec: HarnessSpec, revision: Revision) -> Head:
        """Record a verdict and, when it admits, make `spec` the head; the live head is returned.

        Raises UsageError when the head has moved since the trial. Settling the same verdict twice changes nothing.
        """
        with self.database.write() as session:
            last = self._last(session)
            known = session.exec(
                select(VerdictRow).where(*self._mine(VerdictRow), VerdictRow.trial == verdict.trial)
            ).all()  # fmt: skip
            if last is not None and any(row.decision == "admit" for row in known):
                return _head(last)
            if last is None or last.number != verdict.head:
                found = "none" if last is None else str(last.number)
                raise UsageError(f"{change.name!r} was tried against head {verdict.head}, the live head is {found}: try it again")
            if known and _same(Verdict.model_validate(max(known, key=lambda row: row.place).body), verdict):
                return _head(last)
            session.add(
                VerdictRow(
                    tenant=self.database.tenant, agent=self.agent, trial=verdict.trial, place=len(known),
                    decision=verdict.decision, body=verdict.model_dump(mode="json"),
                )
            )  # fmt: skip
            if verdict.decision != "admit":
                status: Status = "rejected" if verdict.decision == "reject" else "candidate"
                for skill in change.drafts if verdict.code != "duplicate" else ():
                    self._place(session, skill.digest, status, verdict.code, verdict.trial)
                return _head(last)
            self.budget.admit(session, change.kind)
            self._follow(session, change, revision, verdict.trial)
            return _head(self._append(session, spec, how="admitted", change=change.name, trial=verdict.trial))

    def force(self, change: Change, spec: HarnessSpec, revision: Revision) -> Head:
        """Make `spec` the head by hand: recorded as unmeasured, and no admission of any budget."""
        with self.database.write() as session:
            self._follow(session, change, revision, "")
            return _head(self._append(session, spec, how="forced", change=change.name))

    def rollback(self, number: int) -> Head:
        """Make an older head's spec live again, as a new head; nothing is deleted.

        Raises UsageError when there is no such head, or it is live already.
        """
        with self.database.write() as session:
            old = session.get(HeadRow, (self.database.tenant, self.agent, number))
            last = self._last(session)
            if old is None or last is None:
                raise UsageError(f"there is no head {number}; `assay lineage show` lists them")
            if last.number == number:
                raise UsageError(f"head {number} is live already")
            spec = HarnessSpec.model_validate(old.spec)
            kept, lost = set(self._skills(spec)), set(self._skills(HarnessSpec.model_validate(last.spec)))
            for digest in sorted(lost - kept):
                moved = self._carried(digest, spec.policy.adapter)
                status: Status = "internalised" if moved else "retired"
                self._place(session, digest, status, f"rolled back to head {number}", moved.verdict if moved else "")
            for digest in sorted(kept - lost):
                self._place(session, digest, "active", f"rolled back to head {number}", "")
            return _head(self._append(session, spec, how="rollback", change=f"back to head {number}", trial=old.trial))

    def _follow(self, session: Session, change: Change, revision: Revision, trial: str) -> None:
        reason = f"admitted with {change.name}" if trial else "by hand, unmeasured"
        for skill in change.drafts:
            self.bank.put(session, skill)
        self.bank.put_revision(session, revision)
        for digest in (*(skill.digest for skill in change.drafts), *change.restores):
            self._place(session, digest, "active", reason, trial)
        adapter = change.edits.policy.adapter if change.edits.policy else ""
        for digest in change.drops:
            if adapter and trial:
                self._place(session, digest, "internalised", CARRIED.format(adapter), trial)
            else:
                self._place(session, digest, "retired", reason, trial)

    def _carried(self, skill: str, adapter: str) -> Moved | None:
        """The move by which a verdict bound the skill to this adapter."""
        bound = [moved for moved in self.bank.history(skill) if moved.status == "internalised"]
        return next((moved for moved in bound if adapter and moved.reason == CARRIED.format(adapter)), None)

    def _place(self, session: Session, digest: str, status: Status, reason: str, trial: str) -> None:
        if self.bank.status(digest, session) != status:
            self.bank.move(session, digest, status, reason, trial)

    def _skills(self, spec: HarnessSpec) -> tuple[str, ...]:
        return self.bank.revision(spec.bank).skills if spec.bank else ()

    def _mine(self, row: type[HeadRow] | type[VerdictRow]) -> tuple[bool, bool]:
        return row.tenant == self.database.tenant, row.agent == self.agent

    def _last(self, session: Session) -> HeadRow | None:
        return session.exec(select(HeadRow).where(*self._mine(HeadRow)).order_by(col(HeadRow.number).desc())).first()

    def _append(self, session: Session, spec: HarnessSpec, *, how: How, change: str = "", trial: str = "") -> HeadRow:
        last = self._last(session)
        row = HeadRow(
            tenant=self.database.tenant, agent=self.agent, number=last.number + 1 if last else 1,
            parent=last.number if last else None, how=how, spec=spec.model_dump(mode="json"),
            change=change, trial=trial, created=datetime.now(UTC),
        )  # fmt: skip
        session.add(row)
        return row


def _same(one: Verdict, other: Verdict) -> bool:
    """The same answer of the same trial to the same question, on the same pairs."""
    return (one.decision, one.code, one.pairs, one.margin) == (other.decision, other.code, other.pairs, other.margin)


def _head(row: HeadRow) -> Head:
    return Head(
        number=row.number, parent=row.parent, how=cast(How, row.how), spec=HarnessSpec.model_validate(row.spec),
        change=row.change, trial=row.trial, created=row.created,
    )  # fmt: skip
