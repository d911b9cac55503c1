"""Task files: what is read, how splits are dealt, and that a bad line is refused by name before anything runs."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import harness
from api.imports import imported, shadowed
from api.tasks import detectable, load
from harness.errors import UsageError
from harness.message import Action
from harness.task import Task
from harness.trajectory import Trajectory

EXAMPLES = Path(__file__).parents[2] / "examples"
TOOLS = '''
from harness.tool import tool

@tool(effect="read")
def price(item: str) -> str:
    """What an item costs."""
    return f"{item} costs 24"

def pay(amount: int, to: str = "shop") -> str:
    """Pay."""
    return "paid"

async def later(item: str) -> str:
    """Look later."""
    return item

@tool(effect="read", name="price")
def other_price(name: str) -> str:
    """Another one."""
    return name

def bare(item):
    return item

def right(task, trajectory, state):
    return trajectory.answer == "24"

NUMBER = 3
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user's directory with tools in it; the name of its module."""
    name = f"mine_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}.py").write_text(TOOLS)
    (tmp_path / f"{name}_broken.py").write_text("raise RuntimeError('no luck')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    for loaded in [known for known in sys.modules if known.startswith(name)]:
        del sys.modules[loaded]


def written(rows: Sequence[object], name: str = "tasks.jsonl") -> Path:
    path = Path(name)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def plain(n: int, **more: object) -> list[dict[str, object]]:
    return [{"instruction": f"Task number {i}.", "expect": str(i), **more} for i in range(n)]


# --- the shipped file -----------------------------------------------------------------------------------------


async def test_the_shipped_tasks_load_and_can_be_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    workload = load(EXAMPLES / "tasks.jsonl")
    assert len(workload.tasks) >= 40
    assert {task.split for task in workload.tasks} == {"train", "validate", "test"}
    assert workload.warnings == ()
    assert {name: tool.effect for name, tool in workload.tools.items()} == dict.fromkeys(
        ["order", "catalogue", "multiply"], "read"
    )
    from order_tools import PACKS, row  # type: ignore[import-not-found]

    for task in workload.tasks:
        number = int("".join(c for c in task.instruction if c.isdigit()))
        item, packs, dollars = row(number)
        pieces = packs * PACKS[item]
        wanted, naive = (pieces, packs) if "pieces" in task.instruction else (pieces * dollars, packs * dollars)
        for answer, right in ((str(wanted), 1.0), (str(naive), 0.0)):
            run = Trajectory(id="t", task=task, spec="", policy="", seed=0, answer=answer, created=datetime.now(UTC))
            assert (await workload.verify(task, run, {})).value == right
    environment = workload.open(workload.tasks[0], 0)
    said = await environment.step(Action(kind="call", tool="order", arguments={"number": 1001}))
    assert "quantity" in said.text
    said = await environment.step(Action(kind="call", tool="catalogue", arguments={"item": "cups"}))
    assert "packs of 6" in said.text
    await environment.close()


# --- reading --------------------------------------------------------------------------------------------------


async def test_tools_effects_and_verifiers_of_ones_own(mine: str) -> None:
    tools = [f"{mine}:price", f"{mine}.pay", f"{mine}:later"]
    rows = [
        {"instruction": "Buy it.", "tools": tools, "verify": f"{mine}:right", "effects": {"pay": "episode"}, "split": "validate"},
        {"instruction": "Price it.", "tools": tools[:1], "expect": 24, "split": "validate"},
    ]
    workload = load(written(rows))
    assert {name: tool.effect for name, tool in workload.tools.items()} == {"price": "read", "pay": "episode", "later": "world"}
    first, second = workload.tasks
    assert (first.environment, first.data["tools"], first.split) == ("tools", tools, "validate")
    environment = workload.open(first, 0)
    assert [tool.name for tool in environment.tools] == ["price", "pay", "later", "answer"]
    assert [tool.effect for tool in environment.tools] == ["read", "episode", "world", "read"]
    for name, arguments, said in (
        ("price", {"item": "kettle"}, "kettle costs 24"),
        ("later", {"item": "x"}, "x"),
        ("pay", {"amount": 1}, "paid"),
    ):
        assert (await environment.step(Action(kind="call", tool=name, arguments=arguments))).text == said
    await environment.close()
    assert [tool.name for tool in workload.open(second, 0).tools] == ["price", "answer"]
    for task in workload.tasks:
        for answer, value in (("24", 1.0), ("25", 0.0)):
            run = Trajectory(id="t", task=task, spec="", policy="", seed=0, answer=answer, created=datetime.now(UTC))
            assert (await workload.verify(task, run, {})).value == value
    with pytest.raises(UsageError, match="is not of the file"):
        workload.open(Task(instruction="Another."), 0)
    assert not hasattr(imported(f"{mine}:pay"), "tool"), "the user's own function keeps what it says of itself"


def test_an_effect_may_be_given_by_path_and_overrules_a_declaration(mine: str) -> None:
    row = {
        "instruction": "a",
        "tools": [f"{mine}:price"],
        "effects": {f"{mine}:price": "world"},
        "expect": "x",
        "split": "validate",
    }
    assert load(written([row])).tools["price"].effect == "world"


# --- splits ---------------------------------------------------------------------------------------------------


def test_splits_are_dealt_by_content_half_and_three_and_two_tenths(mine: str) -> None:
    tasks = load(written(plain(2000))).tasks
    shares = {split: sum(task.split == split for task in tasks) / 2000 for split in ("train", "validate", "test")}
    assert shares == pytest.approx({"train": 0.5, "validate": 0.3, "test": 0.2}, abs=0.03)
    again = load(written([*plain(2000)[::-1], *plain(2100)[2000:]], "more.jsonl")).tasks
    before = {task.instruction: task.split for task in tasks}
    assert all(before[task.instruction] == task.split for task in again if task.instruction in before), "more lines move no task"


def test_duplicates_stay_together(mine: str) -> None:
    rows: list[dict[str, object]] = []
    for i in range(60):
        for instruction, expected in ((f"Task {i}.", "a"), (f"  task  {i}", "b"), (f"Task {i}", "a")):
            rows.append({"instruction": instruction, "expect": expected})
    tasks = load(written(rows)).tasks
    for i in range(60):
        assert len({task.split for task in tasks[3 * i : 3 * i + 3]}) == 1
    first = {"train": "validate", "validate": "test", "test": "train"}[tasks[0].split]
    rows[1] = {**rows[1], "split": first}
    assert {task.split for task in load(written(rows)).tasks[:3]} == {first}, "one line that says it decides for its duplicates"


def test_the_same_task_in_two_splits_is_refused(mine: str) -> None:
    rows = [{"instruction": "Same.", "expect": "a", "split": "train"}, {"instruction": "same", "expect": "a", "split": "test"}]
    with pytest.raises(UsageError, match="line 2: split test, but line 1 has the same instruction in train"):
        load(written(rows))


def test_without_a_validate_task_nothing_begins(mine: str) -> None:
    with pytest.raises(UsageError, match="no validate task") as refused:
        load(written([*plain(40, split="train"), {"instruction": "x", "expect": "y", "split": "test"}]))
    assert "found 40 train, 1 test" in str(refused.value)
    with pytest.raises(UsageError, match="no validate task"):
        load(written([]))


# --- few tasks ------------------------------------------------------------------------------------------------


def test_few_tasks_get_a_warning_with_what_can_still_be_seen(mine: str) -> None:
    assert load(written(plain(30, split="validate"))).warnings == ()
    [warning] = load(written(plain(29, split="validate"))).warnings
    assert "29 tasks, 29 of them for trials" in warning
    assert f"an effect of {detectable(29):+.2f} or more" in warning
    [warning] = load(written(plain(3, split="validate"))).warnings
    assert "not even a candidate that always succeeds" in warning


def test_more_pairs_detect_smaller_effects() -> None:
    found = [detectable(pairs) for pairs in (8, 9, 12, 20, 40, 100, 300)]
    assert found[:2] == [None, 1.0], "2 ** 10 / 10 is the first capital of only wins above 1 / 0.0114"
    effects = [effect for effect in found if effect is not None]
    assert effects == sorted(effects, reverse=True)
    assert effects[-1] <= 0.25


# --- bad lines ------------------------------------------------------------------------------------------------

GOOD = {"instruction": "Fine.", "expect": "x", "split": "validate"}
BAD: list[tuple[Any, str, str]] = [
    ("{not json", "not JSON", "one object a line"),
    ("[1, 2]", "found list", "instruction, tools, verify, expect, effects, split"),
    ({"instruction": "a", "expect": "x", "tool": []}, "the field 'tool'", "allowed are instruction, tools"),
    ({"expect": "x"}, "instruction: found nothing", "a text is needed"),
    ({"instruction": " ", "expect": "x"}, "instruction: found str", "a text is needed"),
    ({"instruction": "a"}, "neither verify nor expect", "one of them is needed"),
    ({"instruction": "a", "expect": "x", "verify": "MINE:right"}, "both verify and expect", "one of them"),
    ({"instruction": "a", "expect": None}, "found None", "allowed are a text, a number"),
    ({"instruction": "a", "expect": {"regex": "("}}, "no regular expression", "("),
    ({"instruction": "a", "expect": "x", "split": "dev"}, "split: found 'dev'", "allowed are train, validate, test"),
    ({"instruction": "a", "expect": "x", "tools": "MINE:price"}, "tools: found str", "a list of import paths"),
    ({"instruction": "a", "expect": "x", "tools": ["price"]}, "'price'", "module:function and module.function"),
    ({"instruction": "a", "expect": "x", "tools": ["MINE:"]}, "'MINE:'", "module:function and module.function"),
    ({"instruction": "a", "expect": "x", "tools": ["MINE_gone:price"]}, "ModuleNotFoundError", "MINE_gone"),
    ({"instruction": "a", "expect": "x", "tools": ["MINE_broken:price"]}, "RuntimeError: no luck", "importing MINE_broken"),
    ({"instruction": "a", "expect": "x", "tools": ["MINE:prize"]}, "no prize in MINE", "it has"),
    ({"instruction": "a", "expect": "x", "tools": ["MINE:NUMBER"]}, "found int", "a function is needed"),
    ({"instruction": "a", "expect": "x", "tools": ["MINE:bare"]}, "parameter item has no annotation", "item: str"),
    (
        {"instruction": "a", "expect": "x", "tools": ["MINE:price", "MINE:other_price"]},
        "the tool name 'price' is taken",
        "@tool(name=...)",
    ),
    (
        {"instruction": "a", "expect": "x", "tools": ["MINE:price"], "effects": {"prize": "read"}},
        "'prize'",
        "its tools are price",
    ),
    (
        {"instruction": "a", "expect": "x", "tools": ["MINE:price"], "effects": {"price": "none"}},
        "'none'",
        "read, episode, world",
    ),
    ({"instruction": "a", "expect": "x", "effects": ["read"]}, "effects: found list", "an object from tool to"),
    ({"instruction": "a", "verify": 3}, "verify: found int", "an import path"),
    ({"instruction": "a", "verify": "MINE:gone"}, "no gone in MINE", "it has"),
]


@pytest.mark.parametrize(("row", "found", "allowed"), BAD)
def test_a_bad_line_is_refused_with_file_line_what_was_found_and_what_is_allowed(
    row: Any, found: str, allowed: str, mine: str
) -> None:
    bad = (row if isinstance(row, str) else json.dumps(row)).replace("MINE", mine)
    path = written([GOOD, "", bad, GOOD])
    with pytest.raises(UsageError) as refused:
        load(path)
    said = str(refused.value)
    assert f"{path}, line 3: " in said
    assert found.replace("MINE", mine) in said
    assert allowed.replace("MINE", mine) in said
    assert said.endswith("Nothing was run.")


def test_all_bad_lines_are_named_at_once(mine: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(written([GOOD, "x", {"instruction": "a"}, GOOD, *["y"] * 20]))
    said = str(refused.value)
    assert "line 2: " in said
    assert "line 3: " in said
    assert "and 12 more" in said


def test_a_tool_means_one_thing_in_a_file(mine: str) -> None:
    rows = [
        {"instruction": "a", "tools": [f"{mine}:price"], "expect": "x", "split": "validate"},
        {"instruction": "b", "tools": [f"{mine}:other_price"], "expect": "x"},
        {"instruction": "c", "tools": [f"{mine}:price"], "effects": {"price": "world"}, "expect": "x"},
    ]
    with pytest.raises(UsageError) as refused:
        load(written(rows))
    assert "line 2: the tool 'price' has another meaning in line 1" in str(refused.value)
    assert "line 3: the tool 'price' has the effect read in line 1" in str(refused.value)


def test_a_byte_order_mark_is_no_part_of_the_first_line(mine: str) -> None:
    line = b'{"instruction": "a", "expect": "1", "split": "validate"}\n'
    Path("marked.jsonl").write_bytes(b"\xef\xbb\xbf" + line)
    assert [task.instruction for task in load(Path("marked.jsonl")).tasks] == ["a"]


def test_a_file_that_cannot_be_read(mine: str) -> None:
    with pytest.raises(UsageError, match=r"task file gone\.jsonl: cannot be read"):
        load(Path("gone.jsonl"))
    Path("latin.jsonl").write_bytes(b'{"instruction": "caf\xe9"}')
    with pytest.raises(UsageError, match="cannot be read"):
        load(Path("latin.jsonl"))


WORDS = st.sampled_from(["instruction", "tools", "verify", "expect", "effects", "split", "regex", "contains", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
ROWS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(ROWS)
def test_whatever_a_line_holds_it_is_loaded_or_refused(row: Any) -> None:
    before = list(sys.path)
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(UsageError):
        path = Path(directory) / "tasks.jsonl"
        path.write_text(json.dumps(row) + "\n")
        assert load(path).tasks[0].split == "validate"
    sys.path[:] = before


# --- the import path ------------------------------------------------------------------------------------------


def test_the_working_directory_comes_after_our_rooms(mine: str, tmp_path: Path) -> None:
    for name in ("harness", "memory"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('the wrong room')")
        (tmp_path / name / "mine.py").write_text("def f(): pass")
    (tmp_path / "skills.py").write_text("")
    load(written([GOOD]))
    assert sys.path.index(str(tmp_path)) > sys.path.index(str(Path(harness.__file__).parents[1]))
    assert shadowed(tmp_path) == ["harness/", "memory/", "skills.py"]
    with pytest.raises(UsageError, match="Assay's own memory/ wins over yours: rename it"):
        load(written([{**GOOD, "tools": ["memory.mine:f"]}]))


def test_our_own_checkout_shadows_nothing() -> None:
    assert shadowed(Path(harness.__file__).parents[1]) == []
