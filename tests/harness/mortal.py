"""An agent that dies by SIGKILL where it is told to, and one that goes on; run by test_recovery.py, also as a process.

python -m tests.harness.mortal FOLDER run|resume [model|heard|before|after|verify K]
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.agent import Agent
from harness.checkpoint import sqlite
from harness.message import Action, Message, Observation
from harness.models.scripted import Scripted
from harness.plain import by_effect
from harness.policy import Sampling
from harness.reward import Reward
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Trajectory
from tests.harness.rigs import TASK, TERMINAL, Counter

SCRIPT = (" add 1", " pay 5", " add 2", " pay 6", " answer done")


class Mortal:
    def __init__(self, folder: Path, point: str = "", place: int = 0) -> None:
        self.folder, self.point, self.left = folder, point, place

    def at(self, point: str) -> None:
        """Die here, if this is the place."""
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def note(self, line: str) -> None:
        with (self.folder / "log").open("a") as file:
            file.write(line + "\n")

    def write(self, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling) -> str:
        self.at("model")
        turn = sum(message.role == "assistant" for message in messages)
        self.note(f"model {turn}")
        return SCRIPT[turn]

    async def verify(self, task: Task, trajectory: Trajectory, state: Any) -> Reward:
        self.at("verify")
        return Reward(value=float(state["sum"] == 3))

    async def go(self, what: str) -> Trajectory:
        mortal = self

        class World(Counter):
            async def step(self, action: Action) -> Observation:
                mortal.at("before")
                mortal.note(action.text.strip())
                observation = await super().step(action)
                mortal.at("after")
                return observation

        permit = by_effect(World([]).tools, world="allow")
        async with sqlite(self.folder / "checkpoints.db") as saver:
            agent = Agent(Scripted(self.write), lambda task, seed: World([]), self.verify, permit=permit, checkpointer=saver)
            if what == "run":
                return await agent.run(TASK, TERMINAL, seed=0, thread="t")
            return await agent.resume("t")


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


if __name__ == "__main__":
    _, where, verb, *point = sys.argv
    print(asyncio.run(Mortal(Path(where), *(point[:1]), *(int(p) for p in point[1:])).go(verb)).model_dump_json())
