"""Agent: the LangGraph graph recall -> (decide -> act)* -> score, the only loop; it learns nothing and stores nothing."""

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from harness.approval import Approval, Waiting, decided
from harness.correction import Permission
from harness.episode import Brief, Pending, State, Turn, summary
from harness.errors import AgentFailure, ApprovalError, EnvironmentBroken, Infrastructure, Unparsed, UsageError
from harness.message import Action, Completion, Message, Observation, Usage
from harness.plain import by_effect, no_guard, no_recall, one_call
from harness.prompt import described, parse, render, sampling
from harness.seams import Environment, Guard, Model, OpenEnvironment, Permit, Recall, Think, Verify
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import ANSWER, Tool
from harness.trajectory import Failure, Step, Stop, Trajectory

REPAIR = "That held neither a tool call nor an answer. Call one tool, or answer in plain words."


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Agent:
    """The parts that do not evolve; what evolves is the spec of each run.

    `thinking` and `guards` are the strategies that a spec may name. With a `checkpointer` every node leaves a checkpoint and
    a killed run goes on with `resume`; without one an episode is atomic, as trials want it.
    """

    model: Model
    open: OpenEnvironment
    verify: Verify | None = None
    recall: Recall = no_recall
    thinking: Mapping[str, Think] = field(default_factory=lambda: {"plain": one_call})
    guards: Mapping[str, Guard] = field(default_factory=lambda: {"none": no_guard})
    permit: Permit | None = None
    """None: by the effects of the environment's tools, `world` denied."""
    checkpointer: BaseCheckpointSaver[str] | None = None
    clock: Callable[[], datetime] = now

    def __post_init__(self) -> None:
        self._worlds: dict[str, Environment] = {}
        graph = StateGraph(State)
        graph.add_node("recall", self._recall)
        graph.add_node("decide", self._decide)
        graph.add_node("act", self._act)
        graph.add_node("score", self._score)
        graph.add_edge(START, "recall")
        graph.add_conditional_edges("recall", _after, ["decide", "score"])
        graph.add_conditional_edges("decide", _after, ["act", "score"])
        graph.add_conditional_edges("act", _after, ["act", "decide", "score"])
        graph.add_edge("score", END)
        self.graph = graph.compile(checkpointer=self.checkpointer)

    async def run(
        self, task: Task, spec: HarnessSpec, *, seed: int, world_seed: int = 0, arm: str = "", thread: str = ""
    ) -> Trajectory:
        """One episode. A failure is a Trajectory with `error`; only a cancelled call or a wrong spec raises.

        Raises UsageError when the spec names a strategy that this agent does not have, Waiting when a human must decide.
        """
        self._known(spec)
        run = thread or uuid.uuid4().hex
        brief = Brief(run=run, task=task, spec=spec, seed=seed, world_seed=world_seed, arm=arm, created=self.clock())
        return await self._through({"brief": brief}, run, spec)

    async def resume(self, thread: str, answer: object = None) -> Trajectory:
        """Go on with a run that was killed, or that waits for a human; what is finished is not done again.

        Raises ApprovalError for an answer that does not fit what waits, Waiting when it still waits, UsageError for an
        unknown thread.
        """
        state, approval = await self._waiting(thread)
        spec = state["brief"].spec
        self._known(spec)
        if approval is None:
            if answer is not None:
                raise ApprovalError(f"run {thread} does not wait for a decision: it was decided before, or never asked for one")
            return await self._through(None, thread, spec)
        if answer is None and self.clock() < approval.expires:
            raise Waiting(thread, approval)
        decided(approval, answer, self.clock())
        return await self._through(Command(resume=answer if answer is not None else {}), thread, spec)

    async def waiting(self, thread: str) -> Approval | None:
        """What a run waits for; None when it waits for nobody. Raises UsageError for an unknown thread."""
        return (await self._waiting(thread))[1]

    async def first_prompt(self, task: Task, spec: HarnessSpec, world_seed: int = 0) -> tuple[Message, ...]:
        """The prompt before the first thought, at no model call (a likelihood ranker in `recall` may score)."""
        environment = self.open(task, world_seed)
        try:
            opening = await environment.start()
            recalled = await self.recall(task, spec)
            return render(spec, task, described(environment.tools, spec), recalled.hints, (), opening)
        finally:
            await environment.close()

    # --- the nodes --------------------------------------------------------------------------------------------

    async def _recall(self, state: State) -> State:
        brief = state["brief"]

        async def work() -> State:
            environment = self.open(brief.task, brief.world_seed)
            self._worlds[brief.run] = environment
            opening = await environment.start()
            recalled = await self.recall(brief.task, brief.spec)
            return {"recalled": recalled, "opening": opening, "turns": 0, "turn": None}

        return await self._bounded(state, work)

    async def _decide(self, state: State) -> State:
        """Think, correct, permit: computes only, so that running it again costs a model call and changes nothing."""
        brief, steps = state["brief"], state.get("steps", [])
        if reached := _limit(state):
            return reached

        async def work() -> State:
            environment = await self._world(state)
            tools = described(environment.tools, brief.spec)
            messages = render(brief.spec, brief.task, tools, state["recalled"].hints, steps, state["opening"])
            ask = _Ask(self.model, brief, tools, state["turns"])
            completion = await self.thinking[brief.spec.thinking](brief.task, messages, ask)
            correction = await self.guards[brief.spec.guard](brief.task, steps, completion)
            raw = ""
            if correction.thought is not None and correction.thought != completion.thought:
                raw = completion.thought
                again = await ask(messages, prefix=correction.thought)
                completion = again.replace(thought=correction.thought)
            permit = self.permit or by_effect(environment.tools)
            actions = tuple(
                action if action.id else action.replace(id=f"{brief.run}:{state['turns']}:{place}")
                for place, action in enumerate(completion.actions)
            )
            pending = [Pending(action=a, permission=await permit(brief.task, steps, a)) for a in actions]
            turn = Turn(
                number=state["turns"], pending=tuple(pending), thought=completion.thought, raw_thought=raw,
                correction=correction if correction.thought is not None else None, text=completion.text, tokens=completion.tokens,
                finish=completion.finish, usage=ask.usage, unhonoured=completion.unhonoured, decided=self.clock(),
            )  # fmt: skip
            return {"turn": turn, "turns": state["turns"] + 1, "usage": ask.usage}

        return await self._bounded(state, work)

    async def _act(self, state: State) -> State:
        """One action a visit; a human's decision is asked for before anything else happens."""
        turn = cast(Turn, state["turn"])
        action, permission = turn.pending[0].action, turn.pending[0].permission
        if permission.decision == "ask":
            action, permission = self._asked(state, turn)

        async def work() -> State:
            observation, ending = await self._done(state, action, permission)
            stop: Stop | None = ending
            steps = len(state.get("steps", [])) + 1
            rest = turn.replace(
                pending=turn.pending[1:],
                text="",
                tokens=turn.tokens.__class__(),
                usage=Usage(),
                thought="",
                raw_thought="",
                correction=None,
            )
            change: State = {
                "steps": [_step(turn, action, permission, observation)],
                "turn": rest if rest.pending and not stop else None,
            }
            if action.kind == "answer":
                change["answer"] = action.text
            if stop is None and steps >= state["brief"].spec.limits.steps:
                stop = "limit"
            if stop is not None:
                change["stop"] = stop
            return change

        return await self._bounded(state, work)

    async def _score(self, state: State) -> State:
        """Ask the world what became of it, and the verifier what that is worth."""
        brief = state["brief"]
        trajectory = summary(state)
        try:
            if trajectory.error is None:
                terminal = await (await self._world(state)).state()
                trajectory = trajectory.replace(state=terminal)
                if self.verify is not None:
                    trajectory = trajectory.replace(reward=await self.verify(brief.task, trajectory, terminal))
        except Exception as error:
            trajectory = trajectory.replace(
                error=Failure(wall="verifier", message=_said(error), infrastructure=True), stop="error"
            )
        return {"trajectory": trajectory}

    # --- how they work ----------------------------------------------------------------------------------------

    async def _bounded(self, state: State, work: Callable[[], Awaitable[State]]) -> State:
        """Run a node's work within the episode's time; a failure becomes data here, and only here."""
        began = monotonic()
        left = state["brief"].spec.limits.seconds - state.get("usage", Usage()).seconds
        change: State
        deadline = asyncio.timeout(max(left, 0.0))
        try:
            async with deadline:
                change = await work()
        except AgentFailure as error:
            change = {"failure": Failure(wall=error.wall, message=str(error)), "stop": "error"}
        except Infrastructure as error:
            change = {"failure": Failure(wall=error.wall, message=str(error), infrastructure=True), "stop": "error"}
        except UsageError:
            raise
        except TimeoutError as error:
            if deadline.expired():
                change = {"stop": "limit"}
            else:
                change = {"failure": Failure(wall="infrastructure", message=_said(error), infrastructure=True), "stop": "error"}
        except Exception as error:
            change = {"failure": Failure(wall="infrastructure", message=_said(error), infrastructure=True), "stop": "error"}
        change["usage"] = change.get("usage", Usage()) + Usage(seconds=monotonic() - began)
        return change

    async def _done(
        self, state: State, action: Action, permission: Permission
    ) -> tuple[Observation, Literal["done", "answer"] | None]:
        if action.kind == "invalid":
            return Observation(content=action.problem, error=True), None
        if permission.decision == "deny":
            return Observation(content=f"not permitted: {permission.reason}", error=True), None
        if action.kind == "answer":
            return Observation(done=True), "answer"
        observation = await (await self._world(state)).step(action)
        return observation, "done" if observation.done else None

    def _asked(self, state: State, turn: Turn) -> tuple[Action, Permission]:
        """Interrupt until there is an answer that fits; the hash binds it to what was shown."""
        approval = self._approval(state, turn)
        while True:
            try:
                return decided(approval, interrupt(approval.model_dump(mode="json") | approval.request()), self.clock())
            except ApprovalError:
                continue

    def _approval(self, state: State, turn: Turn) -> Approval:
        pending = turn.pending[0]
        tool = Tool(name=pending.action.tool)
        environment = self._worlds.get(state["brief"].run) or self.open(state["brief"].task, state["brief"].world_seed)
        tool = next((t for t in environment.tools if t.name == pending.action.tool), tool)
        return Approval(
            run=state["brief"].run, action=pending.action, tool=tool, reason=pending.permission.reason,
            expires=turn.decided + timedelta(seconds=pending.permission.seconds), default=pending.permission.default,
        )  # fmt: skip

    async def _world(self, state: State) -> Environment:
        """The episode's environment; after a restart a fresh one, into which the episode's own effects are replayed."""
        brief = state["brief"]
        if brief.run in self._worlds:
            return self._worlds[brief.run]
        environment = self.open(brief.task, brief.world_seed)
        await environment.start()
        own = {tool.name for tool in environment.tools if tool.effect == "episode"}
        for step in state.get("steps", []):
            if step.action.kind == "call" and step.action.tool in own and step.permission.decision == "allow":
                again = await environment.step(step.action)
                if again != step.observation:
                    raise EnvironmentBroken(
                        f"after a restart {step.action.tool} answered {again.text[:80]!r}, before it {step.observation.text[:80]!r}:"
                        " this environment does not repeat itself, so the run cannot go on"
                    )
        self._worlds[brief.run] = environment
        return environment

    async def _through(self, given: State | Command[Any] | None, thread: str, spec: HarnessSpec) -> Trajectory:
        config: dict[str, Any] = {"configurable": {"thread_id": thread}, "recursion_limit": 3 * spec.limits.steps + 20}
        durable = {"durability": "sync"} if self.checkpointer is not None else {}
        try:
            final = await self.graph.ainvoke(cast(Any, given), cast(Any, config), **cast(Any, durable))
        finally:
            environment = self._worlds.pop(thread, None)
            if environment is not None:
                await environment.close()
        if "trajectory" in final:
            return cast(Trajectory, final["trajectory"])
        raise Waiting(thread, Approval.model_validate(_shown(final["__interrupt__"][0].value)))

    async def _waiting(self, thread: str) -> tuple[State, Approval | None]:
        if self.checkpointer is None:
            raise UsageError("this agent has no checkpointer, so no run of it can be resumed; give Agent(checkpointer=...)")
        snapshot = await self.graph.aget_state({"configurable": {"thread_id": thread}})
        if "brief" not in snapshot.values:
            raise UsageError(f"there is no run {thread!r} among the checkpoints")
        asked = [i for task in snapshot.tasks for i in task.interrupts]
        return cast(State, snapshot.values), Approval.model_validate(_shown(asked[0].value)) if asked else None

    def _known(self, spec: HarnessSpec) -> None:
        for name, known, what in ((spec.thinking, self.thinking, "thinking"), (spec.guard, self.guards, "guard")):
            if name not in known:
                raise UsageError(f"the spec asks for {what} {name!r}; this agent has {', '.join(known)}")


