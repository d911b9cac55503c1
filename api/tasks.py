"""Task files: JSON lines that name a user's own tools and verifiers. Read whole and checked before anything runs; never written.

    {"instruction": "...", "tools": ["module:function"], "verify": "module:function", "effects": {"function": "read"},
     "split": "train"}

`expect` (an answer, see `harness/verifier.py`) may stand instead of `verify`; `effects` and `split` may be left out. Modules are
found in the working directory and beside the file, after everything that is installed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import numpy as np
from pydantic import JsonValue

from api.imports import imported, reach, shadowed
from evolve.budget import CAMPAIGN, level
from evolve.gate import Rule
from evolve.simulate import independent, simulate
from harness.environments.tools import ToolsEnvironment
from harness.errors import UsageError
from harness.reward import Reward
from harness.seams import Environment, OpenEnvironment, Verify
from harness.task import Split, Task
from harness.tool import Effect, Tool
from harness.trajectory import Trajectory
from harness.value import digest
from harness.verifier import expect, judged, normal

__all__ = ["Workload", "detectable", "load", "shadowed"]

FIELDS = ("instruction", "tools", "verify", "expect", "effects", "split")
FEW = 30
"""Tasks below which a file gets a warning."""
SHOWN = 10
"""Bad lines that one refusal names."""
T = TypeVar("T")
SHARES: Mapping[Split, float] = {"train": 0.5, "validate": 0.3, "test": 0.2}


@dataclass(frozen=True)
class Workload:
    """A user's tasks, the world that they are done in, and what is to be said about them."""

    tasks: tuple[Task, ...]
    open: OpenEnvironment
    verify: Verify
    tools: Mapping[str, Tool]
    """By name, each with the effect that counts here."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Line:
    number: int
    instruction: str
    data: Mapping[str, JsonValue]
    split: Split | None
    functions: tuple[Callable[..., Any], ...]
    tools: tuple[Tool, ...]
    verify: Verify


def load(path: Path) -> Workload:
    """Read and check a whole file; raises UsageError that names every bad line, what was found and what is allowed."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"task file {path}: cannot be read ({error}); JSON lines in UTF-8 are expected") from error
    reach((Path.cwd(), path.resolve().parent))
    lines: list[_Line] = []
    bad: list[str] = []
    for number, written in enumerate(text.splitlines(), 1):
        try:
            if written.strip():
                lines.append(_line(number, written))
        except UsageError as error:
            bad.append(f"line {number}: {error}")
    bad += _quarrels(lines)
    if bad:
        more = f"\n... and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise UsageError("\n".join(f"{path}, {each}" for each in bad[:SHOWN]) + more + "\nNothing was run.")
    tasks = _dealt(lines)
    counts = {split: sum(task.split == split for task in tasks) for split in get_args(Split)}
    if not counts["validate"]:
        raise UsageError(
            f"{path} has no validate task, so nothing could be admitted (found {counts['train']} train, {counts['test']} test)."
            ' Add tasks, or write "split": "validate" into some lines'
        )
    return Workload(
        tasks=tasks,
        open=_opener(path, lines),
        verify=_verifier(path, lines),
        tools={tool.name: tool for line in lines for tool in line.tools},
        warnings=(_few(len(tasks), counts["validate"]),) if len(tasks) < FEW else (),
    )


def detectable(pairs: int, *, power: float = 0.8, streams: int = 2000) -> float | None:
    """The smallest effect, in steps of 0.05, that the first trial of a default campaign admits with this probability.

    Simulated with the gate's own rule and so many pairs; both arms pass or fail, around 50 %, where differences are noisiest.
    None where not even an effect of 1 is admitted.
    """
    rule, granted = Rule(max_pairs=pairs), level(Rule().alpha, 1, CAMPAIGN, 0)
    rng = np.random.default_rng(0)
    for step in range(1, 21):
        effect = step / 20
        d = independent(rng, streams, pairs, (1 - effect) / 2, (1 + effect) / 2)
        if simulate(d, rule, granted).admitted.mean() >= power:
            return effect
    return None


def _line(number: int, written: str) -> _Line:
    try:
        found = json.loads(written)
    except ValueError as error:
        raise UsageError(f"found {written.strip()[:60]!r}, which is not JSON ({error}); one object a line is expected") from error
    if not isinstance(found, dict):
        raise UsageError(f"found {_kind(found)}; an object with {', '.join(FIELDS)} is expected")
    unknown = [name for name in found if name not in FIELDS]
    if unknown:
        raise UsageError(f"found the field {unknown[0]!r}; allowed are {', '.join(FIELDS)}")
    instruction, split = found.get("instruction"), found.get("split")
    if not isinstance(instruction, str) or not instruction.strip():
        raise UsageError(f"instruction: found {_kind(instruction)}; a text is needed")
    if split is not None and split not in get_args(Split):
        raise UsageError(f"split: found {split!r}; allowed are {', '.join(get_args(Split))}")
    if ("verify" in found) == ("expect" in found):
        both = "both verify and expect" if "verify" in found else "neither verify nor expect"
        raise UsageError(f"found {both}; one of them is needed, or nothing could be measured")
    functions, tools = _tools(found.get("tools", []), found.get("effects", {}))
    data = {name: value for name, value in found.items() if name not in ("instruction", "split")}
    return _Line(number, instruction, data, cast(Split | None, split), functions, tools, _verify(found))


