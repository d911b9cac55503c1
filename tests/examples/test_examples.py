"""The shipped examples run as a reader would run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "says"),
    [("01_one_task.py", ""), ("02_own_functions.py", ""), ("03_full_loop.py", "admit"), ("04_langgraph_graph.py", "admit")],
)
def test_it_runs(name: str, says: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "ASSAY_DATA": str(tmp_path / "data")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert done.stdout.strip()
