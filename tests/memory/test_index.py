"""The index: real Chroma, a cache that may be lost, broken or shared, and never answers from another embedder's vectors."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from harness.errors import StoreError
from memory.embed import HashedWords
from memory.index import Index


class Sized(HashedWords):
    """The shipped fake under another name or in another size."""

    def __init__(self, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension


TINY = Sized("tiny", 16)


def vector(seed: int, dimension: int = 16) -> list[float]:
    rng = random.Random(seed)
    raw = [rng.gauss(0, 1) for _ in range(dimension)]
    norm = sum(x * x for x in raw) ** 0.5
    return [x / norm for x in raw]


ROWS = {f"id{n:03}": vector(n) for n in range(60)}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_the_nearest_of_those_asked_for_come_first(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.upsert(ROWS)
    among = sorted(ROWS)[:20]
    hits = index.query(ROWS["id007"], among, 20)
    cosines = {id: sum(a * b for a, b in zip(ROWS["id007"], ROWS[id], strict=True)) for id in among}
    assert [hit.id for hit in hits] == sorted(among, key=lambda id: -cosines[id])
    assert {hit.id: hit.cosine for hit in hits} == pytest.approx(cosines, abs=1e-5)
    assert [hit.id for hit in index.query(ROWS["id007"], among, 1)] == ["id007"]


def test_what_is_not_asked_for_or_not_there_never_comes(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.upsert({"stale": ROWS["id000"], "asked": ROWS["id001"]})
    assert [hit.id for hit in index.query(ROWS["id000"], ["asked", "unknown"], 5)] == ["asked"]
    assert index.query(ROWS["id000"], ["unknown"], 5) == []
    assert index.query(ROWS["id000"], [], 5) == []
    assert index.query(ROWS["id000"], ["asked"], 0) == []
    assert index.missing(["asked", "unknown"]) == {"unknown"}


def test_an_upsert_replaces(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.upsert({"one": ROWS["id000"]})
    index.upsert({"one": ROWS["id001"]})
    assert index.query(ROWS["id001"], ["one"], 1)[0].cosine == pytest.approx(1, abs=1e-5)


def test_it_is_still_there_after_closing(tmp_path: Path, opened: ExitStack) -> None:
    with closing(Index(tmp_path, TINY)) as first:
        assert first.rebuild(ROWS) == 60
    second = opened.enter_context(closing(Index(tmp_path, TINY)))
    health = second.check(ROWS)
    assert (health.missing, health.orphans, health.self_recall, health.sound) == ((), 0, 1.0, True)


def test_a_check_tells_what_is_missing_and_what_is_too_much(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.upsert({"here": ROWS["id000"], "orphan": ROWS["id001"]})
    health = index.check({"here": ROWS["id000"], "lost": ROWS["id002"]})
    assert (health.missing, health.orphans, health.sound) == (("lost",), 1, False)


def test_vectors_that_are_not_those_of_the_database_are_found_out(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.rebuild({id: vector(n + 1000) for n, id in enumerate(ROWS)})
    health = index.check(ROWS)
    assert health.missing == ()
    assert health.baseline == 1.0
    assert health.self_recall < 0.2
    assert not health.sound
    index.rebuild(ROWS)
    assert index.check(ROWS).sound


def test_equal_texts_under_two_ids_are_no_fault(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.rebuild({"one": ROWS["id000"], "two": ROWS["id000"]})
    assert index.check({"one": ROWS["id000"], "two": ROWS["id000"]}).sound


@pytest.mark.parametrize("other", [Sized("other", 16), Sized("tiny", 8)])
def test_another_embedder_is_refused_until_the_index_is_rebuilt(tmp_path: Path, opened: ExitStack, other: Sized) -> None:
    with closing(Index(tmp_path, TINY)) as index:
        index.rebuild(ROWS)
    index = opened.enter_context(closing(Index(tmp_path, other)))
    rows = {"new": vector(1, other.dimension)}
    refused = (
        rf"was made with tiny \(16 dimensions\), this run embeds with {other.name} \({other.dimension}\): `assay skills reindex`"
    )
    for use in (lambda: index.query(rows["new"], rows, 1), lambda: index.upsert(rows), lambda: index.check(rows)):
        with pytest.raises(StoreError, match=refused):
            use()
    assert index.rebuild(rows) == 1
    assert index.query(rows["new"], rows, 1)[0].id == "new"


def test_vectors_of_a_wrong_size_are_refused(opened: ExitStack) -> None:
    index = opened.enter_context(closing(Index(None, TINY)))
    index.upsert(ROWS)
    with pytest.raises(StoreError, match=r"in memory.*dimension.*`assay skills reindex` builds it anew"):
        index.query(vector(1, 8), ROWS, 1)


@pytest.mark.parametrize("pattern", ["chroma.sqlite3", "*/data_level0.bin"])
def test_damaged_files_are_thrown_away_unread(tmp_path: Path, opened: ExitStack, pattern: str) -> None:
    rows = {f"id{n:04}": vector(n) for n in range(1100)}  # Chroma writes its graph to disk every thousand
    with closing(Index(tmp_path, TINY)) as index:
        index.rebuild(rows)
    [file] = tmp_path.glob(f"*/*/{pattern}")
    file.write_bytes(b"\xff" * 4096)  # Chroma 1.5.9 dies of the second kind with a segmentation fault
    index = opened.enter_context(closing(Index(tmp_path, TINY)))
    assert index.missing(rows) == set(rows)
    assert index.rebuild(rows) == 1100
    assert index.query(rows["id0001"], rows, 1)[0].id == "id0001"


def test_a_second_opener_builds_a_copy_of_its_own(tmp_path: Path, opened: ExitStack) -> None:
    first = opened.enter_context(closing(Index(tmp_path, TINY)))
    first.rebuild(ROWS)
    second = opened.enter_context(closing(Index(tmp_path, TINY)))
    assert second.missing(ROWS) == set(ROWS)
    second.upsert({"mine": ROWS["id000"]})
    assert second.query(ROWS["id000"], ["mine"], 1)[0].id == "mine"
    assert first.missing(["mine"]) == {"mine"}
    with pytest.raises(StoreError, match="in use by another process"):
        second.rebuild(ROWS)
    first.close()
    assert second.rebuild(ROWS) == 60


def test_tenants_and_kinds_have_files_of_their_own(tmp_path: Path, opened: ExitStack) -> None:
    indexes = [
        opened.enter_context(closing(Index(tmp_path, TINY, tenant=tenant, name=name)))
        for tenant, name in (("acme", "skills"), ("rival", "skills"), ("acme", "memories"))
    ]
    for place, index in enumerate(indexes):
        index.upsert({f"only{place}": ROWS["id000"]})
    for place, index in enumerate(indexes):
        everywhere = [f"only{n}" for n in range(3)]
        assert [hit.id for hit in index.query(ROWS["id000"], everywhere, 3)] == [f"only{place}"]
