"""The rules of the house that a reader of one file cannot see: sizes, names, openings, light imports, no tricks."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
ROOMS: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
CODE = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
EVERY = [*CODE, *TESTS, *sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]

LONGEST, USUAL = 400, 120
BANNED = {"utils", "util", "common", "core", "configs", "config", "managers", "manager", "helpers", "misc", "base"}
HEAVY = ("torch", "transformers", "chromadb", "litellm", "sentence_transformers", "ray", "vllm", "matplotlib", "openai")
RUNS_TEXT = ("eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load")
TORCH = ("harness.models.local", "rl.checkpoint", "rl.lora", "rl.objective", "rl.trainer")
"""Made of torch: they may import it at their top; who needs them imports them in a function, which the import test proves."""
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
MOCKS = {"unittest.mock", "mock", "pytest_mock"}

LOAD_ALL = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {heavy!r}:
            raise ImportError(f"{{name}} is heavy: import it inside the function that needs it")

sys.meta_path.insert(0, Blocked())
room = importlib.import_module({room!r})
rooms = [room]
for each in rooms:
    for module in pkgutil.iter_modules(each.__path__, each.__name__ + "."):
        if module.name not in {torch!r}:
            found = importlib.import_module(module.name)
            rooms += [found] * module.ispkg
"""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute of one; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{inner}.{node.attr}" if (inner := dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


def imported(tree: ast.AST) -> dict[str, str]:
    """Every name that a module binds by import, and what it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def tricks(source: str) -> Iterator[str]:
    """What our code does without."""
    tree = ast.parse(source)
    names = imported(tree)
    for target in names.values():
        if target.split(".")[0] in UNSAFE or target in RUNS_TEXT:
            yield target
        if target == "typing.TYPE_CHECKING":
            yield "TYPE_CHECKING: something is in the wrong file"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "TYPE_CHECKING":
            yield "TYPE_CHECKING: something is in the wrong file"
        if isinstance(node, ast.Call) and dotted(node.func) in RUNS_TEXT:
            yield dotted(node.func)


def patches(source: str) -> Iterator[str]:
    """Where a test replaces a part of our own code instead of handing over a fake."""
    tree = ast.parse(source)
    names = imported(tree)
    for target in names.values():
        if any(target == mock or target.startswith(f"{mock}.") for mock in MOCKS):
            yield target
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in ("monkeypatch.setattr", "monkeypatch.delattr"):
            first = node.args[0]
            patched = first.value if isinstance(first, ast.Constant) else names.get(dotted(first).split(".")[0])
            if patched is None or str(patched).split(".")[0] in ROOMS:
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_a_file_is_short_and_says_what_it_is(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= LONGEST, "a file that long is two files"
    opening = ast.get_docstring(ast.parse(source))
    assert opening, "a module opens with one sentence: what it is, and what it is not"
    assert opening.split("\n\n")[0].rstrip().endswith((".", ":")), "the opening is a sentence"


def test_files_are_usually_small(capsys: pytest.CaptureFixture[str]) -> None:
    lines = {room: [path.read_text().count("\n") for path in (ROOT / room).rglob("*.py")] for room in ROOMS}
    report = ", ".join(f"{room} {median(sizes):.0f} ({len(sizes)} files)" for room, sizes in lines.items())
    with capsys.disabled():
        print(f"\nmedian lines: {report}")
    assert median(size for sizes in lines.values() for size in sizes) <= USUAL, report


def test_no_room_is_a_drawer() -> None:
    assert [name(path) for path in CODE if BANNED & {path.stem, *path.relative_to(ROOT).parts[:-1]}] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_light_to_import(room: str, tmp_path: Path) -> None:
    script = LOAD_ALL.format(heavy=HEAVY, room=room, torch=TORCH)
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_no_tricks(path: Path) -> None:
    assert list(tricks(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_our_own_code_is_never_patched(path: Path) -> None:
    assert list(patches(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import dill",
        "import yaml\nyaml.load(x)",
        "from yaml import load",
        "eval('1')",
        "exec('1')",
        "from typing import TYPE_CHECKING",
        "import typing\nif typing.TYPE_CHECKING: ...",
    ],
)
def test_tricks_are_noticed(source: str) -> None:
    assert list(tricks(source))


@pytest.mark.parametrize("source", ["import yaml\nyaml.safe_load(x)", "session.exec(query)", "model.eval()", "'import pickle'"])
def test_honest_code_is_left_alone(source: str) -> None:
    assert list(tricks(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from unittest.mock import patch",
        "from unittest import mock",
        "import unittest.mock",
        "monkeypatch.setattr('evolve.gate.decide', f)",
        "from evolve import gate\nmonkeypatch.setattr(gate, 'decide', f)",
        "import evolve.gate\nmonkeypatch.setattr(evolve.gate, 'decide', f)",
        "agent = build()\nmonkeypatch.setattr(agent, 'run', f)",
    ],
)
def test_patches_are_noticed(source: str) -> None:
    assert list(patches(source))


@pytest.mark.parametrize("source", ["import sys\nmonkeypatch.setattr(sys, 'argv', [])", "monkeypatch.setenv('A', 'b')"])
def test_the_world_around_us_may_be_patched(source: str) -> None:
    assert list(patches(source)) == []
