"""Verifiers by expected answer and by a user's function."""

import asyncio
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EnvironmentBroken, UsageError
from harness.reward import Reward
from harness.task import Task
from harness.trajectory import Trajectory
from harness.verifier import agrees, check, expect, judged

TASK = Task(instruction="What does a kettle cost?")


def run(answer: str) -> Trajectory:
    return Trajectory(id="t", task=TASK, spec="", policy="", seed=0, answer=answer, created=datetime.now(UTC))


@pytest.mark.parametrize(
    ("wanted", "answer", "right"),
    [
        ("Paris", " paris. ", True), ("Paris", '"PARIS"', True), ("Paris", "**Paris**", True), ("Paris", "It is Paris", False),
        ("New  York", "new york", True), ("ﬁne", "fine", True), ("Paris", "", False),
        ("24", "24", True), ("24", "24.0", True), ("24", "The kettle costs 24 dollars.", True), ("24", "$24", True),
        ("24", "240", False), ("24", "2 kettles cost 24", False), ("24", "24 or 25", False), ("24", "24, so 24", True),
        ("24", "v24", False), ("24", "1.24", False), ("24", "24.5", False), ("24", "-24", False), ("-24", "−24", True),
        ("1,234.5", "1234.50", True), ("1234", "1,234 in all", True), ("24 dollars", "24", False),
        (24, "24", True), (24, "twenty-four", False), (0.1, "0.1", True), (0.3, "0.30000000000000004", True), (1e3, "1000", True),
        ({"contains": "kettle"}, "A KETTLE!", True), ({"contains": ["kettle", "24"]}, "24 for the kettle", True),
        ({"contains": ["kettle", "24"]}, "the kettle", False), ({"contains": "kettle"}, "", False),
        ({"regex": r"^Q\d+$"}, "Q510", True), ({"regex": r"^Q\d+$"}, "code Q510", False),
        ({"number": 3.14, "within": 0.01}, "about 3.145", True), ({"number": 3.14, "within": 0.01}, "3.2", False),
        ({"number": 24}, "24", True), ({"any": ["yes", {"contains": "agreed"}]}, "we are agreed", True),
        ({"any": ["yes", "no"]}, "maybe", False),
    ],
)  # fmt: skip
async def test_expected_answers(wanted: Any, answer: str, right: bool) -> None:
    reward = await expect(wanted)(TASK, run(answer), {})
    assert reward.value == float(right)
    assert reward.verifier.startswith("expect:")
    assert reward.note


@pytest.mark.parametrize(
    "wanted",
    [None, True, "", "  ", [], {}, {"contains": ""}, {"contains": []}, {"contains": [1]}, {"regex": "("}, {"regex": 3},
     {"number": "24"}, {"number": True}, {"number": 1, "within": -1}, {"number": 1, "near": 2}, {"any": ["yes"]},
     {"any": ["yes", {"regex": "("}]}, {"exact": "x"}, {"contains": "x", "regex": "y"}, ["yes", "no"]],
)  # fmt: skip
def test_an_unknown_form_is_refused_before_anything_runs(wanted: Any) -> None:
    with pytest.raises(UsageError) as refused:
        expect(wanted)
    assert "allowed are" in str(refused.value) or "no regular expression" in str(refused.value)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "It is {}.", "**{}**", "{}\n", "= {} USD"]))
def test_a_number_agrees_with_itself_however_it_is_written_and_with_no_other(number: int, form: str) -> None:
    answer = form.format(number)
    assert agrees(number, answer)
    assert agrees(str(number), answer)
    assert not agrees(number + 1, answer)


@given(st.text(), st.text())
def test_comparing_never_fails_and_nothing_never_agrees(wanted: str, answer: str) -> None:
    if wanted.strip():
        check(wanted)
        assert agrees(wanted, answer) in (True, False)
        assert not agrees(wanted, "  ")


# --- a user's function ----------------------------------------------------------------------------------------


async def test_what_a_function_may_return() -> None:
    found: dict[object, Reward] = {}
    for value in (True, False, 0, 1, 0.25, Reward(value=0.5, parts={"tone": 0.5}, note="dull")):

        def verify(task: Task, trajectory: Trajectory, state: Mapping[str, Any], value: Any = value) -> Any:
            assert (task, trajectory.answer, state) == (TASK, "x", {"n": 1})
            return value

        found[repr(value)] = await judged(verify)(TASK, run("x"), {"n": 1})
    values = [reward.value for reward in found.values()]
    assert values == [1.0, 0.0, 0.0, 1.0, 0.25, 0.5]
    assert all("test_what_a_function_may_return.<locals>.verify" in reward.verifier for reward in found.values())
    assert found[repr(Reward(value=0.5, parts={"tone": 0.5}, note="dull"))].parts == {"tone": 0.5}


async def test_async_functions_and_objects_that_are_called() -> None:
    async def waits(task: Task, trajectory: Trajectory, state: Mapping[str, Any]) -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    class Plain:
        def __call__(self, task: Task, trajectory: Trajectory, state: Mapping[str, Any]) -> bool:
            return threading.current_thread() is not threading.main_thread()

    class Waits:
        async def __call__(self, task: Task, trajectory: Trajectory, state: Mapping[str, Any]) -> bool:
            return await waits(task, trajectory, state)

    def gives_a_coroutine(task: Task, trajectory: Trajectory, state: Mapping[str, Any]) -> Any:
        return waits(task, trajectory, state)

    for function in (waits, Plain(), Waits(), gives_a_coroutine):
        assert (await judged(function)(TASK, run("x"), {})).value == 1.0


@pytest.mark.parametrize("value", [None, "yes", 1.5, -0.1, float("nan"), [1]])
async def test_anything_else_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match="allowed are True, False, a number from 0 to 1, or a Reward") as refused:
        await judged(lambda task, trajectory, state: value)(TASK, run("x"), {})
    assert "<lambda>" in str(refused.value)


async def test_a_verifier_that_raises_says_nothing_about_the_agent() -> None:
    def verify(task: Task, trajectory: Trajectory, state: Mapping[str, Any]) -> bool:
        return int(trajectory.answer) == 24

    assert (await judged(verify)(TASK, run("24"), {})).value == 1.0
    with pytest.raises(EnvironmentBroken, match="raised ValueError: invalid literal") as broken:
        await judged(verify)(TASK, run("dear"), {})
    assert "judges a bad answer 0" in str(broken.value)
