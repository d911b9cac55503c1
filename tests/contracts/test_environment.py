"""The contract of every Environment: fresh each time, mistakes are observations, an answer ends it, and it repeats itself."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from harness.environments import desk
from harness.environments.tools import ToolsEnvironment
from harness.message import Action, Observation
from harness.seams import Environment
from harness.tool import tool


@tool(effect="read")
def price(item: str) -> str:
    """What an item costs."""
    return f"{item} costs 24"


@dataclass(frozen=True)
class Kind:
    make: Callable[[], Environment]
    right: Action
    """An action that succeeds in it and does not end it."""


TASK = desk.tasks("refund", "train", 1, seed=0)[0]
NUMBER = int(TASK.instruction.split("order ")[1].split(".")[0])
KINDS = {
    "desk": Kind(lambda: desk.Desk(TASK, 1), Action(kind="call", tool="refund", arguments={"number": NUMBER})),
    "tools": Kind(lambda: ToolsEnvironment([price]), Action(kind="call", tool="price", arguments={"item": "cup"})),
}
WRONG = (
    Action(kind="call", tool="fly"),
    Action(kind="invalid", text="?", problem="what?"),
    Action(kind="call", tool="refund", arguments={"number": "many"}),
    Action(kind="call", tool="price", arguments={}),
)


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


async def test_its_tools_are_distinct_and_do_not_change(kind: Kind) -> None:
    environment = kind.make()
    before = list(environment.tools)
    assert len({t.name for t in before}) == len(before)
    await environment.start()
    await environment.step(kind.right)
    assert list(environment.tools) == before


async def test_a_right_action_is_answered_and_does_not_end_it(kind: Kind) -> None:
    environment = kind.make()
    await environment.start()
    observation = await environment.step(kind.right)
    assert (observation.error, observation.done) == (False, False)
    assert observation.text


@pytest.mark.parametrize("wrong", WRONG, ids=lambda action: action.tool or action.kind)
async def test_a_mistake_is_an_observation_and_changes_nothing(kind: Kind, wrong: Action) -> None:
    environment = kind.make()
    await environment.start()
    observation = await environment.step(wrong)
    assert (observation.error, observation.done) == (True, False)
    assert "Traceback" not in observation.text
    assert observation.text
    assert await environment.step(kind.right) == await _first(kind)


async def test_an_answer_ends_it(kind: Kind) -> None:
    environment = kind.make()
    await environment.start()
    assert (await environment.step(Action(kind="answer", text="done"))).done


async def test_the_same_actions_in_a_fresh_one_have_the_same_end(kind: Kind) -> None:
    async def played() -> tuple[Observation, str]:
        environment = kind.make()
        await environment.start()
        observation = await environment.step(kind.right)
        return observation, json.dumps(await environment.state())

    assert await played() == await played()


async def test_two_at_a_time_do_not_meet(kind: Kind) -> None:
    alone, busy, idle = await _first(kind), kind.make(), kind.make()
    await asyncio.gather(busy.start(), idle.start())
    untouched = json.dumps(await idle.state())
    assert await busy.step(kind.right) == alone
    assert json.dumps(await idle.state()) == untouched


async def test_it_can_be_closed_twice_and_before_it_began(kind: Kind) -> None:
    environment = kind.make()
    await environment.close()
    await environment.close()


async def _first(kind: Kind) -> Observation:
    environment = kind.make()
    await environment.start()
    return await environment.step(kind.right)
