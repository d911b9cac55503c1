"""A user's own compiled LangGraph graph under trial: a spec reaches it as messages, what it did comes back as a run."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from evolve.house import Episode, Glance, Look, Roll
from harness.errors import AgentFailure
from harness.message import Action, Message, Observation, Usage
from harness.prompt import render
from harness.seams import Recall, Verify
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Failure, Step, Trajectory
from harness.value import digest

Invoke = Callable[[list[dict[str, str]], HarnessSpec, int], Any]
"""(messages in OpenAI's form, spec, seed) to an awaitable of the graph's final state, a mapping with `messages`."""


def under_trial(invoke: Invoke, *, recall: Recall, verify: Verify, tools: Sequence[Tool]) -> tuple[Roll, Glance]:
    """The two callables that put a graph into a House.

    `tools` are the graph's own, with their effects: a trial refuses those with `world` effects. An AgentFailure that the graph
    raises counts as reward 0; any other exception is infrastructure: repeated, counted for each arm, and never a verdict.
    """

    async def messages(task: Task, spec: HarnessSpec) -> tuple[Message, ...]:
        recalled = await recall(task, spec)
        return render(spec, task, tools, recalled.hints)

    async def roll(episode: Episode) -> Trajectory:
        task, spec, seeds = episode.task, episode.spec, episode.seeds
        recalled = await recall(task, spec)
        prompt = [{"role": m.role, "content": str(m.content)} for m in render(spec, task, tools, recalled.hints)]
        began, failure, said, usage = monotonic(), None, [], Usage()
        try:
            final = await invoke(prompt, spec, seeds.sampling)
            said = list(final["messages"])[len(prompt) :]
            usage = _usage(said)
        except AgentFailure as error:
            failure = Failure(wall=error.wall, message=str(error))
        except Exception as error:
            failure = Failure(wall="graph", message=f"{type(error).__name__}: {error}", infrastructure=True)
        run = Trajectory(
            id=episode.id or uuid.uuid4().hex, task=task, spec=spec.digest, policy=spec.policy.name,
            seed=seeds.sampling, world_seed=seeds.world, arm=episode.arm, recalled=recalled,
            steps=tuple(_steps(said)), answer=_words(said[-1]) if said else "",
            usage=usage.replace(seconds=monotonic() - began), stop="error" if failure else "answer", error=failure,
            created=datetime.now(UTC),
        )  # fmt: skip
        return run if failure else run.replace(reward=await verify(task, run, {}))

    async def glance(task: Task, spec: HarnessSpec) -> Look:
        return Look(prompt=digest([m.model_dump(mode="json") for m in await messages(task, spec)]), tools=tuple(tools))

    return roll, glance


def _steps(said: Sequence[Any]) -> list[Step]:
    """LangChain messages to steps: one a tool call, and one for the last words."""
    answers = {getattr(m, "tool_call_id", None): m for m in said}
    steps: list[Step] = []
    for turn, message in enumerate(m for m in said if getattr(m, "type", "") == "ai"):
        calls: list[Mapping[str, Any]] = getattr(message, "tool_calls", [])
        for call in calls:
            back = answers.get(call["id"])
            action = Action(kind="call", id=str(call["id"]), tool=call["name"], arguments=call["args"])
            failed = getattr(back, "status", "success") == "error"
            steps.append(
                Step(turn=turn, action=action, observation=Observation(content=_words(back), error=failed), text=_words(message))
            )
        if not calls:
            steps.append(
                Step(
                    turn=turn,
                    action=Action(kind="answer", text=_words(message)),
                    observation=Observation(done=True),
                    text=_words(message),
                )
            )
    return steps


def _words(message: Any) -> str:
    return "" if message is None else str(getattr(message, "text", getattr(message, "content", "")))


def _usage(said: Sequence[Any]) -> Usage:
    """Tokens as LangChain's `usage_metadata` counts them."""
    counted = [m.usage_metadata for m in said if getattr(m, "usage_metadata", None)]
    return Usage(
        prompt_tokens=sum(c["input_tokens"] for c in counted),
        completion_tokens=sum(c["output_tokens"] for c in counted),
        calls=len(counted),
    )
