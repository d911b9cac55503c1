"""The command line as a user meets it: real processes, a real data directory, a hosted model on loopback."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.api.clerk import Hosted

ROOT = Path(__file__).parents[2]
ASSAY = Path(sys.executable).parent / "assay"
ENVIRONMENT = {**os.environ, "ASSAY_API_KEY": "none", "COLUMNS": "200", "NO_COLOR": "1"}


class Desk:
    """A user's directory with the shipped task file, and the model's address."""

    def __init__(self, folder: Path, hosted: Hosted) -> None:
        self.folder, self.hosted = folder, hosted

    def run(self, *words: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(ASSAY), *words], cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True, input=stdin, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def model(self) -> tuple[str, ...]:
        return ("--model", "openai/clerk", "--base-url", self.hosted.url)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("user")
    for name in ("tasks.jsonl", "order_tools.py"):
        shutil.copy(ROOT / "examples" / name, folder / name)
    with Hosted() as hosted:
        yield Desk(folder, hosted)


@pytest.fixture(scope="module")
def verdicts(desk: Desk) -> list[dict[str, Any]]:
    """One generation on the user's tasks: explored, drafted, tried, settled."""
    return list(desk.json("evolve", "tasks.jsonl", *desk.model(), "--yes", "--tries", "3"))


def test_a_users_tasks_run_and_are_kept(desk: Desk, verdicts: list[dict[str, Any]]) -> None:
    rows = desk.json("run", "tasks.jsonl", *desk.model(), "--split", "test", "--limit", "3")
    assert len(rows) == 3
    assert all(row["split"] == "test" and row["error"] is None for row in rows)
    listed = desk.json("runs", "list", "--split", "test")
    assert {row["id"] for row in rows} <= {row["id"] for row in listed}
    assert rows[0]["instruction"] in desk.run("runs", "show", rows[0]["id"][:12]).stdout


def test_evolve_admits_what_helps_and_the_listings_say_why(desk: Desk, verdicts: list[dict[str, Any]]) -> None:
    [verdict] = verdicts
    assert verdict["decision"] == "admit"
    [skill] = desk.json("skills", "list")
    assert (skill["status"], skill["source"]) == ("active", "agent")
    assert skill["verdict"]["trial"] == verdict["trial"]
    shown = desk.json("lineage", "show")
    assert [head["how"] for head in shown["heads"]][:2] == ["root", "admitted"]
    report = (desk.folder / "out" / "report.html").read_text()
    assert verdict["name"] in report


