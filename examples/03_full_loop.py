"""The full loop in seconds, with a scripted clerk instead of a model: explore, draft, forecast, try, decide, roll back.

python examples/03_full_loop.py
"""

import asyncio
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from api.settings import Settings
from api.wiring import opened
from evolve.foresee import foresee
from evolve.gate import Rule
from evolve.loop import consider, explore
from evolve.propose import from_successes
from evolve.trial import prepare
from harness.environments import desk
from harness.message import Message, concatenated
from harness.models.scripted import Scripted
from harness.policy import Policy, Sampling
from harness.tool import Tool


def clerk(messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling) -> str:
    """A beginner who mostly fumbles, unless an earlier request stands above this one as an example."""
    document = concatenated(messages)
    request = document[document.rfind("Request:") :]
    if random.Random(sampling.seed).random() > (0.95 if document.count("Request:") > 1 else 0.2):
        return " help"
    code = re.search(r"confirm (\w+)", request)
    return f" confirm {code[1]}" if code else f" refund {request.split('order ')[1].split('.')[0]}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data=Path(folder), model="scripted/clerk")
        spec = desk.spec(Policy(model="scripted/clerk"))
        async with opened(settings, desk.world(), spec, given=(Scripted(clerk), None, False)) as platform:
            house = platform.house
            groups = await explore(house, desk.tasks("refund", "train", 60, seed=0), enough=3)
            [change] = await from_successes(3)(spec, groups, house.lineage.tried())
            validate = desk.tasks("refund", "validate", 60, seed=0)
            forecast = foresee(house, await prepare(house, change, validate, Rule()))
            print(f"drafted {change.name} from {len(change.runs)} successes; about {forecast.pairs:.0f} pairs to find +0.2")
            verdict = await consider(house, change, validate, Rule())
            assert verdict is not None
            low, high = verdict.band
            print(f"{verdict.decision}: effect {verdict.effect:+.2f}, 95 % [{low:+.2f}, {high:+.2f}], {verdict.pairs} pairs")
            print(f"head {house.lineage.head().number} is live; rolling back makes {house.lineage.rollback(1).number}")


if __name__ == "__main__":
    asyncio.run(main())
