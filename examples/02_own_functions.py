"""An agent of your own Python functions, and a verifier of your own; with a scripted model, or with yours.

python examples/02_own_functions.py --model openai/gpt-5-mini          --base-url URL for a server
"""

import argparse
import asyncio
import re
from collections.abc import Mapping

from api.settings import Settings
from api.wiring import model
from harness.builder import AgentBuilder
from harness.errors import AssayError
from harness.message import Call, Completion
from harness.models.scripted import Output, Scripted
from harness.seams import Model
from harness.task import Task
from harness.tool import tool
from harness.trajectory import Trajectory

PRICES = {"kettle": 24.9, "lamp": 39.0}
CALLS = tuple(Call(id=item, tool="price", arguments=f'{{"item": "{item}"}}') for item in PRICES)
SCRIPT: list[Output] = [Completion(calls=CALLS, finish="calls"), "Together they cost 63.90 euros."]


@tool(effect="read")
def price(item: str) -> float:
    """The price of an item in euros."""
    return PRICES[item]


def right(task: Task, run: Trajectory, state: Mapping[str, object]) -> bool:
    """The verifier: the last number of the answer is the sum, and it was looked up instead of guessed."""
    said = re.findall(r"\d+(?:\.\d+)?", run.answer)
    asked = [step.action.arguments.get("item") for step in run.steps if step.action.tool == "price"]
    return bool(said) and abs(float(said[-1]) - sum(PRICES.values())) < 0.005 and set(asked) >= PRICES.keys()


async def main(name: str, base_url: str) -> None:
    chosen: Model = Scripted(SCRIPT) if name == "scripted/clerk" else model(Settings(base_url=base_url), name)[0]
    agent = AgentBuilder().model(chosen, name).tools(price).verify(right).limits(steps=6).build()
    run = await agent.run("What do a kettle and a lamp cost together?")
    for step in run.steps:
        print(f"{step.action.tool or 'answer'}: {dict(step.action.arguments) or step.action.text} -> {step.observation.text}")
    print(f"reward {run.reward.value:.0f}" if run.reward else f"no reward: {run.error}")
    if hasattr(chosen, "close"):
        await chosen.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An agent of your own functions.")
    parser.add_argument("--model", default="scripted/clerk")
    parser.add_argument("--base-url", default="")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.model, given.base_url))
    except AssayError as error:
        parser.exit(2, f"{error}\n")
