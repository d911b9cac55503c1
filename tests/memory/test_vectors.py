"""Vectors: embedded once, stored by text and model, equal when read back."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.errors import StoreError
from memory.database import Database
from memory.embed import HashedWords
from memory.vectors import Vectors


class Counted(HashedWords):
    """The shipped fake, remembering what it was asked."""

    def __init__(self, name: str = "counted", dimension: int = 2048) -> None:
        self.name, self.dimension = name, dimension
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return super().embed(texts)


def test_a_text_is_embedded_once_for_all_processes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'assay.db'}"
    first, again = Counted(), Counted()
    once = Vectors(Database(url), first).of(["refund an order", "a price", "refund an order"])
    assert once[0] == once[2] != once[1]
    assert first.asked == ["refund an order", "a price"]
    assert Vectors(Database(url), again).of(["a price", "new", "refund an order"])[::2] == [once[1], once[0]]
    assert again.asked == ["new"]


def test_what_is_stored_is_what_was_embedded() -> None:
    embedder = Counted()
    [stored] = Vectors(Database("sqlite://"), embedder).of(["refund order 5 to the customer"])
    assert stored == pytest.approx(embedder.embed(["refund order 5 to the customer"])[0], abs=1e-7)


def test_models_and_tenants_keep_apart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'assay.db'}"
    Vectors(Database(url), Counted("one")).of(["text"])
    other, rival = Counted("two"), Counted("one")
    Vectors(Database(url), other).of(["text"])
    Vectors(Database(url, "rival"), rival).of(["text"])
    assert (other.asked, rival.asked) == (["text"], ["text"])


def test_one_name_never_has_two_sizes() -> None:
    database = Database("sqlite://")
    Vectors(database, Counted("same", 2048)).of(["text"])
    with pytest.raises(StoreError, match=r"same has 2048 dimensions, the embedder 64: .* another name"):
        Vectors(database, Counted("same", 64)).of(["text"])


def test_more_texts_than_a_statement_takes() -> None:
    texts = [f"text {chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(600)]
    vectors = Vectors(Database("sqlite://"), Counted(dimension=16))
    assert vectors.of(texts) == vectors.of(texts)
    assert vectors.of([]) == []
