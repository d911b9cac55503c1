"""Rounds: what one command set out to try, kept so that the same command after a kill goes on with the same changes."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import JSON, Column
from sqlmodel import Field, Session, SQLModel, col, select

from evolve.change import Change
from evolve.lineage import Lineage
from evolve.trial import STOPPED
from evolve.verdict import Verdict
from harness.errors import UsageError
from harness.value import Value, digest
from memory.database import Database, Moment


class Round(Value):
    number: int
    head: int
    """The live head when it began."""
    begun: tuple[Change, ...]
    """Changes that it began with."""
    drafted: tuple[Change, ...] | None = None
    """Changes that were proposed in it; None: that is still to come."""
    created: datetime

    @property
    def changes(self) -> tuple[Change, ...]:
        return (*self.begun, *(self.drafted or ()))


class RoundRow(SQLModel, table=True):
    __tablename__ = "round"
    tenant: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    command: str
    """Digest of what was asked for."""
    head: int
    begun: list[dict[str, object]] = Field(sa_column=Column(JSON, nullable=False))
    drafted: list[dict[str, object]] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    finished: bool = False
    created: datetime = Field(sa_type=Moment)


class Rounds:
    """The rounds of one agent, one at a time."""

    def __init__(self, database: Database, agent: str = "main") -> None:
        self.database, self.agent = database, agent
        database.create(RoundRow)

    def under_way(self, command: object, lineage: Lineage) -> Round | None:
        """The unfinished round of this command (any JSON value): the last one that was begun, its head moved by nobody else."""
        with self.database.read() as session:
            row = self._last(session)
            if row is None or row.finished or row.command != digest(command):
                return None
            last = _round(row)
        own = {verdict.trial for verdict in settled(lineage, last).values()}
        later = [head for head in lineage.heads() if head.number > last.head]
        return last if all(head.how == "admitted" and head.trial in own for head in later) else None

    def begin(self, command: object, head: int, begun: Sequence[Change]) -> Round:
        """A new round; one that another command left unfinished is never gone on with."""
        with self.database.write() as session:
            last = self._last(session)
            row = RoundRow(
                tenant=self.database.tenant, agent=self.agent, number=last.number + 1 if last else 1, command=digest(command),
                head=head, begun=[change.model_dump(mode="json") for change in begun], created=datetime.now(UTC),
            )  # fmt: skip
            session.add(row)
            return _round(row)

    def propose(self, number: int, drafted: Sequence[Change]) -> Round:
        """Record what was proposed in a round, once: what is recorded already stands."""
        with self.database.write() as session:
            row = self._row(session, number)
            if row.drafted is None:
                row.drafted = [change.model_dump(mode="json") for change in drafted]
                session.add(row)
            return _round(row)

    def finish(self, number: int) -> None:
        with self.database.write() as session:
            row = self._row(session, number)
            row.finished = True
            session.add(row)

    def _row(self, session: Session, number: int) -> RoundRow:
        row = session.get(RoundRow, (self.database.tenant, self.agent, number))
        if row is None:
            raise UsageError(f"agent {self.agent!r} has no round {number}")
        return row

    def _last(self, session: Session) -> RoundRow | None:
        mine = (RoundRow.tenant == self.database.tenant) & (RoundRow.agent == self.agent)
        return session.exec(select(RoundRow).where(mine).order_by(col(RoundRow.number).desc())).first()


def settled(lineage: Lineage, under_way: Round) -> dict[str, Verdict]:
    """The verdicts of a round's changes so far, by the change's digest; those that only the purse stopped are not settled."""
    own = {change.digest for change in under_way.changes}
    since = [v for v in lineage.verdicts() if v.created >= under_way.created and v.code != STOPPED]
    return {v.change: v for v in since if v.change in own}


def _round(row: RoundRow) -> Round:
    return Round(
        number=row.number, head=row.head, begun=tuple(Change.model_validate(change) for change in row.begun),
        drafted=None if row.drafted is None else tuple(Change.model_validate(change) for change in row.drafted),
        created=row.created,
    )  # fmt: skip
