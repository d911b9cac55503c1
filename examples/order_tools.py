"""The world of `tasks.jsonl`: an order table, and a convention of the house that its column names hide.

The table counts packs and prices pieces, so that quantity times price is not what an order comes to.
"""

import re
from collections.abc import Mapping

from harness.reward import Reward
from harness.task import Task
from harness.tool import tool
from harness.trajectory import Trajectory

PACKS = {"cups": 6, "bolts": 10, "candles": 4, "pencils": 12, "tiles": 8, "spoons": 5}


def row(number: int) -> tuple[str, int, int]:
    """Item, packs, and dollars a piece of an order."""
    items = list(PACKS)
    return items[number % len(items)], 2 + number * 7 % 8, 2 + number * 5 % 7


@tool(effect="read")
def order(number: int) -> str:
    """The row of an order in the order table."""
    item, packs, price = row(number)
    return f"order {number}: item {item}, quantity {packs}, price {price}"


@tool(effect="read")
def catalogue(item: str) -> str:
    """What the catalogue says of an item."""
    if item not in PACKS:
        raise ValueError(f"no item {item!r}; the catalogue has {', '.join(PACKS)}")
    return f"{item}: sold in packs of {PACKS[item]}, quantities in packs, prices per piece"


def multiply(a: float, b: float) -> str:
    """The product of two numbers."""
    return f"{a * b:g}"


def total(task: Task, trajectory: Trajectory, state: Mapping[str, object]) -> Reward:
    """Whether the last number of the answer is what the order comes to."""
    number = int(re.findall(r"\d+", task.instruction)[0])
    item, packs, price = row(number)
    wanted = packs * PACKS[item] * price
    said = re.findall(r"\d+(?:\.\d+)?", trajectory.answer.replace(",", ""))
    right = bool(said) and float(said[-1]) == wanted
    why = f"{packs} packs of {PACKS[item]} {item} at {price} come to {wanted}; the answer was {trajectory.answer[:80]!r}"
    return Reward(value=float(right), verifier="examples:total", note=why)
