"""ToolsEnvironment: functions as a world; what they raise, return and want is the agent's to read, never ours to die of."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from harness.environments.tools import ToolsEnvironment
from harness.errors import EnvironmentBroken, Infrastructure, UsageError
from harness.message import Action, Observation
from harness.tool import ANSWER, tool


@dataclass
class Price:
    item: str
    euros: float


@tool(effect="read")
def price(item: str, pieces: int = 1) -> Price:
    """What an item costs."""
    return Price(item, 2.5 * pieces)


def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros} für é"


@tool(effect="episode")
async def later(item: str) -> dict[str, Any]:
    """Later."""
    await asyncio.sleep(0)
    return {"item": item, "thread": threading.current_thread() is threading.main_thread()}


def call(name: str, **arguments: Any) -> Action:
    return Action(kind="call", tool=name, arguments=arguments)


async def one(function: Any, **arguments: Any) -> Observation:
    return await ToolsEnvironment([function]).step(call(function.__name__, **arguments))


def raising(error: BaseException) -> Any:
    def fails(n: int) -> str:
        raise error

    return fails


def raising_later(error: BaseException) -> Any:
    async def fails(n: int) -> str:
        raise error

    return fails


def test_undeclared_functions_act_on_the_world_and_effects_overrule() -> None:
    environment = ToolsEnvironment([price, pay, later])
    assert [(t.name, t.effect) for t in environment.tools] == [
        ("price", "read"), ("pay", "world"), ("later", "episode"), ("answer", "read"),
    ]  # fmt: skip
    overruled = ToolsEnvironment([price, pay], {"pay": "episode"}, answer=False).tools
    assert [(t.name, t.effect) for t in overruled] == [("price", "read"), ("pay", "episode")]
    assert environment.tools[-1] == ANSWER
    assert not hasattr(pay, "tool")


@pytest.mark.parametrize(
    ("functions", "effects", "why"),
    [
        ([price, price], {}, "'price' is taken"),
        ([tool(effect="read", name="answer")(lambda: "x")], {}, "'answer' is taken"),
        ([price], {"prize": "read"}, "'prize'"),
        ([price], {"price": "none"}, "'none'"),
        ([lambda x: x], {}, "no annotation"),
    ],
)
def test_what_cannot_be_a_world_is_refused(functions: Any, effects: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ToolsEnvironment(functions, effects)


async def test_results_become_text_and_the_calls_are_the_state() -> None:
    environment = ToolsEnvironment([price, pay, later])
    assert (await environment.start()).text == ""
    said = [
        (await environment.step(action)).text
        for action in (call("price", item="cup", pieces=2), call("pay", euros=3), call("later", item="x"))
    ]
    assert said == ['{"item": "cup", "euros": 5.0}', "paid 3 für é", '{"item": "x", "thread": true}']
    assert await environment.state() == {
        "calls": [
            ["price", {"item": "cup", "pieces": 2}, said[0]], ["pay", {"euros": 3}, said[1]], ["later", {"item": "x"}, said[2]],
        ]
    }  # fmt: skip
    assert (await environment.step(Action(kind="answer", text="x"))).done
    await environment.close()


async def test_a_plain_function_runs_in_a_thread_so_that_others_go_on() -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow(n: int) -> bool:
        inside.set()
        return leave.wait(20)

    task = asyncio.create_task(one(slow, n=1))
    while not inside.is_set():
        await asyncio.sleep(0.001)
    leave.set()
    assert (await task).text == "true"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"item": 3}, "valid string"), ({}, "missing a required argument"), ({"item": "x", "more": 1}, "unexpected keyword")],
)
async def test_wrong_arguments_are_the_agents_mistake(arguments: Any, why: str) -> None:
    observation = await one(price, **arguments)
    assert observation.error
    assert why in observation.text


async def test_an_unknown_tool_is_answered_with_those_there_are() -> None:
    observation = await ToolsEnvironment([price, pay]).step(call("fly"))
    assert (observation.error, observation.text) == (True, "there is no tool 'fly'; the tools are price, pay")
    invalid = await ToolsEnvironment([price]).step(Action(kind="invalid", problem="broken"))
    assert (invalid.error, invalid.text) == (True, "broken")


@pytest.mark.parametrize("make", [raising, raising_later])
@pytest.mark.parametrize(
    "error", [ValueError("bad"), KeyError("k"), AssertionError("a"), SystemExit(3), KeyboardInterrupt("stop")]
)
async def test_what_a_tool_raises_is_one_line_for_the_agent(make: Any, error: BaseException) -> None:
    observation = await one(make(error), n=1)
    assert observation == Observation(content=f"{type(error).__name__}: {error}", error=True)


@pytest.mark.parametrize("make", [raising, raising_later])
@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("slow"), Infrastructure("down")])
async def test_what_says_that_the_world_failed_is_a_broken_world(make: Any, error: Exception) -> None:
    with pytest.raises(EnvironmentBroken, match=rf"fails: {type(error).__name__}: {error}"):
        await one(make(error), n=1)


async def test_a_tool_that_cancels_itself_cancels_nobody_else() -> None:
    observation = await one(raising_later(asyncio.CancelledError()), n=1)
    assert (observation.error, observation.text) == (True, "CancelledError: the tool cancelled itself")


async def test_a_cancelled_episode_is_cancelled() -> None:
    async def forever(n: int) -> str:
        return await asyncio.Future()

    task = asyncio.create_task(one(forever, n=1))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
