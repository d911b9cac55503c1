"""CPU a step of our loop, durable, beside langchain's `create_agent`, in memory, on the same outputs; it asserts nothing.

Run from the repository: `python -m benchmarks.agent_step [--json] [--repeats 5] [--episodes 20]`.
"""

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver

from harness.agent import Agent
from harness.checkpoint import sqlite
from harness.correction import Correction
from harness.environments.tools import ToolsEnvironment
from harness.hint import Hint, Recalled
from harness.message import Call, Completion
from harness.models.scripted import Scripted
from harness.policy import Policy
from harness.spec import HarnessSpec, Limits
from harness.task import Task
from harness.tool import tool
from harness.trajectory import Step

STEPS = 10
"""Of one episode: nine tool calls and the answer."""
REQUEST = "What do the ten items cost together?"


@tool(effect="read")
async def price(item: str) -> str:
    """What an item costs."""
    return f"{item} costs 24"


@langchain_tool("price")
async def their_price(item: str) -> str:
    """What an item costs."""
    return f"{item} costs 24"


async def recall(task: Task, spec: HarnessSpec) -> Recalled:
    return Recalled(hints=(Hint(kind="skill", id="s", name="prices", text="Ask for each price, then add them up."),))


async def guard(task: Task, steps: Sequence[Step], completion: Completion) -> Correction:
    """A guard that looks and changes nothing."""
    return Correction()


def our_agent(checkpointer: Any, steps: int) -> Callable[[str], Awaitable[None]]:
    """An agent, built once as in a service, and one episode of it."""
    calls = [Completion(calls=(Call(id=f"c{i}", tool="price", arguments=f'{{"item": "item {i}"}}'),)) for i in range(steps - 1)]
    said = itertools.cycle([*calls, "240"])
    agent = Agent(
        Scripted(lambda messages, tools, sampling: next(said)),
        lambda task, seed: ToolsEnvironment([price]),
        recall=recall,
        guards={"look": guard},
        checkpointer=checkpointer,
    )
    spec = HarnessSpec(policy=Policy(model="scripted/x"), guard="look", limits=Limits(steps=steps + 1, tokens=10**9))

    async def episode(thread: str) -> None:
        run = await agent.run(Task(instruction=REQUEST), spec, seed=0, thread=thread)
        if run.answer != "240" or len(run.steps) != steps:
            raise RuntimeError(f"our episode went wrong: {run.error}")

    return episode


class Fake(GenericFakeChatModel):
    """langchain's own fake, which lacks only the method that binds tools."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def their_agent(steps: int) -> Callable[[str], Awaitable[None]]:
    calls = [
        AIMessage("", tool_calls=[{"name": "price", "args": {"item": f"item {i}"}, "id": f"c{i}", "type": "tool_call"}])
        for i in range(steps - 1)
    ]
    said = (message.model_copy(update={"id": None}) for message in itertools.cycle([*calls, AIMessage("240")]))
    agent = create_agent(Fake(messages=said), [their_price], checkpointer=InMemorySaver())

    async def episode(thread: str) -> None:
        config: Any = {"configurable": {"thread_id": thread}}
        final = await agent.ainvoke({"messages": [{"role": "user", "content": REQUEST}]}, config)
        if final["messages"][-1].content != "240" or len(final["messages"]) != 2 * steps:
            raise RuntimeError("their episode went wrong")

    return episode


async def cpu(episode: Callable[[str], Awaitable[None]], episodes: int, name: str) -> float:
    """Milliseconds of CPU a step, of this whole process: SQLite's thread counts."""
    gc.collect()
    began = time.process_time()
    for i in range(episodes):
        await episode(f"{name}-{i}")
    return (time.process_time() - began) * 1000 / episodes / STEPS


async def size(steps: int) -> int:
    """Bytes of all checkpoints and writes of one episode."""
    async with sqlite(":memory:") as saver:
        await our_agent(saver, steps)("t")
        total = 0
        for table, column in (("checkpoints", "checkpoint"), ("checkpoints", "metadata"), ("writes", "value")):
            for (length,) in await saver.conn.execute_fetchall(f"SELECT coalesce(sum(length({column})), 0) FROM {table}"):
                total += length
        return total


async def measure(repeats: int, episodes: int) -> dict[str, Any]:
    mine: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with sqlite(Path(folder) / "checkpoints.db") as saver:
            our_episode, their_episode = our_agent(saver, STEPS), their_agent(STEPS)
            await our_episode("warm")
            await their_episode("warm")
            for repeat in range(repeats):
                mine.append(await cpu(our_episode, episodes, f"r{repeat}"))
                theirs.append(await cpu(their_episode, episodes, f"r{repeat}"))
    small, large = await size(STEPS), await size(10 * STEPS)
    return {
        "ours_ms": round(statistics.median(mine), 3), "create_agent_ms": round(statistics.median(theirs), 3),
        "ratio": round(statistics.median(a / b for a, b in zip(mine, theirs, strict=True)), 3),
        "ours_all_ms": [round(x, 3) for x in mine], "create_agent_all_ms": [round(x, 3) for x in theirs],
        "bytes_10_steps": small, "bytes_100_steps": large, "growth": round(large / small, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args()
    found = asyncio.run(measure(given.repeats, given.episodes))
    if given.json:
        print(json.dumps(found))
        return
    print(f"CPU a step, medians of {given.repeats} repeats of {given.episodes} episodes of {STEPS} steps, one process:")
    print(f"  ours, recall and guard mounted, SQLite, durability sync   {found['ours_ms']:.2f} ms")
    print(f"  langchain create_agent, in memory                         {found['create_agent_ms']:.2f} ms")
    print(f"  ratio                                                     {found['ratio']:.2f}")
    small, large, growth = found["bytes_10_steps"], found["bytes_100_steps"], found["growth"]
    print(f"all checkpoints: {small} bytes at 10 steps, {large} at 100: {growth} times")


if __name__ == "__main__":
    main()
