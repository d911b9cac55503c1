"""Index: nearest neighbours by embedded Chroma, a cache of what SQL holds; losing it loses nothing, `rebuild` makes it anew.

Chroma's files belong to one process at a time (chroma-core/chroma#3792: with two, vectors go stale), and a torn one takes
the process down (measured). So the first process claims the folder, another builds its own copy in memory from the same rows;
and files that were not closed well, or have changed since, are thrown away unread.
"""

import contextlib
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from harness.errors import StoreError
from harness.value import Value
from memory.claim import Claim
from memory.embed import Embedder
from memory.vectors import Vector

REINDEX: Final = "assay skills reindex"
CANARIES: Final = 50
TOLERANCE: Final = 0.1
"""A search in a graph misses some of its own points; a sound one not many more than when it was built."""

_BATCH: Final = 1000
_BASELINE: Final = "self_recall"
_COLLECTION: Final = "vectors"


class Hit(Value):
    id: str
    cosine: float


class Health(Value):
    """What a check found."""

    missing: tuple[str, ...] = ()
    """Ids of the database that the index does not hold."""
    orphans: int = 0
    """Ids of the index that the database does not name: harmless, for no query asks for them."""
    self_recall: float = 1.0
    """Share of the canaries that find themselves."""
    baseline: float = 1.0
    """The same share when the index was built."""

    @property
    def sound(self) -> bool:
        return not self.missing and self.self_recall >= self.baseline - TOLERANCE


class Index:
    """Ids with their vectors, of one tenant and one embedder; opened when first used."""

    def __init__(self, folder: Path | None, embedder: Embedder, tenant: str = "default", name: str = "skills") -> None:
        """`folder` None: in memory. `name`: what is indexed, for each kind has files of its own."""
        self.embedder = embedder
        self.folder = None if folder is None else folder / f"{name}-{sha256(tenant.encode()).hexdigest()[:16]}"
        self._collection: Any = None
        self._claim: Claim | None = None
        self._leave: Callable[[], object] | None = None

    def upsert(self, rows: Mapping[str, Vector]) -> None:
        """Put vectors in, or replace them. Raises StoreError when the index was made by another embedder."""
        with self._guarded():
            _put(self._opened(), rows)

    def missing(self, ids: Collection[str]) -> set[str]:
        """Those of the ids that the index does not hold."""
        with self._guarded():
            wanted = sorted(ids)
            return set(wanted) - set(self._opened().get(ids=wanted, include=[])["ids"]) if wanted else set()

    def query(self, vector: Vector, among: Collection[str], k: int) -> list[Hit]:
        """The k nearest of the ids in `among`, nearest first, ties by id; ids that the index does not hold are left out.

        Approximate (HNSW): with k below len(among) a near neighbour may be missed.
        """
        present = sorted(set(among) - self.missing(among))
        if not present or k < 1:
            return []
        with self._guarded():
            found = self._opened().query(
                query_embeddings=[list(vector)], ids=present, n_results=min(k, len(present)), include=["distances"]
            )
        hits = [Hit(id=i, cosine=1.0 - d) for i, d in zip(found["ids"][0], found["distances"][0], strict=True)]
        return sorted(hits, key=lambda hit: (-hit.cosine, hit.id))

    def check(self, rows: Mapping[str, Vector]) -> Health:
        """Compare the index with the rows: ids on both sides, and whether canaries find themselves."""
        missing = self.missing(rows.keys())
        with self._guarded():
            collection = self._opened()
            return Health(
                missing=tuple(sorted(missing)),
                orphans=collection.count() - (len(rows) - len(missing)),
                self_recall=_self_recall(collection, rows),
                baseline=float(collection.metadata.get(_BASELINE, 1.0)),
            )

    def rebuild(self, rows: Mapping[str, Vector]) -> int:
        """Throw the index away, whatever its state, and build it from the rows; returns how many it holds now.

        Raises StoreError when another process holds the folder.
        """
        with self._guarded():
            self._disconnect()
            if self.folder is not None and self._claimed() is None:
                raise StoreError(f"the index {self.folder} is in use by another process: end that one, then `{REINDEX}` again")
            if self._claim is not None:
                self._claim.renew()
            collection = self._opened()
            _put(collection, rows)
            collection.modify(metadata={**collection.metadata, _BASELINE: _self_recall(collection, rows)})
        return len(rows)

    def close(self) -> None:
        """Let go of the folder, so that another process may have it; the next use opens it again."""
        self._disconnect()
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def _disconnect(self) -> None:
        if self._leave is not None:
            self._leave()
        self._leave = self._collection = None

    def _claimed(self) -> Claim | None:
        if self._claim is None and self.folder is not None:
            self._claim = Claim.take(self.folder)
        return self._claim

    def _opened(self) -> Any:
        if self._collection is None:
            import chromadb

            settings = chromadb.config.Settings(anonymized_telemetry=False)
            claim = self._claimed()
            client: Any
            if claim is None:
                name = f"{_COLLECTION}-{uuid.uuid4().hex}"  # clients in memory share one store within a process
                client = chromadb.EphemeralClient(settings=settings)
            else:
                name = _COLLECTION
                client = chromadb.PersistentClient(path=str(claim.path), settings=settings)
            self._leave = weakref.finalize(self, client.close)  # made after the claim's own, so run before it
            metadata = {"embedder": self.embedder.name, "dimension": self.embedder.dimension}
            collection = client.get_or_create_collection(
                name, embedding_function=None, metadata=metadata, configuration={"hnsw": {"space": "cosine"}}
            )
            made = (collection.metadata.get("embedder"), collection.metadata.get("dimension"))
            if made != (self.embedder.name, self.embedder.dimension):
                raise StoreError(
                    f"the index {self.folder} was made with {made[0]} ({made[1]} dimensions), this run embeds with "
                    f"{self.embedder.name} ({self.embedder.dimension}): `{REINDEX}` builds it anew"
                )
            self._collection = collection
        return self._collection

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # Chroma raises its own errors, and whatever its parts let through
            raise StoreError(f"the index {self.folder or 'in memory'}: {error}; `{REINDEX}` builds it anew") from error


def _put(collection: Any, rows: Mapping[str, Vector]) -> None:
    items = sorted(rows.items())
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        collection.upsert(ids=[id for id, _ in batch], embeddings=[list(vector) for _, vector in batch])


def _self_recall(collection: Any, rows: Mapping[str, Vector]) -> float:
    canaries = [list(rows[id]) for id in sorted(rows)[:CANARIES]]
    if not canaries:
        return 1.0
    nearest = collection.query(query_embeddings=canaries, n_results=1, include=["distances"])["distances"]
    return float(sum(bool(found) and found[0] < 1e-3 for found in nearest) / len(canaries))
