"""Approvals: bound to what was shown, decided once, expired to their default, and kept over a restart."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from harness.agent import Agent
from harness.approval import Waiting, answer
from harness.checkpoint import memory, sqlite
from harness.correction import Permission
from harness.errors import ApprovalError
from harness.message import Action, Observation
from harness.task import Task
from harness.trajectory import Step
from tests.harness.rigs import NATIVE, TASK, Counter, Rig, calls

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        return self.now


def asking(default: Any = "deny") -> Any:
    async def permit(task: Task, steps: Sequence[Step], action: Action) -> Permission:
        decision: Any = "ask" if action.tool == "pay" else "allow"
        return Permission(decision=decision, reason="money", default=default, seconds=60)

    return permit


def rig(script: Sequence[Any], saver: Any, clock: Clock | None = None, default: str = "deny") -> Rig:
    return Rig(script, permit=asking(default), checkpointer=saver, clock=clock or Clock())


async def waits(made: Rig) -> Waiting:
    with pytest.raises(Waiting) as found:
        await made.agent.run(TASK, NATIVE, seed=0, thread="t")
    assert made.closed
    return found.value


async def test_what_is_shown_is_the_exact_action_in_langchains_shape() -> None:
    made = rig([calls(("pay", 5))], memory())
    approval = (await waits(made)).approval
    request = approval.request()
    assert request["action_requests"] == [{"name": "pay", "args": {"n": 5}, "description": "money"}]
    assert request["review_configs"][0]["args_schema"]["required"] == ["n"]
    assert request["expires_at"] == (BEGIN + timedelta(seconds=60)).isoformat()
    assert await made.agent.waiting("t") == approval
    other = approval.replace(action=approval.action.replace(arguments={"n": 6}))
    assert len({approval.hash, other.hash, approval.replace(run="u").hash}) == 3
    assert approval.hash == approval.replace(reason="told otherwise").hash
    assert made.paid == []


@pytest.mark.parametrize(
    ("decision", "paid", "said"), [("approve", [5], "pay 5: sum 0"), ("reject", [], "not permitted: too much")]
)
async def test_a_decision_is_done_once_and_no_model_is_asked_again(decision: Any, paid: list[int], said: str) -> None:
    made = rig([calls(("pay", 5)), "done"], memory())
    given = answer((await waits(made)).approval, decision, message="too much")
    run = await made.agent.resume("t", given)
    assert (made.paid, run.steps[0].observation.text, run.answer, made.model.calls) == (paid, said, "done", 2)
    assert made.closed
    with pytest.raises(ApprovalError, match="does not wait"):
        await made.agent.resume("t", given)
    assert made.paid == paid


async def test_an_edit_changes_the_arguments_and_never_the_tool() -> None:
    made = rig([calls(("pay", 5)), "done"], memory())
    approval = (await waits(made)).approval
    edit = answer(approval, "edit", arguments={"n": 3})
    crossed = {**edit, "decisions": [{"type": "edit", "edited_action": {"name": "add", "args": {"n": 3}}}]}
    wrong = answer(approval, "edit", arguments={"n": "all"})
    for bad, why in ((crossed, "never the tool"), (wrong, "do not fit")):
        with pytest.raises(ApprovalError, match=why):
            await made.agent.resume("t", bad)
    run = await made.agent.resume("t", edit)
    assert made.paid == [3]
    assert (run.steps[0].action.arguments, run.steps[0].permission.reason) == ({"n": 3}, "edited by a human")


@pytest.mark.parametrize(
    "wrong",
    [
        {"hash": "0" * 64, "decisions": [{"type": "approve"}]},
        {"decisions": [{"type": "approve"}]},
        "approve",
        {"hash": None},
        {"hash": "?", "decisions": []},
        {"hash": "?", "decisions": [{"type": "approve"}, {"type": "approve"}]},
        {"hash": "?", "decisions": [{"type": "ignore"}]},
    ],
)
async def test_an_answer_that_does_not_fit_decides_nothing(wrong: Any) -> None:
    made = rig([calls(("pay", 5)), "done"], memory())
    approval = (await waits(made)).approval
    if isinstance(wrong, dict) and wrong.get("hash") == "?":
        wrong = {**wrong, "hash": approval.hash}
    with pytest.raises(ApprovalError):
        await made.agent.resume("t", wrong)
    assert made.paid == []
    with pytest.raises(Waiting):
        await made.agent.resume("t")
    await made.agent.resume("t", answer(approval, "approve"))
    assert made.paid == [5]


@pytest.mark.parametrize(("default", "paid"), [("deny", []), ("allow", [5])])
@pytest.mark.parametrize("late", [False, True])
async def test_after_the_expiry_the_default_applies_whatever_is_answered(default: str, paid: list[int], late: bool) -> None:
    clock = Clock()
    made = rig([calls(("pay", 5)), "done"], memory(), clock, default)
    approval = (await waits(made)).approval
    clock.now = approval.expires
    run = await made.agent.resume("t", answer(approval, "reject" if default == "allow" else "approve") if late else None)
    assert made.paid == paid
    assert "nobody answered by" in run.steps[0].permission.reason


@pytest.mark.parametrize("saver", [memory, InMemorySaver])
async def test_an_answer_in_time_does_not_expire_in_a_crash_after_it(saver: Any) -> None:
    clock, kept, reached = Clock(), saver(), asyncio.Event()
    made = rig([calls(("pay", 5)), "done"], kept, clock)
    approval = (await waits(made)).approval

    class Stuck(Counter):
        async def start(self) -> Observation:
            reached.set()
            return await asyncio.Future()

    dying = Agent(made.model, lambda task, seed: Stuck([]), permit=asking(), checkpointer=kept, clock=clock)
    task = asyncio.create_task(dying.resume("t", answer(approval, "approve")))
    await reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    clock.now = approval.expires + timedelta(days=1)
    run = await made.agent.resume("t")
    assert (made.paid, run.steps[0].permission.reason) == ([5], "approved by a human")


async def test_approving_the_second_of_three_after_a_restart_never_repeats_the_first(tmp_path: Path) -> None:
    async with sqlite(tmp_path / "c.db") as saver:
        made = rig([calls(("add", 1), ("pay", 5), ("pay", 6))], saver)
        approval = (await waits(made)).approval
        assert approval.action.arguments == {"n": 5}
        assert made.worlds[0].done == ["add 1"]
    async with sqlite(tmp_path / "c.db") as saver:
        second = rig([], saver)
        assert await second.agent.waiting("t") == approval
        with pytest.raises(Waiting) as next_one:
            await second.agent.resume("t", answer(approval, "approve"))
        assert second.paid == [5]
        assert next_one.value.approval.action.arguments == {"n": 6}
        with pytest.raises(ApprovalError, match="what waits is"):
            await second.agent.resume("t", answer(approval, "approve"))
    async with sqlite(tmp_path / "c.db") as saver:
        third = rig(["done"], saver)
        run = await third.agent.resume("t", answer(next_one.value.approval, "approve"))
    assert third.paid == [6]
    assert (made.model.calls, second.model.calls, third.model.calls) == (1, 0, 1)
    assert [step.observation.text for step in run.steps[:3]] == ["add 1: sum 1", "pay 5: sum 1", "pay 6: sum 1"]
    assert run.usage.calls == 2
