"""The demo world: the terminal of a small front desk, and the verifier of what was done at it.

Its tasks come from `desk_tasks.py`, its goods and money are in `desk_shop.py`; it knows no model and makes no prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal

from pydantic import JsonValue

from harness.environments.desk_case import Case, Family, goods, sales, words
from harness.environments.desk_shop import Deed, Refusal, Shop, deeds
from harness.environments.desk_tasks import oracle, tasks, typed
from harness.message import Action, Observation
from harness.policy import Policy
from harness.reward import Reward
from harness.seams import OpenEnvironment, Verify
from harness.spec import HarnessSpec, Limits, Prompts
from harness.task import Task
from harness.tool import ANSWER, Effect, Tool
from harness.trajectory import Trajectory
from harness.verifier import agrees

__all__ = ["Desk", "World", "oracle", "spec", "tasks", "verify", "world"]

SYSTEM = "Front desk terminal. Type one command per line."
BYSTANDERS = 3
"""Items and orders in every world that nobody asked about."""


def _command(name: str, effect: Effect, description: str, **parameters: Literal["integer", "string"]) -> Tool:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {parameter: {"type": kind} for parameter, kind in parameters.items()},
        "required": list(parameters),
        "additionalProperties": False,
    }
    return Tool(name=name, description=description, parameters=schema, effect=effect)


CONFIRM = _command("confirm", "episode", "Carry out what was prepared, by its code.", code="string")
STOCK = _command("stock", "read", "Pieces of an item on the shelf.", item="string")
REORDER = _command("reorder", "episode", "Prepare a purchase from the supplier.", item="string", quantity="integer")
COMMANDS: Mapping[Family, tuple[Tool, ...]] = {
    "refund": (_command("refund", "episode", "Prepare the refund of an order.", number="integer"), CONFIRM),
    "return": (
        _command("receipt", "read", "The receipt of an order.", number="integer"),
        _command("return", "episode", "Prepare the refund of what a receipt was given for.", receipt="string"),
        CONFIRM,
    ),
    "exchange": (
        _command("find", "read", "The shelf code of an item.", item="string"),
        _command("exchange", "episode", "Prepare the exchange of an order for another item.", number="integer", code="string"),
        CONFIRM,
    ),
    "price": (_command("price", "read", "The price tag of an item.", item="string"), ANSWER),
    "stock": (STOCK, REORDER, CONFIRM, ANSWER),
    "reorder": (STOCK, REORDER, CONFIRM),
}
"""What each family may type."""


class Desk:
    """One episode at the terminal (an Environment). The task says what is in the shop, the world seed what else."""

    def __init__(self, task: Task, seed: int) -> None:
        self._case = Case.model_validate(task.data)
        rng = Random(seed)
        used = words(self._case.items, self._case.orders)
        others = goods(rng, task.split, BYSTANDERS, used)
        strangers = sales(rng, task.split, others, used | words(others))
        self._shop = Shop((*self._case.items, *others), (*self._case.orders, *strangers))
        self._prepared: dict[str, Callable[[], str]] = {}
        self._done = 0
        self._closed = False

    @property
    def tools(self) -> Sequence[Tool]:
        return COMMANDS[self._case.family]

    async def start(self) -> Observation:
        return Observation()

    async def step(self, action: Action) -> Observation:
        """What the terminal prints. A mistake is an error; the last deed or an answer ends the episode without a word."""
        if self._closed:
            return Observation(content="the desk is closed", error=True, done=True)
        if action.kind == "answer":
            self._closed = True
            return Observation(done=True)
        tool = next((t for t in self.tools if action.kind == "call" and t.name == action.tool), None)
        if tool is None or not _fits(tool, action.arguments):
            usage = "usage: " + " | ".join(t.usage for t in self.tools)
            return Observation(content=action.problem or usage, error=True)
        try:
            said = self._do(tool.name, *(action.arguments[name] for name in tool.required))
        except Refusal as refusal:
            return Observation(content=str(refusal), error=True)
        self._closed = 0 < self._case.matters <= self._done
        return Observation(content="" if self._closed else said, done=self._closed)

    async def state(self) -> Mapping[str, JsonValue]:
        """Orders, goods and money as they are, and the refunds, exchanges and purchases that were carried out."""
        return self._shop.state()

    async def close(self) -> None:
        self._closed = True

    def _do(self, command: str, *words: JsonValue) -> str:
        shop, plain, house = self._shop, self._case.difficulty == "plain", self._case.difficulty == "house"
        match command, *words:
            case "refund", int(number):
                order = shop.order(number)
                return self._prepare(order.code, partial(shop.refund, order))
            case "receipt", int(number):
                receipt = shop.order(number).receipt
                return f"receipt {receipt}" if house else f"next, type: return {receipt}"
            case "return", str(receipt):
                order = shop.receipt(receipt)
                return self._prepare(order.code, partial(shop.refund, order))
            case "find", str(name):
                code = shop.item(name).code
                return f"shelf code {code}" if house else f"next, type: exchange NUMBER {code}"
            case "exchange", int(number), str(code):
                order, item = shop.order(number), shop.shelved(code)
                return self._prepare(order.code, partial(shop.exchange, order, item))
            case "reorder", str(name), int(pieces):
                item = shop.item(name)
                if pieces < 1:
                    raise Refusal(f"cannot order {pieces}")
                return self._prepare(item.supply, partial(shop.purchase, item, pieces))
            case "price", str(name):
                price = shop.item(name).price
                return f"to finish, type: answer {price}" if plain else f"{price} dollars"
            case "stock", str(name):
                pieces = shop.pieces(shop.item(name))
                return f"to finish, type: answer {pieces}" if plain and self._case.family == "stock" else f"{pieces} on the shelf"
            case "confirm", str(code):
                if code not in self._prepared:
                    raise Refusal(f"wrong code {code}")
                said = self._prepared[code]()
                del self._prepared[code]
                self._done += 1
                return said
        raise AssertionError(f"{command} is in COMMANDS and has no case here")

    def _prepare(self, code: str, deed: Callable[[], str]) -> str:
        self._prepared[typed(code, self._case.difficulty)] = deed
        return f"code {code}" if self._case.difficulty == "house" else f"to finish, type: confirm {code}"


def _fits(tool: Tool, arguments: Mapping[str, JsonValue]) -> bool:
    kinds = {"integer": int, "string": str}
    return arguments.keys() == tool.properties.keys() and all(
        type(arguments[name]) is kinds[str(schema["type"])] for name, schema in tool.properties.items()
    )


async def verify(task: Task, trajectory: Trajectory, state: Mapping[str, JsonValue]) -> Reward:
    """1 when exactly the expected was brought about and, where asked for, answered; else 0. Parts count what differs."""
    expected = Case.model_validate(task.data).expected
    wanted, found = deeds(expected.model_dump(mode="json")), deeds(state)
    missing, extra = list((wanted - found).elements()), list((found - wanted).elements())
    wrong: list[tuple[Deed, Deed]] = []
    for deed in list(missing):
        other = next((other for other in extra if other[:2] == deed[:2]), None)
        if other is not None:
            missing.remove(deed)
            extra.remove(other)
            wrong.append((deed, other))
    notes = [f"missing: {_told(deed)}" for deed in missing]
    notes += [f"wrong: {_told(other)} instead of {_told(deed)}" for deed, other in wrong]
    notes += [f"extra: {_told(deed)}" for deed in extra]
    counts = {"missing": len(missing), "wrong": len(wrong), "extra": len(extra)}
    if expected.answer is not None and not agrees(expected.answer, trajectory.answer):
        counts["wrong" if trajectory.answer else "missing"] += 1
        given = f"wrong: answer {trajectory.answer!r} instead of" if trajectory.answer else "missing: answer"
        notes.append(f"{given} {expected.answer!r}")
    return Reward(
        value=0.0 if notes else 1.0,
        parts={name: float(count) for name, count in counts.items()},
        verifier="desk",
        note="; ".join(notes) or "exactly what was asked for",
    )


def _told(deed: Deed) -> str:
    kind, subject, rest = deed
    return f"{kind} of {f'order {subject}' if subject.isdigit() else subject}{f' ({rest})' if rest else ''}"


def spec(policy: Policy, *, commands: int = 4, tokens: int = 12) -> HarnessSpec:
    """The bare agent at this desk: `commands` a task, `tokens` new tokens a command, no know-how."""
    prompts = Prompts(dialect="terminal", system=SYSTEM, tokens=tokens)
    return HarnessSpec(policy=policy, prompts=prompts, limits=Limits(steps=commands))


@dataclass(frozen=True)
class World:
    """What a composition root asks of a world."""

    open: OpenEnvironment
    verify: Verify


def world() -> World:
    return World(open=Desk, verify=verify)
