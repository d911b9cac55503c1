"""The shop behind the front desk: goods, orders and money, and the three deeds that change them; it reads no commands."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from harness.environments.desk_case import Item, Order


class Refusal(Exception):
    """The shop will not do this, in the words of the terminal."""


class Shop:
    """Goods are on the shelf, with customers, or on their way from the supplier; the till holds what unrefunded orders paid."""

    def __init__(self, items: Sequence[Item], orders: Sequence[Order]) -> None:
        self._items = {item.name: item for item in items}
        self._orders = {order.number: order for order in orders}
        self._shelf = Counter({item.name: item.shelf for item in items})
        self._sold = Counter({item.name: 0 for item in items})
        for order in orders:
            self._sold[order.item] += order.pieces
        self._till = sum(order.paid for order in orders)
        self._status = dict.fromkeys(self._orders, "sold")
        self._exchanges: list[tuple[int, str]] = []
        self._purchases: list[tuple[str, int]] = []

    def order(self, number: int) -> Order:
        """An order that nothing was done to yet; raises Refusal."""
        if number not in self._orders:
            raise Refusal(f"no order {number}")
        if self._status[number] != "sold":
            raise Refusal(f"order {number} is already {self._status[number]}")
        return self._orders[number]

    def receipt(self, receipt: str) -> Order:
        """The order of a receipt; raises Refusal."""
        for order in self._orders.values():
            if order.receipt == receipt:
                return self.order(order.number)
        raise Refusal(f"no receipt {receipt}")

    def item(self, name: str) -> Item:
        if name not in self._items:
            raise Refusal(f"no item {name}")
        return self._items[name]

    def shelved(self, code: str) -> Item:
        """The item of a shelf code; raises Refusal."""
        for item in self._items.values():
            if item.code == code:
                return item
        raise Refusal(f"no shelf code {code}")

    def pieces(self, item: Item) -> int:
        """Pieces on the shelf."""
        return self._shelf[item.name]

    def refund(self, order: Order) -> str:
        self._till -= self.order(order.number).paid
        self._move(order.item, order.pieces)
        self._status[order.number] = "refunded"
        return f"order {order.number} is refunded"

    def exchange(self, order: Order, item: Item) -> str:
        """Piece for piece, at no charge."""
        self.order(order.number)
        if self._shelf[item.name] < order.pieces:
            raise Refusal(f"only {self._shelf[item.name]} on the shelf")
        self._move(order.item, order.pieces)
        self._move(item.name, -order.pieces)
        self._status[order.number] = "exchanged"
        self._exchanges.append((order.number, item.name))
        return f"order {order.number} is exchanged for a {item.name}"

    def purchase(self, item: Item, pieces: int) -> str:
        self._purchases.append((item.name, pieces))
        return f"{pieces} {item.name}s are on their way"

    def state(self) -> dict[str, JsonValue]:
        return {
            "orders": {str(number): status for number, status in self._status.items()},
            "shelf": dict(self._shelf),
            "sold": dict(self._sold),
            "till": self._till,
            "refunds": [number for number, status in self._status.items() if status == "refunded"],
            "exchanges": [[number, item] for number, item in self._exchanges],
            "purchases": [[item, pieces] for item, pieces in self._purchases],
        }

    def _move(self, name: str, pieces: int) -> None:
        """From customers to the shelf."""
        self._sold[name] -= pieces
        self._shelf[name] += pieces


Deed = tuple[str, str, str]
"""Kind, what it was done to, and the rest of it."""


def deeds(state: Mapping[str, JsonValue]) -> Counter[Deed]:
    """What was done, as the terminal state (or an expectation of the same shape) tells it."""
    found: Counter[Deed] = Counter()
    for kind in ("refunds", "exchanges", "purchases"):
        listed = state.get(kind, ())
        for entry in listed if isinstance(listed, list | tuple) else ():
            subject, *rest = entry if isinstance(entry, list | tuple) else [entry]
            found[kind.removesuffix("s"), str(subject), " ".join(map(str, rest))] += 1
    return found