def test_ctrl_c_keeps_every_pair_and_the_printed_command_goes_on(desk: Desk, verdicts: list[dict[str, Any]]) -> None:
    words = ("evolve", "tasks.jsonl", *desk.model(), "--yes", "--tries", "3", "--data", "broken", "--json")
    database = desk.folder / "broken" / "assay.db"
    with Hosted(seconds=0.2) as slow:
        # A suite that runs in the background of a shell would hand its ignored SIGINT down.
        running = subprocess.Popen(
            [str(ASSAY), *words, "--base-url", slow.url], cwd=desk.folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        while running.poll() is None and rollouts(database) < 10:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "Go on with: assay evolve tasks.jsonl" in said
    kept = rollouts(database)
    assert kept >= 10
    [again] = desk.json(*words[:-1])
    [whole] = verdicts
    assert (again["decision"], again["index"]) == (whole["decision"], whole["index"])
    assert rollouts(database) > kept
    with contextlib.closing(sqlite3.connect(database)) as opened:
        assert opened.execute("select count(*) from trial").fetchone() == (1,)


def rollouts(database: Path) -> int:
    """Rollouts of trials that are stored so far."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
            return int(opened.execute("select count(*) from rollout where value is not null").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_money_stops_a_round_and_says_how_to_go_on(desk: Desk) -> None:
    words = ("evolve", "tasks.jsonl", *desk.model(), "--price", "1000/0", "--data", "priced")
    done = desk.run(*words, "--max-cost", "1.0", "--yes")
    assert "of 1.00 USD" in done.stderr
    asked = desk.hosted.asked
    assert asked
    assert "IN/OUT" in desk.run(*words[:-3], "free", "--yes", code=2).stderr
    assert desk.hosted.asked == asked


def test_a_hosted_model_without_a_price_is_asked_about_before_anything_is_spent(desk: Desk) -> None:
    said = desk.run("evolve", "tasks.jsonl", "--model", "openai/no-such-price", "--data", "unpriced").stderr
    assert "no price is known for openai/no-such-price" in said
    assert "--price IN/OUT" in said


def test_a_model_that_never_answers_is_named_and_not_taken_for_a_failing_agent(desk: Desk) -> None:
    words = ("--model", "openai/clerk", "--base-url", f"{desk.hosted.url}/busy", "--tries", "1", "--data", "busy", "--yes")
    said = desk.run("evolve", "tasks.jsonl", *words, code=2).stderr
    assert "runs on train tasks say nothing; the last: model openai/clerk" in said
    assert "go on with: assay evolve" in said


def test_a_data_directory_that_is_none_is_words(desk: Desk) -> None:
    (desk.folder / "file").write_text("")
    assert "file: File exists" in desk.run("lineage", "show", "--data", "file", code=2).stderr
    (desk.folder / "torn").mkdir()
    (desk.folder / "torn" / "assay.db").write_bytes(b"no database" * 99)
    found = json.loads(desk.run("doctor", "--model", "openai/clerk", "--data", "torn", "--json", code=1).stdout)
    assert [row["name"] for row in found["rows"] if not row["ok"]] == ["data directory"]


def test_by_hand_is_recorded_as_unmeasured_and_rolls_back(desk: Desk, verdicts: list[dict[str, Any]]) -> None:
    name = verdicts[0]["name"]
    assert "give either a task file" in desk.run("skills", "retire", name, code=2).stderr
    assert "unmeasured" in desk.run("skills", "retire", name, "--force").stdout
    assert desk.json("skills", "show", name)["history"][-1]["verdict"] == "unmeasured"
    assert "nothing to retire" in desk.run("skills", "retire", name, "--force", code=2).stderr
    desk.run("skills", "restore", name, "--force")
    heads = desk.json("lineage", "show")["heads"]
    assert [h["how"] for h in heads[-2:]] == ["forced", "forced"]
    desk.run("lineage", "rollback", "2")
    assert desk.json("skills", "list")[0]["status"] == "active"
    assert "no head 99" in desk.run("lineage", "rollback", "99", code=2).stderr


def test_export_and_import_keep_the_evidence_and_the_quarantine(
    desk: Desk, verdicts: list[dict[str, Any]], tmp_path: Path
) -> None:
    name = verdicts[0]["name"]
    desk.run("skills", "export", name, str(tmp_path))
    text = (tmp_path / name / "SKILL.md").read_text()
    assert "utility" in text
    other = str(tmp_path / "other")
    desk.run("skills", "import", str(tmp_path / name), "--data", other)
    assert desk.json("skills", "list", "--data", other)[0]["status"] == "quarantined"
    assert "no lineage yet" in desk.run("skills", "restore", name, "--force", "--data", other, code=2).stderr


def test_doctor_names_the_noise_and_what_a_users_folder_shadows(desk: Desk) -> None:
    (desk.folder / "memory").mkdir(exist_ok=True)
    try:
        found = json.loads(desk.run("doctor", "tasks.jsonl", "--aa", "--pairs", "12", *desk.model(), "--json", code=1).stdout)
    finally:
        (desk.folder / "memory").rmdir()
    rows = {row["name"]: row for row in found["rows"]}
    assert "memory" in rows["import path"]["found"]
    assert rows["import path"]["fix"]
    assert found["aa"]["pairs"] == 12
    assert found["aa"]["band"][0] <= 0 <= found["aa"]["band"][1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "nowhere.jsonl"), "nowhere.jsonl"),
        (("run", "tasks.jsonl", "--split", "dev"), "allowed are train, validate, test, all"),
        (("evolve", "tasks.jsonl", "--drafter", "muse"), "allowed are worked, contrast, both"),
        (("skills", "show", "nobody"), "assay skills list"),
        (("runs", "show", "zzz"), "assay runs list"),
        (("runs", "list", "--split", "dev"), "allowed are train, validate, test"),
        (("run", "tasks.jsonl", "--nope"), "--nope"),
    ],
)
def test_bad_input_names_what_is_allowed(desk: Desk, words: tuple[str, ...], said: str) -> None:
    extra = desk.model() if words[0] in ("run", "evolve") else ()
    assert said in desk.run(*words, *extra, code=2).stderr


def test_a_bad_line_is_named_and_nothing_is_half_run(desk: Desk) -> None:
    (desk.folder / "bad.jsonl").write_text('{"instruction": "x", "expect": "1", "split": "dev"}\n')
    asked = desk.hosted.asked
    said = desk.run("evolve", "bad.jsonl", *desk.model(), code=2).stderr
    assert "bad.jsonl" in said
    assert "dev" in said
    assert desk.hosted.asked == asked
