"""Bank: immutable skill versions, named sets of them, and where each stands in a lineage; it neither judges nor searches them."""

from datetime import UTC, datetime
from typing import Final, Literal, cast

from pydantic import ValidationError, field_validator
from sqlalchemy import JSON, Column
from sqlmodel import Field, Session, SQLModel, col, select

from harness.errors import StoreError, UsageError
from harness.value import Value
from memory.database import Database, Moment
from skills.skill import Skill, Status, check_move, first_status

UNMEASURED: Final = "unmeasured"
"""Stands for the verdict of a move that no trial has decided."""


class Revision(Value):
    """A set of skill versions; its digest is its name."""

    skills: tuple[str, ...] = ()
    """Digests, sorted."""

    @field_validator("skills")
    @classmethod
    def _a_set(cls, skills: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(skills)))


class Moved(Value):
    """One entry of a skill's history in a lineage."""

    status: Status
    reason: str
    verdict: str
    """Id of the trial that decided it, or `unmeasured`."""
    created: datetime


class Entry(Value):
    """A skill as a lineage sees it."""

    skill: Skill
    status: Status
    history: tuple[Moved, ...]
    """Oldest first; the last one is where it stands."""


class Put(Value):
    """What became of a skill that was handed in."""

    reason: Literal["added", "known", "duplicate"]
    """`known`: this version was there already. `duplicate`: it is stored now, and says what another one says."""
    twin: str = ""
    """Digest of the earlier skill with the same body and files."""


class SkillRow(SQLModel, table=True):
    __tablename__ = "skill"
    tenant: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    name: str = Field(index=True)
    version: int
    content: str = Field(index=True)
    source: str
    author_model: str
    body: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))
    created: datetime = Field(sa_type=Moment)


class MoveRow(SQLModel, table=True):
    __tablename__ = "skill_move"
    place: int | None = Field(default=None, primary_key=True)
    tenant: str = Field(index=True)
    agent: str = Field(index=True)
    skill: str = Field(index=True)
    status: str
    reason: str
    verdict: str
    created: datetime = Field(sa_type=Moment)


class RevisionRow(SQLModel, table=True):
    __tablename__ = "bank_revision"
    tenant: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    skills: list[str] = Field(sa_column=Column(JSON, nullable=False))
    created: datetime = Field(sa_type=Moment)


