"""The life of a skill at the command line, on a toy that really learns: into weights by a verdict, and back by another."""

import json
import shutil
from pathlib import Path

import pytest

from tests.api.school import EVOLVE, SKILL, TRAIN, School


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> School:
    """The skill is in the prompt by a verdict."""
    made = School.opened(tmp_path_factory.mktemp("school"))
    [verdict] = json.loads(made.run(*EVOLVE).stdout)
    assert verdict["decision"] == "admit"
    return made


@pytest.fixture(scope="module")
def trained(school: School) -> School:
    life = school.copy("trained")
    life.run(*TRAIN, "--steps", "4")
    return life


def test_without_a_margin_it_trains_forecasts_and_tries_nothing(school: School) -> None:
    life = school.copy("forecast")
    words = [word for word in TRAIN if word not in ("--margin", "0.25", "--json")]
    said = life.run(*words, "--steps", "2").stderr
    assert "margin 0.1: the mean reward that it may give away" in said
    assert "--margin M (practice and training are not repeated)" in said
    shown = json.loads(life.run("lineage", "show", "--json").stdout)
    assert len(shown["heads"]) == 2
    assert len(list((life.data / "adapters").iterdir())) == 1


def test_the_adapter_takes_the_texts_place_by_a_verdict_and_every_listing_says_so(trained: School) -> None:
    again = json.loads(trained.run(*TRAIN, "--steps", "4").stdout)
    assert (again["verdict"]["kind"], again["verdict"]["decision"]) == ("retire", "admit")
    adapter = again["adapter"]["trained"]["adapter"]
    shown = json.loads(trained.run("lineage", "show", "--json").stdout)
    assert shown["heads"][-1]["spec"]["policy"]["adapter"] == adapter
    assert (shown["watch"]["runs"], shown["watch"]["alarm"], shown["stale"]) == (0, None, [])
    assert f"@{adapter[:12]}" in trained.run("lineage", "show").stdout
    assert json.loads(trained.run("skills", "list", "--json").stdout)[0]["status"] == "internalised"
    report = (trained.place / "out" / "report.html").read_text()
    assert "From the prompt into weights" in report


def test_the_text_comes_back_through_the_gate_or_stays_out(trained: School) -> None:
    """The adapter carries it: the text on top of it would bring nothing, and the gate says so."""
    life = trained.copy("back")
    verdict = json.loads(life.run("skills", "restore", SKILL, "tasks.jsonl", "--yes", "--json").stdout)
    assert verdict["kind"] == "restore"
    assert verdict["decision"] in ("reject", "indecisive")
    assert json.loads(life.run("skills", "list", "--json").stdout)[0]["status"] == "internalised"


def test_what_is_needed_is_not_retired(school: School) -> None:
    life = school.copy("needed")
    done = life.run("skills", "retire", SKILL, "tasks.jsonl", "--margin", "0.1", "--yes", "--json")
    assert json.loads(done.stdout)["decision"] == "reject"
    assert json.loads(life.run("skills", "list", "--json").stdout)[0]["status"] == "active"


def test_a_damaged_adapter_is_named_and_the_head_stays(trained: School) -> None:
    life = trained.copy("damaged")
    head = json.loads(life.run("lineage", "show", "--json").stdout)["heads"][-1]
    [weights] = (life.data / "adapters" / head["spec"]["policy"]["adapter"]).glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    said = life.process("run", "tasks.jsonl", "--limit", "3", "--json")
    assert "Traceback" not in said.stderr
    assert "damaged" in said.stdout + said.stderr
    assert json.loads(life.run("lineage", "show", "--json").stdout)["heads"][-1] == head
    life.run("lineage", "rollback", "2")
    rows = json.loads(life.run("run", "tasks.jsonl", "--limit", "3", "--json").stdout)
    assert all(row["error"] is None for row in rows)


def test_a_second_command_is_told_who_changes_the_agent(school: School) -> None:
    from api.alone import alone
    from api.settings import Settings

    life = school.copy("alone")
    with alone(Settings(data=life.data)):
        assert "is being changed by process" in life.run(*TRAIN, code=2).stderr
        assert "is being changed by process" in life.run(*EVOLVE, code=2).stderr
    life.run("lineage", "show")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "tasks.jsonl", "--skill", "nobody"), "the names are say-yes"),
        (("train", "nowhere.jsonl", "--skill", SKILL), "nowhere.jsonl"),
        (("evolve", "tasks.jsonl", "--stale"), "--margin 0.1"),
        (("skills", "retire", SKILL), "give either a task file"),
        (("skills", "retire", SKILL, "tasks.jsonl", "--force"), "give either a task file"),
        (("skills", "retire", SKILL, "tasks.jsonl", "--yes"), "margin"),
        (("skills", "restore", SKILL, "tasks.jsonl", "--yes"), "nothing to restore"),
    ],
)
def test_bad_input_names_the_next_step(school: School, words: tuple[str, ...], said: str) -> None:
    assert said in school.run(*words, code=2).stderr


def test_nothing_stale_is_said(school: School) -> None:
    assert "no active skill's evidence is stale" in school.run("evolve", "tasks.jsonl", "--stale", "--margin", "0.1").stderr


def test_new_weights_under_the_old_name_make_evidence_stale(school: School, tmp_path: Path) -> None:
    """Another model in the same folder: the skill's evidence is about the old one, and it is tried again."""
    place = tmp_path / "moved"
    shutil.copytree(school.place, place)
    life = School(place)
    weights = place / "toy" / "model.safetensors"
    from safetensors.torch import load_file, save_file

    tensors = load_file(weights)
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1e-4
    save_file(tensors, weights, {"format": "pt"})
    [verdict] = json.loads(life.run("evolve", "tasks.jsonl", "--stale", "--margin", "0.1", "--yes", "--json").stdout)
    assert (verdict["kind"], verdict["decision"]) == ("retire", "reject")
    assert "no active skill" in life.run("evolve", "tasks.jsonl", "--stale", "--margin", "0.1").stderr
