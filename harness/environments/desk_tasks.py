"""Tasks for the front desk, made from a seed, and the lines that solve them; what a line does is for `desk.py`.

A family names the kind of request, a difficulty what makes it hard:

    plain    the terminal says what to type next
    double   two such requests in one
    house    the terminal states facts alone, and a convention of the house must be known that nobody can guess: codes are
             typed digits first (Q510 as 510Q), prices are quoted with a fee of 2, two pieces of everything are display and
             never counted, goods are ordered in full boxes of six
"""

from collections.abc import Iterable
from random import Random
from typing import get_args

from harness.environments.desk_case import Case, Difficulty, Expected, Family, Order, goods, sales, words
from harness.errors import UsageError
from harness.task import Split, Task

FEE = 2
DISPLAY = 2
BOX = 6
PATIENCE = 1000
"""Draws in a row that may repeat an earlier task before there are no more."""


def tasks(family: Family, split: Split, n: int, seed: int, difficulty: Difficulty = "plain") -> list[Task]:
    """The first n of a row of distinct tasks, which the seed decides; tasks of different splits share no word that matters.

    Raises UsageError for an unknown family, split or difficulty, and when there are no n distinct ones.
    """
    for word, found, allowed in (
        ("family", family, get_args(Family)),
        ("split", split, get_args(Split)),
        ("difficulty", difficulty, get_args(Difficulty)),
    ):
        if found not in allowed:
            raise UsageError(f"desk {word} {found!r}: allowed are {', '.join(allowed)}")
    rng = Random(f"desk {family} {difficulty} {split} {seed}")
    made: dict[tuple[str, ...], Task] = {}
    stale = 0
    while len(made) < n:
        instruction, case = _made(rng, family, split, difficulty)
        data = case.model_dump(mode="json", exclude_defaults=True)
        task = Task(instruction=instruction, environment="desk", data=data, split=split)
        stale = stale + 1 if made.setdefault((instruction, *oracle(task)), task) is not task else 0
        if stale == PATIENCE:
            raise UsageError(f"desk {family} {difficulty}: {n} {split} tasks asked for, about {len(made)} exist; ask for fewer")
    return list(made.values())


def oracle(task: Task) -> list[str]:
    """The command lines that solve a task, known from its data: for tests, and for demonstrations that are named as such."""
    case = Case.model_validate(task.data)
    items = {item.name: item for item in case.items}
    orders = {order.number: order for order in case.orders}
    lines: list[str] = []
    for number in case.expected.refunds:
        order = orders[number]
        first = [f"receipt {number}", f"return {order.receipt}"] if case.family == "return" else [f"refund {number}"]
        lines += [*first, f"confirm {typed(order.code, case.difficulty)}"]
    for number, name in case.expected.exchanges:
        code = typed(orders[number].code, case.difficulty)
        lines += [f"find {name}", f"exchange {number} {items[name].code}", f"confirm {code}"]
    for name, pieces in case.expected.purchases:
        lines += [f"reorder {name} {pieces}", f"confirm {typed(items[name].supply, case.difficulty)}"]
    if case.expected.answer is not None:
        lines += [*(f"{case.family} {item.name}" for item in case.items), f"answer {case.expected.answer}"]
    return lines


def typed(code: str, difficulty: Difficulty) -> str:
    """A code as the desk wants it typed."""
    return code[1:] + code[0] if difficulty == "house" else code


def _made(rng: Random, family: Family, split: Split, difficulty: Difficulty) -> tuple[str, Case]:
    n = 2 if difficulty == "double" else 1
    house = difficulty == "house"
    items = goods(rng, split, 2 * n if family == "exchange" else n)
    orders: tuple[Order, ...] = ()
    several, together = ("s", " together") if n > 1 else ("", "")
    if family in ("refund", "return"):
        orders = sales(rng, split, items, words(items))
        numbers = tuple(order.number for order in orders)
        instruction = f"{'Refund' if family == 'refund' else 'Take back'} order{several} {_listed(numbers)}."
        expected = Expected(refunds=numbers)
    elif family == "exchange":
        orders = sales(rng, split, items[:n], words(items))
        swaps = tuple((order.number, item.name) for order, item in zip(orders, items[n:], strict=True))
        instruction = f"Exchange {_listed(f'order {number} for a {name}' for number, name in swaps)}."
        expected = Expected(exchanges=swaps)
    elif family == "reorder":
        wanted = [(item.name, rng.randint(0, 15) * BOX + rng.randint(1, BOX - 1)) for item in items]
        instruction = f"Order {_listed(f'{pieces} {name}s' for name, pieces in wanted)} from the supplier."
        expected = Expected(purchases=tuple((name, -(-pieces // BOX) * BOX if house else pieces) for name, pieces in wanted))
    elif family == "price":
        instruction = f"What {'do' if n > 1 else 'does'} {_listed(f'a {item.name}' for item in items)} cost{together}?"
        expected = Expected(answer=str(sum(item.price for item in items) + (FEE if house else 0)))
    else:
        instruction = f"How many {_listed(f'{item.name}s' for item in items)} are on the shelf{together}?"
        expected = Expected(answer=str(sum(item.shelf for item in items) - (DISPLAY if house else 0)))
    matters = 0 if expected.answer is not None else n
    return instruction, Case(family=family, difficulty=difficulty, items=items, orders=orders, matters=matters, expected=expected)


def _listed(parts: Iterable[object]) -> str:
    return " and ".join(map(str, parts))
