"""What the tests of the agent share: a counting world, its tools, and agents over scripted outputs; no test lives here."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from harness.agent import Agent
from harness.message import Action, Call, Completion, Observation
from harness.models.scripted import Output, Scripted, Writer
from harness.policy import Policy
from harness.spec import HarnessSpec, Limits, Prompts
from harness.task import Task
from harness.tool import ANSWER, Effect, Tool

TASK = Task(instruction="Count to two.")
NATIVE = HarnessSpec(policy=Policy(model="scripted/x"))
TERMINAL = HarnessSpec(policy=Policy(model="scripted/x"), prompts=Prompts(dialect="terminal", system="Terminal."))


def one(name: str, effect: Effect) -> Tool:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name=name, parameters=schema, effect=effect)


LOOK, ADD, PAY = one("look", "read"), one("add", "episode"), one("pay", "world")


class Counter:
    """A world with a sum of its own (`add`) and real money (`pay`), which is kept in a list that outlives it."""

    def __init__(self, paid: list[int], fails: Mapping[int, Exception] | None = None) -> None:
        self.paid, self.fails = paid, fails or {}
        self.sum, self.closed, self.done = 0, 0, list[str]()

    @property
    def tools(self) -> Sequence[Tool]:
        return (LOOK, ADD, PAY, ANSWER)

    async def start(self) -> Observation:
        return Observation(content="ready")

    async def step(self, action: Action) -> Observation:
        n = int(str(action.arguments["n"]))
        if n in self.fails:
            raise self.fails[n]
        self.done.append(f"{action.tool} {n}")
        if action.tool == "add":
            self.sum += n
        if action.tool == "pay":
            self.paid.append(n)
        return Observation(content=f"{action.tool} {n}: sum {self.sum}")

    async def state(self) -> Mapping[str, JsonValue]:
        return {"sum": self.sum, "paid": list(self.paid)}

    async def close(self) -> None:
        self.closed += 1


def calls(*wanted: tuple[str, int], text: str = "") -> Completion:
    """A native output with tool calls."""
    made = tuple(Call(id=f"{name}{n}", tool=name, arguments=json.dumps({"n": n})) for name, n in wanted)
    return Completion(text=text, calls=made, finish="calls")


class Rig:
    """An agent, its model, and every world that it opened."""

    def __init__(self, script: Sequence[Output] | Writer, *, fails: Mapping[int, Exception] | None = None, **parts: Any) -> None:
        self.paid: list[int] = []
        self.worlds: list[Counter] = []
        self.model = Scripted(script)

        def opened(task: Task, seed: int) -> Counter:
            self.worlds.append(Counter(self.paid, fails))
            return self.worlds[-1]

        self.agent = Agent(self.model, opened, **parts)

    @property
    def closed(self) -> bool:
        """Every world that was opened was closed, once."""
        return all(world.closed == 1 for world in self.worlds)


def limited(spec: HarnessSpec = NATIVE, **limits: Any) -> HarnessSpec:
    return spec.replace(limits=Limits(**limits))
