"""A claim: one owner at a time, and nothing is read that a dead owner may have torn."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import StoreError
from memory.claim import Claim

ROOT = Path(__file__).parents[2]


def taken(folder: Path) -> Claim:
    claim = Claim.take(folder)
    assert claim is not None
    return claim


def test_what_was_closed_is_there_for_the_next_owner(tmp_path: Path) -> None:
    first = taken(tmp_path / "index")
    (first.path / "file").write_text("kept")
    first.close()
    second = taken(tmp_path / "index")
    assert (second.path / "file").read_text() == "kept"
    assert second.path.parent == tmp_path / "index"
    assert second.path.stat().st_mode & 0o777 == 0o700


def test_only_one_has_it(tmp_path: Path) -> None:
    first = taken(tmp_path)
    assert Claim.take(tmp_path) is None
    first.close()
    first.close()
    assert Claim.take(tmp_path) is not None


def test_what_a_killed_owner_left_is_thrown_away(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom memory.claim import Claim\n"
        "claim = Claim.take(Path(sys.argv[1]))\n(claim.path / 'file').write_text('torn')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == -9
    torn = list(tmp_path.glob("*/file"))
    assert len(torn) == 1
    claim = taken(tmp_path)
    assert list(claim.path.iterdir()) == []
    assert not torn[0].exists()


def test_a_program_that_ends_well_closes_what_it_forgot(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom memory.claim import Claim\n"
        "claim = Claim.take(Path(sys.argv[1]))\n(claim.path / 'file').write_text('whole')\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    assert (taken(tmp_path).path / "file").read_text() == "whole"


def test_a_renewed_claim_is_empty_and_lies_elsewhere(tmp_path: Path) -> None:
    claim = taken(tmp_path)
    before = claim.path
    (before / "file").write_text("old")
    claim.renew()
    assert claim.path != before
    assert not before.exists()
    claim.close()
    assert taken(tmp_path).path == claim.path


def test_what_the_disk_has_changed_is_thrown_away(tmp_path: Path) -> None:
    claim = taken(tmp_path)
    (claim.path / "deep").mkdir()
    (claim.path / "deep" / "file").write_text("whole")
    claim.close()
    (claim.path / "deep" / "file").write_text("whale")
    assert list(taken(tmp_path).path.iterdir()) == []


@pytest.mark.parametrize("left", ["../../elsewhere 0", "lock 0", "\x00", "gone 0", ""])
def test_a_tampered_lock_leads_nowhere(tmp_path: Path, left: str) -> None:
    (tmp_path / "lock").write_text(left)
    claim = taken(tmp_path)
    assert claim.path.parent == tmp_path
    assert claim.path.is_dir()
    assert claim.path.name.isalnum()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match=r"taken/index.*choose another data directory"):
        Claim.take(tmp_path / "taken" / "index")
