"""Shelf: the adapters that were trained, each with its recipe, its runs and its descent; their weights lie in files."""

from sqlalchemy import JSON, Column
from sqlmodel import Field, SQLModel, col, select
from sqlmodel.sql.expression import SelectOfScalar

from harness.errors import UsageError
from memory.database import Database
from rl.recipe import Adapter


class AdapterRow(SQLModel, table=True):
    __tablename__ = "adapter"
    tenant: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    training: str = Field(index=True)
    skill: str = Field(index=True)
    body: dict[str, object] = Field(sa_column=Column(JSON, nullable=False))


class Shelf:
    """One tenant's adapters, append-only."""

    def __init__(self, database: Database) -> None:
        self.database = database
        database.create(AdapterRow)

    def put(self, adapter: Adapter) -> None:
        """Keep an adapter's record. Of two trainings that end in the same weights, the first is what is told of them."""
        with self.database.write() as session:
            if session.get(AdapterRow, (self.database.tenant, adapter.name)) is None:
                session.add(
                    AdapterRow(
                        tenant=self.database.tenant, digest=adapter.name, training=adapter.training, skill=adapter.skill,
                        body=adapter.model_dump(mode="json"),
                    )
                )  # fmt: skip

    def get(self, digest: str) -> Adapter:
        """The record of an adapter; raises UsageError when there is none."""
        with self.database.read() as session:
            row = session.get(AdapterRow, (self.database.tenant, digest))
            if row is None:
                raise UsageError(
                    f"adapter {digest[:12]} is not known here; `assay lineage show` lists the heads and their adapters"
                )
            return Adapter.model_validate(row.body)

    def trained(self, training: str) -> Adapter | None:
        """What came of a training, if it has ended."""
        with self.database.read() as session:
            row = session.exec(self._mine().where(AdapterRow.training == training)).first()
            return Adapter.model_validate(row.body) if row else None

    def all(self, skill: str | None = None) -> list[Adapter]:
        """Every adapter, or those that carry a skill (its digest), oldest first."""
        query = self._mine() if skill is None else self._mine().where(AdapterRow.skill == skill)
        with self.database.read() as session:
            found = [Adapter.model_validate(row.body) for row in session.exec(query).all()]
        return sorted(found, key=lambda adapter: adapter.created)

    def _mine(self) -> SelectOfScalar[AdapterRow]:
        return select(AdapterRow).where(col(AdapterRow.tenant) == self.database.tenant)