def _tools(paths: object, effects: object) -> tuple[tuple[Callable[..., Any], ...], tuple[Tool, ...]]:
    """The functions of a line, and each as a tool with the effect that counts here; undeclared ones count as `world`."""
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"tools: found {_kind(paths)}; a list of import paths (module:function) is needed")
    if not isinstance(effects, dict):
        raise UsageError(f"effects: found {_kind(effects)}; an object from tool to {', '.join(get_args(Effect))} is needed")
    functions = tuple(imported(path) for path in paths)
    *tools, _ = ToolsEnvironment(functions).tools
    names = [tool.name for tool in tools]
    for name, effect in effects.items():
        if name not in names and name not in paths:
            raise UsageError(
                f"effects: found {name!r}, which is no tool of this line; its tools are {', '.join(names) or 'none'}"
            )
        if effect not in get_args(Effect):
            raise UsageError(f"effects: found {effect!r} for {name}; allowed are {', '.join(get_args(Effect))}")
    counted = (effects.get(tool.name, effects.get(path, tool.effect)) for path, tool in zip(paths, tools, strict=True))
    return functions, tuple(tool.replace(effect=effect) for tool, effect in zip(tools, counted, strict=True))


def _verify(found: Mapping[str, Any]) -> Verify:
    if "expect" in found:
        return expect(found["expect"])
    if not isinstance(found["verify"], str):
        raise UsageError(f"verify: found {_kind(found['verify'])}; an import path (module:function) is needed")
    return judged(imported(found["verify"]))


def _quarrels(lines: Sequence[_Line]) -> list[str]:
    """Lines that do not fit an earlier one: a tool that is another thing there, or the same task in another split."""
    tools: dict[str, tuple[int, Tool]] = {}
    splits: dict[str, tuple[int, Split]] = {}
    bad = []
    for line in lines:
        for mine in line.tools:
            number, tool = tools.setdefault(mine.name, (line.number, mine))
            if tool != mine:
                same = tool == mine.replace(effect=tool.effect)
                what = f"the effect {tool.effect}" if same else "another meaning"
                bad.append(
                    f"line {line.number}: the tool {tool.name!r} has {what} in line {number}; a name means one thing in a file"
                )
        if line.split is not None:
            number, split = splits.setdefault(_content(line), (line.number, line.split))
            if split != line.split:
                bad.append(f"line {line.number}: split {line.split}, but line {number} has the same instruction in {split}")
    return bad


def _content(line: _Line) -> str:
    """What makes two lines duplicates, whatever is expected of them: the instruction, but for case, spaces and its full stop."""
    return digest(normal(line.instruction))


def _dealt(lines: Sequence[_Line]) -> tuple[Task, ...]:
    """Tasks in their splits: as written, else by the digest of the content, so that more lines never move a task."""
    written = {_content(line): line.split for line in lines if line.split is not None}
    tasks = []
    for line in lines:
        place = int(_content(line)[:12], 16) / 16**12
        dealt: Split = "train" if place < SHARES["train"] else "validate" if place < 1 - SHARES["test"] else "test"
        tasks.append(Task(instruction=line.instruction, data=line.data, split=written.get(_content(line)) or dealt))
    return tuple(tasks)


def _few(total: int, validate: int) -> str:
    effect = detectable(validate)
    seen = (
        f"only an effect of {effect:+.2f} or more would be admitted in 4 of 5 trials"
        if effect is not None
        else "not even a candidate that always succeeds where the incumbent always fails could be admitted"
    )
    return (
        f"{total} tasks, {validate} of them for trials: counted once each, {seen}; a trial draws them again and again,"
        f" and what it finds holds for these {validate} and says little about others. {FEW} tasks and more are better"
    )


def _opener(path: Path, lines: Sequence[_Line]) -> OpenEnvironment:
    known = {digest(dict(line.data)): line for line in lines}

    def open_(task: Task, seed: int) -> Environment:
        line = _known(path, known, task)
        return ToolsEnvironment(line.functions, {tool.name: tool.effect for tool in line.tools})

    return open_


def _verifier(path: Path, lines: Sequence[_Line]) -> Verify:
    verifiers = {digest(dict(line.data)): line.verify for line in lines}

    async def verify(task: Task, trajectory: Trajectory, state: Mapping[str, JsonValue]) -> Reward:
        return await _known(path, verifiers, task)(task, trajectory, state)

    return verify


def _known(path: Path, found: Mapping[str, T], task: Task) -> T:
    try:
        return found[digest(dict(task.data))]
    except KeyError:
        raise UsageError(f"the task {task.instruction[:60]!r} is not of the file {path}") from None


def _kind(found: object) -> str:
    return "nothing" if found is None else f"{type(found).__name__} {found!r}"[:80]
