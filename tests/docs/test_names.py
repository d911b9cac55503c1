"""The rooms' top-level names are ours alone: a stranger's `memory` or `skills` would overwrite our files without a word."""

import importlib
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
OURS: str = PROJECT["project"]["name"]


def strangers() -> dict[str, set[str]]:
    """Room to the other installed distributions that own its name."""
    owners = packages_distributions()
    return {room: others for room in ROOMS if (others := set(owners.get(room, ())) - {OURS})}


def test_no_other_distribution_owns_a_room() -> None:
    assert strangers() == {}, "uninstall it, then install Assay again: its files may have been overwritten"


def test_a_stranger_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "memory-1.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: memory\nVersion: 1.0.0\n")
    (folder / "top_level.txt").write_text("memory\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert strangers() == {"memory": {"memory"}}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_imported_from_this_project(room: str) -> None:
    file = importlib.import_module(room).__file__
    assert file is not None, f"{room} has no __init__.py"
    assert Path(file).resolve().is_relative_to(ROOT)


def test_every_room_is_shipped() -> None:
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert found == set(ROOMS)
