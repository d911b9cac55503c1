"""The ledger: every trial and every rollout that it has paid for, append-only; it judges nothing.

A rollout belongs to a column: the incumbent's of a head and block, shared by later trials of the head, or one
candidate's own. Rows are keyed by their place in the draw, so that a trial goes on from what it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel, col, select

from evolve.budget import ErrorBudget, Grant
from evolve.change import Change
from evolve.questions import Side
from harness.message import Usage
from memory.database import Database, Moment

TRIALS_A_BLOCK = 10


class TrialRow(SQLModel, table=True):
    __tablename__ = "trial"
    tenant: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    head: int = Field(index=True)
    change: str
    body: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))
    stream: str
    index: int
    level: float
    block: int
    tasks: str
    created: datetime = Field(sa_type=Moment)


class RolloutRow(SQLModel, table=True):
    __tablename__ = "rollout"
    tenant: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    column: str = Field(primary_key=True)
    place: int = Field(primary_key=True)
    trajectory: str = ""
    value: float | None = None
    failures: int = 0
    watched: dict[str, float] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))
    usage: dict[str, float] = Field(default_factory=dict, sa_column=Column(JSON, nullable=False))


@dataclass(frozen=True)
class Opened:
    """A trial that holds its grant."""

    id: str
    head: int
    grant: Grant
    block: int
    tasks: str
    """Digest of the tasks that it draws from."""

    def column(self, side: Side) -> str:
        """The incumbent's column is shared by the trials of a head, block and set of tasks; the others are the trial's own."""
        return f"incumbent:{self.head}:{self.block}:{self.tasks[:16]}" if side == "incumbent" else f"{side}:{self.id}"


@dataclass(frozen=True)
class Rollout:
    """One arm of one pair: `value` is None while only failed attempts are known."""

    trajectory: str
    value: float | None
    failures: int
    watched: Mapping[str, float]
    usage: Usage


class Ledger:
    def __init__(self, database: Database, agent: str = "main") -> None:
        self.database = database
        self.agent = agent
        database.create(TrialRow, RolloutRow)

    def trial(self, trial: str) -> Opened | None:
        """A trial that has been opened before, with its old grant."""
        with self.database.read() as session:
            row = session.get(TrialRow, (self.database.tenant, self.agent, trial))
            return _opened(row) if row else None

    def changes(self, head: int) -> dict[str, Change]:
        """The proposals behind the trials that were opened against a head, by the trial's id, oldest first."""
        mine = (TrialRow.tenant == self.database.tenant) & (TrialRow.agent == self.agent) & (TrialRow.head == head)
        with self.database.read() as session:
            rows = session.exec(select(TrialRow).where(mine).order_by(col(TrialRow.created))).all()
            return {row.id: Change.model_validate(row.body) for row in rows}

    def open(self, trial: str, change: Change, head: int, tasks: str, budget: ErrorBudget, *, owned: bool) -> Opened:
        """Take an index and a level from the error budget for a trial, once; opening again returns the old grant.

        The incumbent's rollouts serve ten trials where the weights are `owned`; a re-opened question begins with fresh ones.
        """
        with self.database.write() as session:
            row = session.get(TrialRow, (self.database.tenant, self.agent, trial))
            if row is None:
                grant = budget.take(session, change.kind)
                mine = (TrialRow.tenant == self.database.tenant) & (TrialRow.agent == self.agent) & (TrialRow.head == head)
                blocks = session.exec(select(TrialRow.block).where(mine)).all()
                last = max(blocks, default=0)
                full = len(blocks) and (not owned or change.occasion or blocks.count(last) == TRIALS_A_BLOCK)
                row = TrialRow(
                    tenant=self.database.tenant, agent=self.agent, id=trial, head=head, change=change.digest,
                    body=change.model_dump(mode="json"), stream=change.kind, index=grant.index, level=grant.level,
                    block=last + 1 if full else last, tasks=tasks, created=datetime.now(UTC),
                )  # fmt: skip
                session.add(row)
            return _opened(row)

    def column(self, column: str) -> dict[int, Rollout]:
        """Everything that a column holds, by place in the draw."""
        mine = (RolloutRow.tenant == self.database.tenant) & (RolloutRow.agent == self.agent)
        with self.database.read() as session:
            rows = session.exec(select(RolloutRow).where(mine, col(RolloutRow.column) == column)).all()
            return {row.place: _rollout(row) for row in rows}

    def values(self, trial: str, pairs: int) -> tuple[tuple[float, float], ...]:
        """(incumbent, candidate) rewards of the first `pairs` places of a trial, in draw order."""
        opened = self.trial(trial)
        if opened is None:
            return ()
        before, after = self.column(opened.column("incumbent")), self.column(opened.column("candidate"))
        judged = [(before[p].value, after[p].value) for p in sorted(after) if p in before]
        return tuple((a, b) for a, b in judged if a is not None and b is not None)[:pairs]

    def record(self, column: str, place: int, rollout: Rollout) -> Rollout:
        """Store one rollout; of two that finish the same place, the first counts and is returned."""
        with self.database.write() as session:
            key = (self.database.tenant, self.agent, column, place)
            row = session.get(RolloutRow, key)
            if row is not None and row.value is not None:
                return _rollout(row)
            row = row or RolloutRow(tenant=key[0], agent=key[1], column=column, place=place)
            row.failures = max(row.failures, rollout.failures)
            row.trajectory, row.value, row.watched = rollout.trajectory, rollout.value, dict(rollout.watched)
            row.usage = rollout.usage.model_dump()
            session.add(row)
            return _rollout(row)


def _opened(row: TrialRow) -> Opened:
    grant = Grant(stream=row.stream, index=row.index, level=row.level)
    return Opened(id=row.id, head=row.head, grant=grant, block=row.block, tasks=row.tasks)


def _rollout(row: RolloutRow) -> Rollout:
    return Rollout(row.trajectory, row.value, row.failures, dict(row.watched), Usage.model_validate(row.usage))
