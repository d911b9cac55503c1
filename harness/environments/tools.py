"""ToolsEnvironment: the world of a user's own Python functions; whether they may be called is decided before, by the agent."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from harness.errors import EnvironmentBroken, Infrastructure, UsageError
from harness.message import Action, Observation
from harness.tool import ANSWER, Effect, Tool, checked, describe

ANYTHING: TypeAdapter[object] = TypeAdapter(object)


class ToolsEnvironment:
    """One episode with functions for tools (an Environment). What `tool` did not declare acts on the world.

    `effects` overrules, by name, what the functions declare; with `answer` the agent may also end by a command. A plain function
    runs in a thread, so that a slow one stops nobody. What one raises is the agent's failure and its observation; only
    Infrastructure, ConnectionError and TimeoutError say that the world is broken. Raises UsageError for two tools of one name.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], effects: Mapping[str, Effect] | None = None, answer: bool = True
    ) -> None:
        found = [(_tool(function), function) for function in functions]
        names = [tool.name for tool, _ in found] + [ANSWER.name] * answer
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"the tool name {twice!r} is taken; give the function another with @tool(name=...)")
        for name, effect in (effects or {}).items():
            if name not in names or effect not in get_args(Effect):
                allowed = f"the tools {', '.join(names)} with {', '.join(get_args(Effect))}"
                raise UsageError(f"effects: found {name!r} with {effect!r}; allowed are {allowed}")
        self._functions = {tool.name: function for tool, function in found}
        overruled = [tool.replace(effect=(effects or {}).get(tool.name, tool.effect)) for tool, _ in found]
        self._tools = (*overruled, ANSWER) if answer else tuple(overruled)
        self._calls: list[JsonValue] = []

    @property
    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def start(self) -> Observation:
        return Observation()

    async def step(self, action: Action) -> Observation:
        """Call a function. Raises EnvironmentBroken when it says that the world failed, not the action."""
        if action.kind == "answer":
            return Observation(done=True)
        function = self._functions.get(action.tool)
        if action.kind != "call" or function is None:
            names = ", ".join(self._functions) or "none"
            return Observation(content=action.problem or f"there is no tool {action.tool!r}; the tools are {names}", error=True)
        observation = await self._called(action, function)
        self._calls.append([action.tool, dict(action.arguments), observation.text])
        return observation

    async def state(self) -> Mapping[str, JsonValue]:
        """`calls`: name, arguments and what came back of each call, in order."""
        return {"calls": list(self._calls)}

    async def close(self) -> None:
        return None

    async def _called(self, action: Action, function: Callable[..., Any]) -> Observation:
        try:
            arguments = checked(function, action.arguments)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(str(p) for p in e['loc']) or 'value'}: {e['msg']}" for e in error.errors())
            return Observation(content=f"{action.tool}: {wrong}", error=True)
        except TypeError as error:
            return Observation(content=f"{action.tool}: {error}", error=True)
        try:
            return Observation(content=_text(await _result(function, arguments)))
        except (Infrastructure, ConnectionError, TimeoutError) as error:
            raise EnvironmentBroken(f"{action.tool}: {type(error).__name__}: {error}") from error
        except Exception as error:
            said = str(error) if isinstance(error, _Quit) else f"{type(error).__name__}: {error}"
            return Observation(content=said, error=True)


class _Quit(Exception):
    """A tool wanted to end the process; its message says how."""


async def _result(function: Callable[..., Any], arguments: Mapping[str, Any]) -> object:
    """What the function returns. KeyboardInterrupt and SystemExit would stop the event loop from inside a task or a thread."""
    if inspect.iscoroutinefunction(function):
        return await _awaited(function(**arguments))
    found = await asyncio.to_thread(_plain, function, arguments)
    return await _awaited(found) if inspect.isawaitable(found) else found


def _plain(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    try:
        return function(**arguments)
    except (SystemExit, KeyboardInterrupt, StopIteration) as error:
        raise _Quit(f"{type(error).__name__}: {error}") from error


async def _awaited(found: Awaitable[Any]) -> object:
    try:
        return await found
    except (SystemExit, KeyboardInterrupt) as error:
        raise _Quit(f"{type(error).__name__}: {error}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _Quit("CancelledError: the tool cancelled itself") from error


def _tool(function: Callable[..., Any]) -> Tool:
    declared = getattr(function, "tool", None)
    return declared if isinstance(declared, Tool) else describe(function, effect="world")


def _text(found: object) -> str:
    """A result as the model reads it: a text as it is, anything else as JSON, and as its own words where JSON has none."""
    if isinstance(found, str):
        return found
    try:
        return json.dumps(ANYTHING.dump_python(found, mode="json"), ensure_ascii=False)
    except (TypeError, ValueError):
        return str(found)
