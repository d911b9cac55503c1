"""The plainest strategy of each seam: no recall, one call, no correction, permission by the tool's effect."""

from collections.abc import Sequence
from typing import Literal

from harness.correction import Correction, Permission
from harness.hint import Recalled
from harness.message import Action, Completion, Message
from harness.seams import Ask, Permit
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Step


async def no_recall(task: Task, spec: HarnessSpec) -> Recalled:
    return Recalled(reason="this agent recalls nothing")


async def one_call(task: Task, messages: Sequence[Message], ask: Ask) -> Completion:
    return await ask(messages)


async def no_guard(task: Task, steps: Sequence[Step], completion: Completion) -> Correction:
    return Correction()


def by_effect(tools: Sequence[Tool], *, world: Literal["deny", "ask", "allow"] = "deny", allowed: Sequence[str] = ()) -> Permit:
    """Allow `read` and `episode` effects; treat `world` effects, and tools that nobody declared, as `world` says.

    `allowed` names tools that may act on the world without a question.
    """
    effects = {tool.name: tool.effect for tool in tools}

    async def permit(task: Task, steps: Sequence[Step], action: Action) -> Permission:
        effect = effects.get(action.tool, "world")
        if action.kind != "call" or effect != "world" or action.tool in allowed:
            return Permission(decision="allow")
        return Permission(decision=world, reason=f"{action.tool} acts on the world; allow it by name, or let a human decide")

    return permit
