"""Verifiers that belong to no world: by an expected answer, or by a user's function; neither runs or changes anything."""

import asyncio
import inspect
import math
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from pydantic import JsonValue

from harness.errors import EnvironmentBroken, UsageError
from harness.reward import Reward
from harness.seams import Verify
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest

Judge = Callable[[Task, Trajectory, Mapping[str, JsonValue]], bool | float | Reward | Awaitable[bool | float | Reward]]

FORMS = (
    'a text, a number, {"contains": text or list of texts}, {"regex": pattern}, {"number": x, "within": y}'
    ' or {"any": [two or more of these]}'
)
NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w]|[.,]\d)")


def expect(wanted: JsonValue) -> Verify:
    """A verifier by expected answer: reward 1 or 0.

    A text is compared whole, after normalisation (case, spaces, quotes, a final full stop). A number, or a text that is one,
    also agrees with a sentence in which it is the only number. Raises UsageError for a form that it does not know.
    """
    check(wanted)
    name = f"expect:{digest(wanted)[:16]}"

    async def verify(task: Task, trajectory: Trajectory, state: Mapping[str, JsonValue]) -> Reward:
        if agrees(wanted, trajectory.answer):
            return Reward(value=1.0, verifier=name, note="the answer agrees")
        return Reward(value=0.0, verifier=name, note=f"answer {trajectory.answer[:200]!r}, expected {wanted!r}")

    return verify


def check(wanted: JsonValue) -> None:
    """Raises UsageError unless this is a form of expectation."""
    match wanted:
        case bool() | None:
            pass
        case str(text) if text.strip():
            return
        case int() | float():
            return
        case {"contains": str(text), **rest} if text.strip() and not rest:
            return
        case {"contains": [_, *_] as texts, **rest} if not rest and all(isinstance(t, str) and t.strip() for t in texts):
            return
        case {"regex": str(pattern), **rest} if not rest:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"expected answer: the pattern {pattern!r} is no regular expression ({error})") from error
            return
        case {"number": int() | float() as number, **rest} if not isinstance(number, bool) and not rest.keys() - {"within"}:
            within = rest.get("within", 0)
            if isinstance(within, int | float) and not isinstance(within, bool) and within >= 0:
                return
        case {"any": [_, _, *_] as forms, **rest} if not rest:
            for form in forms:
                check(form)
            return
    raise UsageError(f"expected answer: found {wanted!r}; allowed are {FORMS}")


def agrees(wanted: JsonValue, answer: str) -> bool:
    """Whether an answer is what was expected; an empty one never is."""
    said = normal(answer)
    if not said:
        return False
    match wanted:
        case str(text):
            number = _number(text)
            return said == normal(text) or (number is not None and _only(answer, number, 0.0))
        case int() | float():
            return _only(answer, float(wanted), 0.0)
        case {"contains": str(text)}:
            return normal(text) in said
        case {"contains": list(texts)}:
            return all(normal(str(text)) in said for text in texts)
        case {"regex": str(pattern)}:
            return re.search(pattern, answer) is not None
        case {"number": int() | float() as number, **rest}:
            return _only(answer, float(number), float(cast(float, rest.get("within", 0))))
        case {"any": list(forms)}:
            return any(agrees(form, answer) for form in forms)
    return False


def normal(text: str) -> str:
    """A text as it is compared: one case, single spaces, no quotes, emphasis or full stop around it."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip("\"'`*_ .!“”‘’")


def judged(function: Judge) -> Verify:
    """A user's function as a verifier, `(task, trajectory, state) -> bool | number in [0, 1] | Reward`, plain or async.

    A plain one runs in a thread, so that a slow one stops nobody. What it raises is an EnvironmentBroken: a bad answer must
    be judged 0, not raised. Raises UsageError when it returns something else.
    """
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"

    async def verify(task: Task, trajectory: Trajectory, state: Mapping[str, JsonValue]) -> Reward:
        try:
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
                found = await cast(Awaitable[Any], function(task, trajectory, state))
            else:
                found = await asyncio.to_thread(function, task, trajectory, state)
                found = await found if inspect.isawaitable(found) else found
        except Exception as error:
            raise EnvironmentBroken(
                f"the verifier {name} raised {type(error).__name__}: {error}. A verifier judges a bad answer 0 and raises nothing"
            ) from error
        return _reward(name, found)

    return verify


def _reward(name: str, found: object) -> Reward:
    if isinstance(found, Reward):
        return found if found.verifier else found.replace(verifier=name)
    if isinstance(found, bool | int | float) and 0 <= found <= 1:
        return Reward(value=float(found), verifier=name)
    raise UsageError(f"the verifier {name} returned {found!r}; allowed are True, False, a number from 0 to 1, or a Reward")


def _number(text: str) -> float | None:
    found = NUMBER.fullmatch(normal(text).lstrip("$€£").rstrip("%"))
    return _value(found.group()) if found else None


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _only(answer: str, number: float, within: float) -> bool:
    """Every number in the answer is this one, and there is one."""
    said = [_value(match.group()) for match in NUMBER.finditer(unicodedata.normalize("NFKC", answer))]
    return bool(said) and all(math.isclose(value, number, rel_tol=1e-13, abs_tol=max(within, 1e-13)) for value in said)
