"""README against the code: every command, option, setting, target and path that it names exists; its style is for readers."""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from api.cli import app
from api.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
COMMAND = get_command(app)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
PLACEHOLDERS = {"TASKS.jsonl", "SKILL.md"}
"""Names that stand for a user's own file."""
WRITTEN = {"out", "data", ".assay", ".venv"}
"""Folders that only a run makes."""


def spoken(text: str) -> Iterator[str]:
    """Every line of code in a Markdown text, and every code span outside of code."""
    for language, body in FENCED.findall(text):
        if language != "python":
            yield from body.splitlines()
    prose = FENCED.sub("", text)
    yield from INDENTED.findall(prose)
    yield from INLINE.findall(INDENTED.sub("", prose))


def commands(text: str) -> Iterator[list[str]]:
    """The words of every `assay ...` command, without what follows a pipe or a comment."""
    for line in spoken(text):
        for part in re.split(r" \| |&&|;", line.removeprefix("$ ")):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words and words[0] == "assay":
                yield words[1:]


def unknown(words: list[str], command: Any = COMMAND) -> list[str]:
    """What this command line names and the command line tool does not have; `show|list` names two commands."""
    if isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        found = [command.commands.get(name) for name in words[0].split("|")]
        if None in found:
            return [f"{command.name} {words[0]}"]
        return [name for each in found if each is not None for name in unknown(words[1:], each)]
    known = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)} | {"--help"}
    given = [word.split("=")[0] for word in words if word.startswith("--") and word != "--"]
    return [f"{command.name} {option}" for option in given if option not in known]


def options(command: Any = COMMAND) -> set[str]:
    """Every option of every command."""
    inner = command.commands.values() if isinstance(command, TyperGroup) else ()
    return {opt for param in command.params for opt in param.opts}.union({"--help"}, *(options(each) for each in inner))


def missing(text: str) -> list[str]:
    """Paths that a Markdown text names and the project does not have."""
    words = {word for line in spoken(text) for word in line.split()}
    words |= {target for target in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in target}
    suffix = re.compile(r"[\w./-]*\w\.(py|md|jsonl|json|toml|txt|html|sh|yaml|yml)|(?!\w+://)[\w.-]+(/[\w.-]+)*/")
    paths = {Path(word) for word in words if suffix.fullmatch(word)} - {Path(name) for name in PLACEHOLDERS}
    return sorted(str(path) for path in paths if path.parts[0] not in WRITTEN and not (ROOT / path).exists())


def broken(source: str) -> list[str]:
    """What a Python block asks of our rooms that they do not have; raises SyntaxError when it is no Python."""
    compile(source, "README.md", "exec")
    rooms = {"harness", "memory", "skills", "evolve", "api"}
    lost = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in rooms:
            module = importlib.import_module(node.module)
            lost += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
    return lost


def test_every_command_exists() -> None:
    named = list(commands(README))
    assert named, "README names no `assay` command"
    assert [problem for words in named for problem in unknown(words)] == []


def test_every_option_alone_exists() -> None:
    alone = {span for span in INLINE.findall(README) if re.fullmatch(r"--[\w-]+", span)}
    assert alone - options() == set()


def test_every_setting_exists() -> None:
    named = set(re.findall(r"\bASSAY_([A-Z_]+)", README))
    assert {name.lower() for name in named} - set(Settings.model_fields) == set()


def test_every_make_target_exists() -> None:
    named = {word for line in spoken(README) for word in re.findall(r"^make ([a-z-]+)", line)}
    assert {"demo", "test", "check"} <= named
    assert named - set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) == set()


def test_every_path_exists() -> None:
    assert missing(README) == [], f"a user's own file is written as one of {sorted(PLACEHOLDERS)}"


@pytest.mark.parametrize("source", [body for language, body in FENCED.findall(README) if language == "python"])
def test_python_blocks_compile_and_find_our_names(source: str) -> None:
    assert broken(source) == []


def test_these_checks_can_fail() -> None:
    text = (
        "```bash\n$ KEY=1 assay skills list|shew --json | head\n```\n\n    assay demo --sed 3  # note\n\n`assay run X --model x`"
    )
    assert [problem for words in commands(text) for problem in unknown(words)] == ["skills list|shew", "demo --sed"]
    text = "`evolve/none.py`, [this](docs/none.md), `evolve/gate.py`, `out/report.html`, `openai/...`, `TASKS.jsonl`"
    assert missing(text) == ["docs/none.md", "evolve/none.py"]
    assert broken("from evolve.gate import decide, nothing") == ["evolve.gate.nothing"]
    with pytest.raises(SyntaxError):
        broken("def f(:")
