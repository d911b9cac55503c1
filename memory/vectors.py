"""Vectors: embeddings kept in SQL, by model and text, so that nothing is embedded twice; finding neighbours is for the index."""

from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy import Column, LargeBinary
from sqlmodel import Field, SQLModel, col, select

from harness.errors import StoreError
from harness.value import digest
from memory.database import Database
from memory.embed import Embedder

Vector = Sequence[float]

_AT_ONCE = 500
"""Keys in one SQL statement: below the limit of every database."""


class EmbeddingRow(SQLModel, table=True):
    __tablename__ = "embedding"
    tenant: str = Field(primary_key=True)
    embedder: str = Field(primary_key=True)
    text: str = Field(primary_key=True)
    """Digest of the text."""
    vector: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    """float32, little-endian."""


class Vectors:
    def __init__(self, database: Database, embedder: Embedder) -> None:
        self.database, self.embedder = database, embedder
        database.create(EmbeddingRow)

    def of(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in order: the stored one, or a new one that is stored.

        Raises StoreError when a stored vector has another dimension than the embedder.
        """
        keys = [digest(text) for text in texts]
        known = self._known(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            self._keep(dict(zip(missing, self.embedder.embed(list(missing.values())), strict=True)))
            known = self._known(keys)
        return [known[key] for key in keys]

    def _known(self, keys: Sequence[str]) -> dict[str, Vector]:
        mine = (EmbeddingRow.tenant == self.database.tenant, EmbeddingRow.embedder == self.embedder.name)
        known: dict[str, Vector] = {}
        with self.database.read() as session:
            for start in range(0, len(keys), _AT_ONCE):
                wanted = col(EmbeddingRow.text).in_(keys[start : start + _AT_ONCE])
                for row in session.exec(select(EmbeddingRow).where(*mine, wanted)):
                    known[row.text] = self._read(row)
        return known

    def _read(self, row: EmbeddingRow) -> Vector:
        vector = np.frombuffer(row.vector, dtype="<f4")
        if len(vector) != self.embedder.dimension:
            raise StoreError(
                f"a stored vector of {row.embedder} has {len(vector)} dimensions, the embedder {self.embedder.dimension}: "
                "give an embedder with other dimensions another name"
            )
        return [float(x) for x in vector]

    def _keep(self, fresh: Mapping[str, Vector]) -> None:
        with self.database.write() as session:
            for key, vector in fresh.items():
                row = EmbeddingRow(
                    tenant=self.database.tenant, embedder=self.embedder.name, text=key,
                    vector=np.asarray(vector, dtype="<f4").tobytes(),
                )  # fmt: skip
                session.merge(row)
