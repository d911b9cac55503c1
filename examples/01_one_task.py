"""One task, one agent, one verified run: a refund at the front desk, by a scripted clerk or by a model of yours.

python examples/01_one_task.py
python examples/01_one_task.py --model openai/gpt-5-mini          or local/smollm2-135m-instruct; --base-url URL for a server
"""

import argparse
import asyncio

from api.settings import Settings
from api.wiring import model
from harness.agent import Agent
from harness.environments import desk
from harness.errors import AssayError
from harness.models.scripted import Scripted
from harness.policy import Policy
from harness.seams import Model
from harness.spec import HarnessSpec

parser = argparse.ArgumentParser(description="Run one task.")
parser.add_argument("--model", default="scripted/clerk")
parser.add_argument("--base-url", default="")
parser.add_argument("--seed", type=int, default=0)


async def main(name: str, base_url: str, seed: int) -> None:
    [task] = desk.tasks("refund", "train", 1, seed)
    policy = Policy(model=name)
    chosen: Model
    if name == "scripted/clerk":
        chosen = Scripted([f" {line}" for line in desk.oracle(task)])
    else:
        chosen, _, _ = model(Settings(base_url=base_url), name)
    # Small models get the terminal, hosted ones native tool calls.
    small = name.startswith(("scripted/", "local/"))
    spec = desk.spec(policy) if small else HarnessSpec(policy=policy)
    run = await Agent(chosen, desk.Desk, desk.verify).run(task, spec, seed=seed)

    print(f"Request: {task.instruction}")
    for step in run.steps:
        action = step.action
        print(f"> {action.tool} {' '.join(map(str, action.arguments.values()))}{action.text if action.kind != 'call' else ''}")
        print(step.observation.text)
    if run.error is not None:
        print(f"error at the {run.error.wall}: {run.error.message}")
    if run.reward is not None:
        print(f"reward {run.reward.value:.0f}: {run.reward.note}")
    print(f"{run.usage.prompt_tokens + run.usage.completion_tokens} tokens, {run.usage.cost:.4f} USD")
    if hasattr(chosen, "close"):
        await chosen.close()


if __name__ == "__main__":
    given = parser.parse_args()
    try:
        asyncio.run(main(given.model, given.base_url, given.seed))
    except AssayError as error:
        parser.exit(2, f"{error}\n")
