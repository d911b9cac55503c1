"""The suite's `--shard`: shards share nothing, leave nothing out together, and an interrupted one says what it did not finish."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SUITE = """
import time, pytest
@pytest.mark.parametrize("seed", range(12))
def test_quick(seed): pass
"""
ENDLESS = """
import time, pytest
def test_quick(): pass
def test_endless(): print("started", flush=True); time.sleep(60)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}


def interruptible() -> None:
    """In a child: Ctrl-C means Ctrl-C, also where the parent was told to ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]


def run(suite: Path, *arguments: str) -> tuple[int, str]:
    ran = subprocess.run(command(*arguments), cwd=suite, env=ALONE, capture_output=True, text=True, timeout=60, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_shards_share_nothing_and_leave_nothing_out(suite: Path) -> None:
    seen: list[str] = []
    for number in (1, 2):
        code, said = run(suite, "-v", "--shard", f"{number}/2")
        mine = re.findall(r"^test_suite.py::(\S+) PASSED", said, re.MULTILINE)
        assert code == 0
        assert f"left out, in other shards than {number}/2: {12 - len(mine)} tests" in said
        assert "left out, not finished: 0 tests" in said
        seen += mine
    assert sorted(seen) == sorted(f"test_quick[{seed}]" for seed in range(12))


def test_an_empty_shard_is_no_failure_but_an_empty_suite_is(suite: Path) -> None:
    code, said = run(suite, "--shard", "1/1000")
    assert (code, "left out, in other shards than 1/1000: 12 tests" in said) == (0, True)
    assert run(suite, "--shard", "1/1", "-k", "none")[0] == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("wrong", ["4/3", "two"])
def test_a_wrong_shard_is_refused(suite: Path, wrong: str) -> None:
    code, said = run(suite, "--shard", wrong)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"--shard: found '{wrong}'; allowed is K/N" in said


def test_an_interrupted_shard_names_what_it_did_not_finish(suite: Path) -> None:
    (suite / "test_suite.py").write_text(ENDLESS)
    started = subprocess.Popen(
        command("-s", "--shard", "1/1"), cwd=suite, env=ALONE, stdout=subprocess.PIPE, text=True, preexec_fn=interruptible
    )
    assert started.stdout is not None
    said = ""
    while "started" not in said:
        line = started.stdout.readline()
        assert line, said
        said += line
    started.send_signal(signal.SIGINT)
    said += started.communicate(timeout=60)[0]
    assert started.returncode == pytest.ExitCode.INTERRUPTED
    assert "left out, not finished: 1 tests\n  test_suite.py::test_endless" in said
    assert re.search(r"1 passed.* in ", said.splitlines()[-1])
