"""Store: every episode that ever ran, append-only; what is made of them lives elsewhere."""

from datetime import datetime
from typing import TypedDict, TypeVar, Unpack

from pydantic import ValidationError
from sqlalchemy import JSON, Column, UniqueConstraint
from sqlmodel import Field, Session, SQLModel, col, func, select
from sqlmodel.sql.expression import SelectOfScalar

from harness.errors import StoreError, UsageError
from harness.task import Split
from harness.trajectory import Source, Trajectory
from memory.database import Database, Moment

T = TypeVar("T")


class TrajectoryRow(SQLModel, table=True):
    __tablename__ = "trajectory"
    __table_args__ = (UniqueConstraint("tenant", "id"),)
    place: int | None = Field(default=None, primary_key=True)
    """Order of arrival."""
    tenant: str = Field(index=True)
    id: str
    content: str
    """Digest of the whole trajectory."""
    created: datetime = Field(sa_type=Moment)
    spec: str = Field(index=True)
    policy: str
    split: str = Field(index=True)
    task: str = Field(index=True)
    environment: str
    arm: str
    source: str
    reward: float | None
    success: bool
    wall: str
    """Wall of the error that ended it; empty: none."""
    body: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))


class Where(TypedDict, total=False):
    """What a listing may be narrowed to; every key that is given must match."""

    spec: str
    """Digest of the HarnessSpec."""
    task: str
    """Digest of the task."""
    arm: str
    environment: str
    source: Source
    success: bool
    wall: str


class Store:
    def __init__(self, database: Database) -> None:
        self.database = database
        database.create(TrajectoryRow)

    def add(self, trajectory: Trajectory) -> None:
        """Keep a trajectory; when this returns, it survives the death of the process. Adding it again changes nothing.

        Raises UsageError when the id is taken by another content, for nothing is ever overwritten.
        """
        content = trajectory.digest
        with self.database.write() as session:
            known = self._row(session, trajectory.id)
            if known is None:
                session.add(_row(trajectory, content, self.database.tenant))
            elif known.content != content:
                raise UsageError(
                    f"trajectory {trajectory.id!r} is stored already with content {known.content[:12]}, found {content[:12]}: "
                    "trajectories are append-only, give the new one an id of its own"
                )

    def get(self, id: str) -> Trajectory:
        """The trajectory of that id; raises UsageError when there is none."""
        run = self.find(id)
        if run is None:
            raise UsageError(f"there is no trajectory {id!r}; `assay runs list` shows those of this tenant")
        return run

    def find(self, id: str) -> Trajectory | None:
        """The trajectory of that id, if there is one."""
        with self.database.read() as session:
            row = self._row(session, id)
            return _trajectory(row) if row else None

    def found(self, beginning: str) -> Trajectory:
        """The trajectory whose id begins so, for people; raises UsageError when there are none or several."""
        ids = col(TrajectoryRow.id)
        with self.database.read() as session:
            query = self._narrowed(select(TrajectoryRow), None, {}).where(ids.startswith(beginning, autoescape=True))
            rows = session.exec(query.order_by(ids).limit(2)).all()
            if len(rows) == 1 or (rows and rows[0].id == beginning):
                return _trajectory(rows[0])
        raise UsageError(f"run {beginning!r}: {'several begin so' if rows else 'none begins so'}; `assay runs list` shows them")

    def of(self, *, split: Split | None, limit: int | None = None, after: str = "", **where: Unpack[Where]) -> list[Trajectory]:
        """Trajectories of one split in order of arrival, as a snapshot.

        `split` is always said: proposers and trainers name `train`; None, every split, is for listings that a person reads.
        `after` is the id of the last one seen, for paging. Raises UsageError when it is unknown.
        """
        return self._page(split, limit, after, where, newest=False)

    def newest(
        self, *, split: Split | None, limit: int | None = None, after: str = "", **where: Unpack[Where]
    ) -> list[Trajectory]:
        """As `of`, the newest first."""
        return self._page(split, limit, after, where, newest=True)

    def count(self, *, split: Split | None, **where: Unpack[Where]) -> int:
        """How many trajectories `of` would return without a limit."""
        with self.database.read() as session:
            return session.exec(self._narrowed(select(func.count()).select_from(TrajectoryRow), split, where)).one()

    def _page(self, split: Split | None, limit: int | None, after: str, where: Where, *, newest: bool) -> list[Trajectory]:
        place = col(TrajectoryRow.place)
        with self.database.read() as session:
            query = self._narrowed(select(TrajectoryRow), split, where)
            if after:
                seen = self._row(session, after)
                if seen is None:
                    raise UsageError(
                        f"there is no trajectory {after!r} to go on after; `assay runs list` begins at the beginning"
                    )
                query = query.where(place < seen.place if newest else place > seen.place)
            query = query.order_by(place.desc() if newest else place)
            return [_trajectory(row) for row in session.exec(query if limit is None else query.limit(limit))]

    def _narrowed(self, query: SelectOfScalar[T], split: Split | None, where: Where) -> SelectOfScalar[T]:
        query = query.where(col(TrajectoryRow.tenant) == self.database.tenant)
        if split is not None:
            query = query.where(col(TrajectoryRow.split) == split)
        for name, value in where.items():
            query = query.where(col(getattr(TrajectoryRow, name)) == value)
        return query

    def _row(self, session: Session, id: str) -> TrajectoryRow | None:
        mine = (TrajectoryRow.tenant == self.database.tenant, TrajectoryRow.id == id)
        return session.exec(select(TrajectoryRow).where(*mine)).first()


def _row(trajectory: Trajectory, content: str, tenant: str) -> TrajectoryRow:
    return TrajectoryRow(
        tenant=tenant, id=trajectory.id, content=content, created=trajectory.created, spec=trajectory.spec,
        policy=trajectory.policy, split=trajectory.task.split, task=trajectory.task.digest,
        environment=trajectory.task.environment, arm=trajectory.arm, source=trajectory.source,
        reward=trajectory.reward.value if trajectory.reward else None, success=trajectory.success,
        wall=trajectory.error.wall if trajectory.error else "", body=trajectory.model_dump(mode="json"),
    )  # fmt: skip


def _trajectory(row: TrajectoryRow) -> Trajectory:
    try:
        return Trajectory.model_validate(row.body)
    except ValidationError as error:
        first = error.errors()[0]
        raise StoreError(
            f"trajectory {row.id!r} cannot be read by this version ({'.'.join(map(str, first['loc']))}: {first['msg']}); "
            "read it with the version that wrote it"
        ) from error
