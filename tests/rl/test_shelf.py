"""The shelf: an adapter's record is kept once, found by its training and its skill, and belongs to its tenant."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.errors import UsageError
from memory.database import Database
from rl.recipe import Adapter, Point, Recipe, Trained
from rl.shelf import Shelf


def adapter(name: str = "a" * 64, **more: object) -> Adapter:
    made = Trained(adapter=name, kept=1, curve=(Point(step=1, loss=1.0),), held=(), seconds=1.0)
    given = {"skill": "s1", "training": "t1", "source": "its own runs", "runs": ("r1",), **more}
    return Adapter(base="b", recipe=Recipe(), trained=made, created=datetime.now(UTC), **given)


def test_a_record_is_found_and_never_overwritten(tmp_path: Path) -> None:
    shelf = Shelf(Database(f"sqlite:///{tmp_path / 'x.db'}"))
    first = adapter()
    shelf.put(first)
    shelf.put(adapter(source="somebody else's story"))
    shelf.put(adapter("b" * 64, training="t2", skill="s2", parent="a" * 64))
    assert shelf.get(first.name) == first
    assert shelf.trained("t1") == first
    assert shelf.trained("t3") is None
    assert [found.name[0] for found in shelf.all()] == ["a", "b"]
    assert [found.name[0] for found in shelf.all("s2")] == ["b"]
    with pytest.raises(UsageError, match="adapter cccccccccccc is not known"):
        shelf.get("c" * 64)


def test_a_tenant_sees_its_own_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    Shelf(Database(url, "one")).put(adapter())
    other = Shelf(Database(url, "two"))
    assert other.all() == []
    assert other.trained("t1") is None
    with pytest.raises(UsageError):
        other.get("a" * 64)