class Bank:
    """The skills of a tenant, and their statuses in the lineage of one agent. Writes join the caller's transaction."""

    def __init__(self, database: Database, agent: str = "main") -> None:
        self.database, self.agent = database, agent
        self._sets: dict[str, tuple[Skill, ...]] = {}
        database.create(SkillRow, MoveRow, RevisionRow)

    def put(self, session: Session, skill: Skill) -> Put:
        """Store a skill version, with its first status where this lineage has none: quarantined when imported, else candidate."""
        tenant, digest = self.database.tenant, skill.digest
        known = session.get(SkillRow, (tenant, digest)) is not None
        twin = "" if known else self._twin(session, skill)
        if not known:
            session.add(
                SkillRow(
                    tenant=tenant, digest=digest, name=skill.name, version=skill.version, content=skill.content,
                    source=skill.provenance.source, author_model=skill.provenance.author_model,
                    body=skill.model_dump(mode="json"), created=_now(),
                )
            )  # fmt: skip
        if self.status(digest, session) is None:
            self._append(session, digest, first_status(skill), f"duplicate of {twin}" if twin else "new", UNMEASURED)
        return Put(reason="known" if known else "duplicate" if twin else "added", twin=twin)

    def twin(self, skill: Skill) -> str:
        """Digest of another stored skill with the same body and files; empty: none."""
        with self.database.read() as session:
            return self._twin(session, skill)

    def get(self, digest: str) -> Skill:
        """Raises UsageError when the bank has no such skill."""
        with self.database.read() as session:
            return self._skill(session, digest)

    def put_revision(self, session: Session, revision: Revision) -> None:
        """Store a set; the same set twice is one row.

        Raises UsageError when a skill of it is not stored, or two of them say the same.
        """
        digest = revision.digest
        if session.get(RevisionRow, (self.database.tenant, digest)) is not None:
            return
        contents: dict[str, Skill] = {}
        for skill in (self._skill(session, d) for d in revision.skills):
            twin = contents.setdefault(skill.content, skill)
            if twin is not skill:
                raise UsageError(
                    f"duplicate: skills {twin.name} ({twin.digest[:12]}) and {skill.name} ({skill.digest[:12]}) say the same; "
                    "a revision shows a text once, leave one of them out"
                )
        session.add(RevisionRow(tenant=self.database.tenant, digest=digest, skills=list(revision.skills), created=_now()))

    def revision(self, digest: str) -> Revision:
        """The set of that digest; the empty digest is the empty set. Raises UsageError when it is unknown."""
        if not digest:
            return Revision()
        with self.database.read() as session:
            row = session.get(RevisionRow, (self.database.tenant, digest))
            if row is None:
                raise UsageError(f"there is no bank revision {digest[:12]!r}; `assay lineage show` lists those of the heads")
            return Revision(skills=tuple(row.skills))

    def skills(self, revision: str) -> tuple[Skill, ...]:
        """The skills of a revision, ordered by name, version and digest, on every machine alike."""
        if revision not in self._sets:
            digests = self.revision(revision).skills
            with self.database.read() as session:
                found = [self._skill(session, digest) for digest in digests]
            self._sets[revision] = tuple(sorted(found, key=lambda skill: (skill.name, skill.version, skill.digest)))
        return self._sets[revision]

    def status(self, digest: str, session: Session | None = None) -> Status | None:
        """Where a skill stands in this lineage, seen from inside `session` if given; None: never seen."""
        if session is None:
            with self.database.read() as reading:
                return self.status(digest, reading)
        query = select(MoveRow.status).where(*self._mine(), MoveRow.skill == digest)
        return cast(Status | None, session.exec(query.order_by(col(MoveRow.place).desc())).first())

    def move(self, session: Session, digest: str, status: Status, reason: str, verdict: str = "") -> None:
        """Append a move to a skill's history; without `verdict` it is recorded as unmeasured.

        Raises UsageError when the lineage has not seen the skill, the move is illegal, or it needs a verdict.
        """
        before = self.status(digest, session)
        if before is None:
            raise UsageError(f"skill {digest[:12]!r} is not in the bank of agent {self.agent!r}; `assay skills list` shows it")
        check_move(self._skill(session, digest).name, before, status, verdict)
        self._append(session, digest, status, reason, verdict or UNMEASURED)

    def history(self, digest: str) -> tuple[Moved, ...]:
        """Every move of a skill in this lineage, oldest first."""
        return self._histories(digest).get(digest, ())

    def list(self, status: Status | None = None) -> tuple[Entry, ...]:
        """Every skill that this lineage has seen, by name, version and digest; or those of one status."""
        histories = self._histories()
        with self.database.read() as session:
            mine = SkillRow.tenant == self.database.tenant
            rows = session.exec(select(SkillRow).where(mine).order_by(SkillRow.name, col(SkillRow.version), SkillRow.digest))
            return tuple(
                Entry(skill=_read(row), status=moves[-1].status, history=moves)
                for row in rows
                if (moves := histories.get(row.digest)) and status in (None, moves[-1].status)
            )

    def _histories(self, digest: str = "") -> dict[str, tuple[Moved, ...]]:
        query = select(MoveRow).where(*self._mine()).order_by(col(MoveRow.place))
        histories: dict[str, tuple[Moved, ...]] = {}
        with self.database.read() as session:
            for row in session.exec(query.where(MoveRow.skill == digest) if digest else query):
                moved = Moved(status=cast(Status, row.status), reason=row.reason, verdict=row.verdict, created=row.created)
                histories[row.skill] = (*histories.get(row.skill, ()), moved)
        return histories

    def _twin(self, session: Session, skill: Skill) -> str:
        same = (SkillRow.tenant == self.database.tenant, SkillRow.content == skill.content, SkillRow.digest != skill.digest)
        return session.exec(select(SkillRow.digest).where(*same).order_by(col(SkillRow.created))).first() or ""

    def _skill(self, session: Session, digest: str) -> Skill:
        row = session.get(SkillRow, (self.database.tenant, digest))
        if row is None:
            raise UsageError(f"there is no skill {digest[:12]!r} in the bank; `assay skills list` shows them")
        return _read(row)

    def _append(self, session: Session, digest: str, status: Status, reason: str, verdict: str) -> None:
        session.add(
            MoveRow(
                tenant=self.database.tenant, agent=self.agent, skill=digest, status=status, reason=reason, verdict=verdict,
                created=_now(),
            )
        )  # fmt: skip

    def _mine(self) -> tuple[bool, bool]:
        return MoveRow.tenant == self.database.tenant, MoveRow.agent == self.agent


def _read(row: SkillRow) -> Skill:
    try:
        return Skill.model_validate(row.body)
    except ValidationError as error:
        raise StoreError(
            f"skill {row.name} ({row.digest[:12]}) cannot be read by this version: {error.errors()[0]['msg']}; "
            "read it with the version that wrote it"
        ) from error


def _now() -> datetime:
    return datetime.now(UTC)
