"""An existing LangGraph graph under trial: does a skill help it? The graph here is a stand-in; put yours in its place.

python examples/04_langgraph_graph.py
"""

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph

from api.langgraph import under_trial
from api.settings import Settings
from api.wiring import furnished, recalling
from evolve.change import Change
from evolve.gate import Rule
from evolve.loop import consider
from harness.policy import Policy
from harness.spec import HarnessSpec
from harness.task import Task
from harness.verifier import expect
from skills.skill import Skill


def answer(state: MessagesState, config: RunnableConfig) -> dict[str, list[AIMessage]]:
    """Your agent: here one that knows the house's tax rate only where a skill tells it."""
    told = any("19 percent" in str(message.content) for message in state["messages"])
    rng = random.Random(config["configurable"]["seed"])
    price = int(str(state["messages"][-1].content).split()[-2])
    return {"messages": [AIMessage(f"{price * 1.19:.2f}" if told and rng.random() < 0.9 else f"{price * 1.2:.2f}")]}


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
graph = builder.compile()


async def invoke(messages: list[dict[str, str]], spec: HarnessSpec, seed: int) -> Any:
    return await graph.ainvoke({"messages": messages}, {"configurable": {"seed": seed}})


async def main() -> None:
    tasks = [
        Task(instruction=f"Price with tax of {price} euros", data={"expect": f"{price * 1.19:.2f}"}, split="validate")
        for price in range(10, 60)
    ]
    skill = Skill(name="house-tax", description="Price with tax in euros.", body="Our tax rate is 19 percent, not 20.")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data=Path(folder), agent="my-graph")
        with recalling(settings) as recall:
            roll, glance = under_trial(invoke, recall=recall, verify=judge, tools=())
            house = furnished(settings, HarnessSpec(policy=Policy(model="my/graph")), roll=roll, glance=glance)
            verdict = await consider(house, Change(name=skill.name, drafts=(skill,)), tasks, Rule())
    assert verdict is not None
    print(f"{verdict.decision}: {verdict.reason}")


async def judge(task: Task, trajectory: Any, state: Any) -> Any:
    return await expect(task.data["expect"])(task, trajectory, state)


if __name__ == "__main__":
    asyncio.run(main())
