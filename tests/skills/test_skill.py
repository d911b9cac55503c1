"""The noun: names and paths within the rules, and every move between statuses that is legal, and no other."""

import itertools
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import skill
from pydantic import ValidationError

from harness.errors import UsageError
from skills.skill import FOLDERS, MOVES, Skill, Status, check_move, first_status, name_problem, path_problem

laws = settings(derandomize=True, deadline=None, max_examples=200)
STATUSES: tuple[Status, ...] = get_args(Status)


@pytest.mark.parametrize("name", ["a", "refund-order", "pdf2text", "ärger-2", "x" * 64])
def test_good_names(name: str) -> None:
    assert name_problem(name) == ""
    assert skill(name).name == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a--b", "a b", "a_b", "a/b", "..", "ﬁle", "x" * 65, "a\n", "a\u200bb"])
def test_bad_names_are_told_the_rule(name: str) -> None:
    with pytest.raises(ValidationError, match="allowed are 1 to 64 lower-case letters, digits and single hyphens"):
        skill(name)


@pytest.mark.parametrize("path", ["scripts/a.py", "references/deep/b.md", "assets/Ä 1.txt"])
def test_good_paths(path: str) -> None:
    assert path_problem(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "", "a.py", "scripts", "scripts/", "/scripts/a", "scripts/../../x", "scripts/./a", "scripts//a", "scripts/.env",
        "../scripts/a", "SCRIPTS/a", "scripts\\a", "scripts/a:b", "scripts/a\x00", "scripts/a\u202eb", "scripts/" + "x" * 200,
        "scripts/a/b/c/d",
    ],
)  # fmt: skip
def test_bad_paths_are_told_the_folders(path: str) -> None:
    with pytest.raises(ValidationError, match="allowed are plain relative paths below scripts/, references/, assets/"):
        Skill(name="a", description="d", body="b", scripts={path: "x"})


@laws
@given(st.text(alphabet=st.sampled_from("abs./\\.: \x00-é"), max_size=20), st.sampled_from(FOLDERS))
def test_a_path_that_passes_stays_inside(tail: str, folder: str) -> None:
    path = f"{folder}/{tail}"
    if not path_problem(path):
        assert not {".", "..", ""} & set(path.split("/"))
        assert not set("\\:\x00") & set(path)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("description", " \n", "is empty"), ("body", "\n", "is empty"), ("description", "x" * 1025, "at most 1024"),
        ("tools", ("a b",), "without spaces and commas"), ("tools", ("",), "without spaces and commas"),
        ("version", 0, "greater than or equal to 1"), ("metadata", {"version": "2"}, "is ours"),
        ("metadata", {"assay.digest": "x"}, "is ours"), ("compatibility", "x" * 501, "at most 500"),
        ("scripts", {f"scripts/{n}": "" for n in range(65)}, "allowed are 64 files"),
        ("scripts", {"scripts/a": "x" * 1_000_001}, "allowed are 64 files of 1000000 characters"),
    ],
)  # fmt: skip
def test_fields_are_bounded(field: str, value: object, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        skill().replace(**{field: value})


def test_duplicates_say_the_same_whoever_wrote_them() -> None:
    one, two = skill("one", "body\n", source="agent"), skill("two", "\nbody", source="human")
    assert one.content == two.content
    assert one.digest != two.digest
    assert one.content != one.replace(scripts={"scripts/a.py": "1"}).content


def test_only_imported_skills_begin_in_quarantine() -> None:
    assert {source: first_status(skill(source=source)) for source in ("agent", "drafter", "human", "planted", "imported")} == {
        "agent": "candidate", "drafter": "candidate", "human": "candidate", "planted": "candidate", "imported": "quarantined",
    }  # fmt: skip


def test_moves_are_those_of_the_table_and_no_others() -> None:
    for before, after in itertools.product(STATUSES, STATUSES):
        kind = MOVES[before].get(after)
        if kind is None:
            with pytest.raises(UsageError, match=f"is {before} and cannot become {after}: allowed are "):
                check_move("x", before, after, "trial-1")
        else:
            check_move("x", before, after, "trial-1")
        if kind == "by hand":
            check_move("x", before, after, "")
        elif kind == "measured":
            with pytest.raises(
                UsageError, match=rf"only a verdict makes it {after}; try it: assay evolve TASKS\.jsonl --skill x"
            ):
                check_move("x", before, after, "")


def test_nothing_leaves_quarantine_for_the_prompt_unmeasured() -> None:
    """Whatever is done by hand, from quarantine no road leads to active."""
    reached: set[Status] = {"quarantined"}
    for _ in STATUSES:
        reached |= {after for before in reached for after, kind in MOVES[before].items() if kind == "by hand"}
    assert "active" not in reached


def test_every_status_can_be_left_and_reached() -> None:
    assert set(MOVES) == set(STATUSES)
    assert all(MOVES[status] for status in STATUSES)
    assert {after for moves in MOVES.values() for after in moves} == set(STATUSES) - {"quarantined"}