class _Ask:
    """One call of the bound model: sampled by the turn's own seed, parsed, repaired once by asking again."""

    def __init__(self, model: Model, brief: Brief, tools: Sequence[Tool], turn: int) -> None:
        self.model, self.brief, self.tools, self.turn = model, brief, tools, turn
        self.usage = Usage()
        self.asked = 0

    async def __call__(self, messages: Sequence[Message], *, prefix: str = "") -> Completion:
        completion = await self._once(messages, prefix)
        prompts = self.brief.spec.prompts
        try:
            return parse(prompts, completion, self.tools)
        except Unparsed:
            said = (Message(role="assistant", content=completion.text), Message(role="user", content=REPAIR))
            return parse(prompts, await self._once((*messages, *said), prefix), self.tools)

    async def _once(self, messages: Sequence[Message], prefix: str) -> Completion:
        brief = self.brief
        key = hashlib.sha256(f"{brief.seed}:{self.turn}:{self.asked}".encode()).digest()
        native = brief.spec.prompts.dialect == "native"
        tools = [tool for tool in self.tools if tool.name != ANSWER.name] if native else []
        asked = sampling(brief.spec.prompts, int.from_bytes(key[:7]), prefix)
        completion = await self.model.complete(brief.spec.policy, messages, tools, asked)
        self.asked += 1
        self.usage = self.usage + completion.usage.replace(seconds=0.0)
        return completion


def _after(state: State) -> str:
    if "stop" in state:
        return "score"
    return "act" if state.get("turn") else "decide"


def _limit(state: State) -> State | None:
    """The stop of an episode that has used up its tokens, money or time."""
    used, limits = state.get("usage", Usage()), state["brief"].spec.limits
    over = (
        used.prompt_tokens + used.completion_tokens >= limits.tokens or used.cost >= limits.cost or used.seconds >= limits.seconds
    )
    return {"stop": "limit"} if over else None


def _step(turn: Turn, action: Action, permission: Permission, observation: Observation) -> Step:
    return Step(
        turn=turn.number, action=action, observation=observation, thought=turn.thought, raw_thought=turn.raw_thought,
        correction=turn.correction, permission=permission, text=turn.text, tokens=turn.tokens, finish=turn.finish,
        usage=turn.usage, unhonoured=turn.unhonoured,
    )  # fmt: skip


def _shown(value: Mapping[str, Any]) -> dict[str, Any]:
    """The approval's own fields of what was shown."""
    return {name: value[name] for name in Approval.model_fields}


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
