"""AgentBuilder: an agent of a user's own functions in one expression; it chooses no model and reads no settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import JsonValue

from harness.agent import Agent, Checkpointer
from harness.environments.tools import ToolsEnvironment
from harness.errors import UsageError
from harness.plain import no_recall
from harness.policy import Policy
from harness.seams import Environment, Model, Permit, Recall
from harness.spec import HarnessSpec, Limits, Prompts
from harness.task import Task
from harness.tool import Effect
from harness.trajectory import Trajectory
from harness.verifier import Judge, judged


@dataclass(frozen=True)
class Bound:
    """An agent together with the spec that it runs."""

    agent: Agent
    spec: HarnessSpec

    async def run(
        self, instruction: str, *, data: Mapping[str, JsonValue] | None = None, seed: int = 0, thread: str = ""
    ) -> Trajectory:
        """One episode; `data` is for the verifier. Raises what `Agent.run` raises."""
        task = Task(instruction=instruction, data=data or {})
        return await self.agent.run(task, self.spec, seed=seed, thread=thread)

    async def resume(self, thread: str, answer: object = None) -> Trajectory:
        """Go on with a run that was killed or waits for a human. Raises what `Agent.resume` raises."""
        return await self.agent.resume(thread, answer)


@dataclass(frozen=True)
class AgentBuilder:
    """Each call answers a new builder: `AgentBuilder().model(model, "openai/gpt-5-mini").tools(price).verify(right).build()`."""

    _model: Model | None = None
    _policy: Policy | None = None
    _functions: tuple[Callable[..., Any], ...] = ()
    _effects: tuple[tuple[str, Effect], ...] = ()
    _verify: Judge | None = None
    _recall: Recall = no_recall
    _permit: Permit | None = None
    _prompts: Prompts = field(default_factory=Prompts)
    _limits: Limits = field(default_factory=Limits)
    _checkpointer: Checkpointer | None = None

    def model(self, model: Model, name: str, *, temperature: float = 0.7) -> "AgentBuilder":
        """The model that answers, and which of its weights: `provider/name`."""
        return replace(self, _model=model, _policy=Policy(model=name, temperature=temperature))

    def tools(self, *functions: Callable[..., Any], **effects: Effect) -> "AgentBuilder":
        """More functions that the agent may call; `effects`, by tool name, overrules what they declare of themselves."""
        return replace(self, _functions=(*self._functions, *functions), _effects=(*self._effects, *effects.items()))

    def verify(self, function: Judge) -> "AgentBuilder":
        """What judges an episode: `(task, trajectory, state)` to a truth value, a number from 0 to 1, or a Reward."""
        return replace(self, _verify=function)

    def recall(self, recall: Recall) -> "AgentBuilder":
        return replace(self, _recall=recall)

    def permit(self, permit: Permit) -> "AgentBuilder":
        """Who may do what; without it, tools with `world` effects are refused. See `plain.by_effect`."""
        return replace(self, _permit=permit)

    def limits(
        self, *, steps: int | None = None, tokens: int | None = None, seconds: float | None = None, cost: float | None = None
    ) -> "AgentBuilder":
        """Caps of one episode; what is not named keeps its value."""
        given = {"steps": steps, "tokens": tokens, "seconds": seconds, "cost": cost}
        return replace(self, _limits=self._limits.replace(**{name: value for name, value in given.items() if value is not None}))

    def system(self, text: str) -> "AgentBuilder":
        """The opening words of the prompt."""
        return replace(self, _prompts=self._prompts.replace(system=text))

    def checkpointer(self, checkpointer: Checkpointer) -> "AgentBuilder":
        """Where every step is kept, so that a killed run goes on: `checkpoint.sqlite(path)`."""
        return replace(self, _checkpointer=checkpointer)

    def build(self) -> Bound:
        """The agent with its spec. Raises UsageError when there is no model or a function is no tool."""
        if self._model is None or self._policy is None:
            raise UsageError('an agent needs a model: AgentBuilder().model(LiteLLM(), "openai/gpt-5-mini")')
        made = partial(ToolsEnvironment, self._functions, dict(self._effects))
        made()

        def opened(task: Task, seed: int) -> Environment:
            return made()

        agent = Agent(
            self._model, opened, verify=None if self._verify is None else judged(self._verify), recall=self._recall,
            permit=self._permit, checkpointer=self._checkpointer,
        )  # fmt: skip
        return Bound(agent, HarnessSpec(policy=self._policy, prompts=self._prompts, limits=self._limits))
