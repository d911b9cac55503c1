"""What a front desk holds before a task begins, and the words that each split may use; it neither asks nor acts."""

from collections.abc import Sequence, Set
from functools import cache
from random import Random
from typing import Literal

from harness.task import Split
from harness.value import Value

Family = Literal["refund", "return", "exchange", "price", "stock", "reorder"]
Difficulty = Literal["plain", "double", "house"]
Kind = Literal["number", "code", "receipt", "shelf", "name"]

LETTERS: dict[Kind, str] = {"code": "KQXZ", "receipt": "RT", "shelf": "BLMW"}
NAMES = (  # noqa: SIM905
    "bag ball basin basket bathtub battery beaker bell belt blanket blender boiler bolt bookend bottle bowl bracelet "
    "broom bucket button cabinet cable candle canoe carpet cart chain chair charger chisel clamp clock coat compass cooker "
    "cork cradle crate cupboard curtain cushion desk doll doormat drawer dresser drill drum fan faucet fender file "
    "filter flask flute folder fork frame freezer funnel goblet gong grater guitar hammer hammock hanger harp hat heater "
    "helmet hinge hook hose jacket jar jug kettle keyboard kite ladder lamp lantern lever lid locker magnet mallet map "
    "marble mat mirror mixer mop mug nail napkin needle net notebook paddle pan pedal pen pencil piano pillow pipe plate "
    "pot printer pump purse rack radio rake razor ribbon ring rope rug ruler saddle sandal saucer saw scale screw shovel "
    "sink skillet slipper sofa spade spoon stapler stool stove tent ticket tile toaster towel tray tripod tub "
    "vase violin wagon wallet whistle zipper"
).split()
"""Goods: each takes `a` before it and a plain s behind."""


class Item(Value):
    name: str
    code: str
    """Shelf code."""
    price: int
    """Dollars."""
    shelf: int
    """Pieces."""
    supply: str
    """Code that confirms a purchase of it from the supplier."""


class Order(Value):
    number: int
    item: str
    pieces: int
    paid: int
    """Dollars."""
    receipt: str
    code: str
    """Code that confirms what is done to it."""


class Expected(Value):
    """What the episode must have brought about, no less and no more."""

    refunds: tuple[int, ...] = ()
    exchanges: tuple[tuple[int, str], ...] = ()
    """Order number, and the item given for it."""
    purchases: tuple[tuple[str, int], ...] = ()
    """Item, and pieces."""
    answer: str | None = None


class Case(Value):
    """The data of a desk task: only what the request is about."""

    family: Family
    difficulty: Difficulty = "plain"
    items: tuple[Item, ...]
    orders: tuple[Order, ...] = ()
    matters: int
    """Deeds after which the customer leaves and the episode is over; 0: an answer ends it."""
    expected: Expected


@cache
def pool(kind: Kind, split: Split) -> tuple[str, ...]:
    """All words of one kind that tasks of a split may mention: half of them for train, 30 % for validate, 20 % for test."""
    if kind == "number":
        every = [str(number) for number in range(1000, 10000)]
    elif kind == "name":
        every = list(NAMES)
    else:
        every = [f"{letter}{digits}" for letter in LETTERS[kind] for digits in range(100, 1000)]
    Random(f"desk {kind}").shuffle(every)
    first, second = len(every) // 2, len(every) * 8 // 10
    return tuple({"train": every[:first], "validate": every[first:second], "test": every[second:]}[split])


def goods(rng: Random, split: Split, n: int, used: Set[str] = frozenset()) -> tuple[Item, ...]:
    """n items that share no word with each other or with `used`."""
    names, shelves, supplies = (_fresh(rng, kind, split, n, used) for kind in ("name", "shelf", "code"))
    return tuple(
        Item(name=name, code=code, price=rng.randint(5, 499), shelf=rng.randint(4, 199), supply=supply)
        for name, code, supply in zip(names, shelves, supplies, strict=True)
    )


def sales(rng: Random, split: Split, sold: Sequence[Item], used: Set[str]) -> tuple[Order, ...]:
    """One order of each item; they share no number or code with each other or with `used`."""
    numbers, receipts, codes = (_fresh(rng, kind, split, len(sold), used) for kind in ("number", "receipt", "code"))
    orders = []
    for item, number, receipt, code in zip(sold, numbers, receipts, codes, strict=True):
        pieces = rng.randint(1, 3)
        paid = pieces * item.price
        orders.append(Order(number=int(number), item=item.name, pieces=pieces, paid=paid, receipt=receipt, code=code))
    return tuple(orders)


def words(items: Sequence[Item], orders: Sequence[Order] = ()) -> set[str]:
    """Every word that names one of them."""
    named = {word for item in items for word in (item.name, item.code, item.supply)}
    return named | {word for order in orders for word in (str(order.number), order.receipt, order.code)}


def _fresh(rng: Random, kind: Kind, split: Split, n: int, used: Set[str]) -> list[str]:
    return [word for word in rng.sample(pool(kind, split), n + len(used)) if word not in used][:n]
