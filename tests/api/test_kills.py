"""kill -9 anywhere in `assay evolve` and `assay train`, then the same command again: it ends as if nothing had happened."""

import contextlib
import json
import random
import signal
import sqlite3
from typing import Any

import pytest

from tests.api.school import EVOLVE, TRAIN, School

LIVES = 32
"""Of each command; every one is killed once at least, the first time in its own part of the command's steps."""
TWO_STEPS = (*TRAIN, "--steps", "2")
Facts = dict[str, Any]


@pytest.fixture(scope="session")
def school(tmp_path_factory: pytest.TempPathFactory) -> School:
    return School.opened(tmp_path_factory.mktemp("school"))


@pytest.fixture(scope="session")
def evolved(school: School) -> tuple[Facts, int]:
    """How `assay evolve` ends when nobody kills it, and its number of steps."""
    return whole(school.copy("evolved"), EVOLVE)


@pytest.fixture(scope="session")
def learned(school: School, evolved: tuple[Facts, int]) -> tuple[Facts, int]:
    """The same of `assay train`, from that head on."""
    return whole(School(school.place, "evolved").copy("learned"), TWO_STEPS)


def whole(life: School, command: tuple[str, ...]) -> tuple[Facts, int]:
    done = life.process(*command, dies_at=0)
    assert done.returncode == 0, done.stderr
    return facts(life, done.stdout), int((life.data / "steps").read_text())


def lived(life: School, command: tuple[str, ...], part: tuple[int, int], seed: str, steps: int) -> tuple[int, Facts]:
    """Kill the command until it ends; the number of kills, and what it ended in."""
    rng = random.Random(seed)
    dies_at = rng.randint(max(part[0], 1), max(part[1], 1))
    for kills in range(4):
        done = life.process(*command, dies_at=dies_at)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            return kills, facts(life, done.stdout)
        dies_at = rng.randint(1, steps // 3)
    done = life.process(*command)
    assert done.returncode == 0, done.stderr
    return 4, facts(life, done.stdout)


def facts(life: School, printed: str) -> Facts:
    """Everything that a kill must not change; times and the order of writing are not of it."""
    verdict = ("decision", "code", "pairs", "effect", "low", "index", "level", "change", "trial", "answers")
    with contextlib.closing(sqlite3.connect(life.data / "assay.db")) as opened:
        heads = opened.execute("select number, parent, how, spec, change, trial from head order by number").fetchall()
        verdicts = [json.loads(row[0]) for row in opened.execute("select body from verdict order by trial, place")]
        ledger = opened.execute("select column, place, value from rollout where place < 9 order by 1, 2").fetchall()
        known = bool(opened.execute("select count(*) from sqlite_master where name = 'adapter'").fetchone()[0])
        adapters = opened.execute("select digest, training, skill from adapter order by 1").fetchall() if known else []
        runs = opened.execute("select count(*), count(distinct id) from trajectory").fetchone()
        budgets = opened.execute("select * from error_budget order by 1, 2, 3").fetchall()
    assert runs[0] == runs[1]
    answer = json.loads(printed)
    return {
        "heads": heads, "adapters": adapters, "budgets": budgets, "ledger": ledger,
        "verdicts": [{name: v[name] for name in verdict} for v in verdicts],
        "printed": [v["trial"] for v in answer] if isinstance(answer, list) else answer["adapter"]["trained"]["adapter"],
        "weights": sorted(path.name for path in (life.data / "adapters").iterdir()) if adapters else [],
        "stages": [(s["name"], s["measured"]["success"]) for s in answer["stages"]] if isinstance(answer, dict) else [],
        "left": [path.name for path in (life.data / "training").iterdir()] if (life.data / "training").exists() else [],
    }  # fmt: skip


def parts(steps: int, life: int) -> tuple[int, int]:
    return steps * life // LIVES, steps * (life + 1) // LIVES


@pytest.mark.slow
@pytest.mark.parametrize("life", range(LIVES))
def test_evolve_killed_anywhere_ends_the_same(life: int, school: School, evolved: tuple[Facts, int]) -> None:
    expected, steps = evolved
    kills, found = lived(school.copy(f"evolve-{life}"), EVOLVE, parts(steps, life), f"evolve {life}", steps)
    assert kills >= 1
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("life", range(LIVES))
def test_train_killed_anywhere_ends_the_same(life: int, school: School, learned: tuple[Facts, int]) -> None:
    expected, steps = learned
    begun = School(school.place, "evolved").copy(f"train-{life}")
    kills, found = lived(begun, TWO_STEPS, parts(steps, life), f"train {life}", steps)
    assert kills >= 1
    assert found == expected
