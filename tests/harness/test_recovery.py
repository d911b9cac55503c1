"""Crashes: a process that is killed goes on in a new one, asks no model again, and repeats nothing real."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.agent import Agent
from harness.checkpoint import memory, sqlite
from harness.errors import ApprovalError, UsageError
from harness.message import Action, Observation
from harness.trajectory import Trajectory
from tests.harness.mortal import SCRIPT, Mortal, log
from tests.harness.rigs import NATIVE, TASK, Counter, Rig, calls

ROOT = Path(__file__).parents[2]


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.harness.mortal", str(folder), *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_killed_between_decide_and_act_it_goes_on_in_a_new_process_without_a_model_call(tmp_path: Path) -> None:
    assert process(tmp_path, "run", "before", "3").returncode == -signal.SIGKILL
    assert log(tmp_path) == ["model 0", "add 1", "model 1", "pay 5", "model 2"]
    done = process(tmp_path, "resume")
    assert done.returncode == 0, done.stderr
    run = Trajectory.model_validate_json(done.stdout)
    # `add 1` is the episode's own and is replayed into the fresh world; `pay 5` is real and is not.
    assert log(tmp_path)[5:] == ["add 1", "add 2", "model 3", "pay 6", "model 4"]
    assert (run.stop, run.answer, run.success, run.usage.calls) == ("answer", "done", True, 5)
    assert [step.text for step in run.steps] == list(SCRIPT)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(1, 6))
@pytest.mark.parametrize("point", ["model", "before", "after", "verify"])
async def test_wherever_it_is_killed_it_is_resumed_with_none(tmp_path: Path, point: str, place: int) -> None:
    killed = process(tmp_path, "run", point, str(place)).returncode == -signal.SIGKILL
    reached = {"model": 5, "before": 4, "after": 4, "verify": 1}[point]
    assert killed == (place <= reached)
    if not killed:
        return
    before = len(log(tmp_path)) if (tmp_path / "log").exists() else 0
    run = await Mortal(tmp_path).go("resume")
    lines = log(tmp_path)
    assert (run.stop, run.answer, run.success) == ("answer", "done", True)
    assert [step.text for step in run.steps] == list(SCRIPT)
    assert [line for line in lines if line.startswith("model")] == [f"model {turn}" for turn in range(5)]
    # Only what was under way when it died may have been done twice.
    twice = {line for line in lines if line.startswith("pay") and lines.count(line) > 1}
    assert twice <= ({lines[before - 1]} if point == "after" else set())


async def test_every_node_of_a_ten_step_run_leaves_a_checkpoint() -> None:
    async with sqlite(":memory:") as saver:
        rig = Rig([*[calls(("add", 1))] * 9, "done"], checkpointer=saver)
        run = await rig.agent.run(TASK, NATIVE, seed=0, thread="t")
        assert len(run.steps) == 10
        kept = [found async for found in saver.alist({"configurable": {"thread_id": "t"}})]
        assert len(kept) >= 20


async def test_a_finished_run_is_answered_again_and_never_begun_again() -> None:
    rig = Rig([calls(("add", 1)), "done"], checkpointer=memory())
    run = await rig.agent.run(TASK, NATIVE, seed=0, thread="t")
    assert await rig.agent.resume("t") == run
    assert rig.model.calls == 2
    with pytest.raises(UsageError, match=r"already; go on with resume"):
        await rig.agent.run(TASK, NATIVE, seed=0, thread="t")
    with pytest.raises(UsageError, match="no run 'other'"):
        await rig.agent.resume("other")
    with pytest.raises(UsageError, match="no checkpointer"):
        await Rig([]).agent.resume("t")


async def test_a_world_that_does_not_repeat_itself_is_broken() -> None:
    gate, saver = asyncio.Event(), memory()
    rig = Rig([calls(("add", 1)), calls(("look", 2))], checkpointer=saver)

    class Stuck(Counter):
        async def step(self, action: Action) -> Observation:
            if action.tool == "look":
                await gate.wait()
            return await super().step(action)

    class Other(Counter):
        async def step(self, action: Action) -> Observation:
            return Observation(content="something else")

    first = Agent(rig.model, lambda task, seed: Stuck([]), checkpointer=saver)
    task = asyncio.create_task(first.run(TASK, NATIVE, seed=0, thread="t"))
    while rig.model.calls < 2:
        await asyncio.sleep(0)
    with pytest.raises(ApprovalError, match="under way"):
        await first.resume("t")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    run = await Agent(rig.model, lambda task, seed: Other([]), checkpointer=saver).resume("t")
    assert run.error is not None
    assert (run.error.wall, run.evidence) == ("environment", None)
    assert "does not repeat itself" in run.error.message
