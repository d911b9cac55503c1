"""Agent: the LangGraph graph recall -> (decide -> act)* -> score, the only loop; it learns nothing and stores nothing."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateSnapshot, interrupt
from pydantic import JsonValue

from harness.approval import Answered, Approval, Waiting, decided
from harness.ask import Asking
from harness.bounded import bounded, said
from harness.correction import Permission
from harness.episode import Brief, Pending, State, Turn, exhausted, summary
from harness.errors import ApprovalError, EnvironmentBroken, Unparsed, UsageError
from harness.message import Action, Completion, Message, Observation
from harness.plain import by_effect, no_guard, no_recall, one_call
from harness.prompt import described, render
from harness.seams import Guard, Model, OpenEnvironment, Permit, Recall, Think, Verify
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Failure, Stop, Trajectory
from harness.worlds import Worlds

Checkpointer = BaseCheckpointSaver[str]
CUT = "the episode's time ran out while this was under way; it may have been done"

RESUME = "__resume__"
"""LangGraph's channel of the answers to interrupts."""


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
    checkpointer: Checkpointer | None = None
    clock: Callable[[], datetime] = now

    def __post_init__(self) -> None:
        self._worlds = Worlds(self.open)
        self._running: set[str] = set()
        graph = StateGraph(State)
        graph.add_node("recall", self._recall, destinations=("decide", "score"))
        graph.add_node("decide", self._decide, destinations=("act", "score"))
        graph.add_node("act", self._act, destinations=("act", "decide", "score"))
        graph.add_node("score", self._score)
        graph.add_edge(START, "recall")
        graph.add_edge("score", END)
        self.graph = graph.compile(checkpointer=self.checkpointer)

    async def run(
        self, task: Task, spec: HarnessSpec, *, seed: int, world_seed: int = 0, arm: str = "", thread: str = ""
    ) -> Trajectory:
        """One episode. A failure is a Trajectory with `error`; only a cancelled call or a wrong request raises.

        Raises UsageError when the spec names a strategy that this agent does not have or the thread was used before, Waiting
        when a human must decide.
        """
        self._known(spec)
        if thread and self.checkpointer is not None and "brief" in (await self._snapshot(thread)).values:
            raise UsageError(f"there is a run {thread!r} already; go on with resume({thread!r}), or begin another thread")
        run = thread or uuid.uuid4().hex
        brief = Brief(run=run, task=task, spec=spec, seed=seed, world_seed=world_seed, arm=arm, created=self.clock())
        return await self._through({"brief": brief}, run, spec)

    async def resume(self, thread: str, answer: object = None) -> Trajectory:
        """Go on with a run that was killed, or that waits for a human; what is finished is not done again.

        Raises ApprovalError for an answer that does not fit what waits, Waiting when it still waits, UsageError for an
        unknown thread.
        """
        state, approval = await self._waiting(thread)
        spec, now = state["brief"].spec, self.clock()
        self._known(spec)
        if approval is None:
            if answer is not None:
                raise ApprovalError(f"run {thread} does not wait for a decision: it was decided before, or never asked for one")
            return await self._through(None, thread, spec)
        if answer is None and now < approval.expires:
            raise Waiting(thread, approval)
        decided(approval, answer, now)
        return await self._through(Command(resume=Answered(given=cast(JsonValue, answer), at=now)), thread, spec)

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

    async def _recall(self, state: State) -> Command[Any]:
        brief = state["brief"]

        async def work() -> State:
            _, opening = await self._worlds.begin(brief)
            return {"recalled": await self.recall(brief.task, brief.spec), "opening": opening, "turns": 0, "turn": None}

        return _then(await bounded(state, work))

    async def _decide(self, state: State) -> Command[Any]:
        """Think, correct, permit: computes only, so that running it again costs a model call and changes nothing."""
        if exhausted(state):
            return _then({"stop": "limit"})
        brief, steps = state["brief"], state.get("steps", [])
        ask = Asking(self.model, brief.spec, brief.seed, state["turns"])

        async def work() -> State:
            environment = await self._worlds.of(brief, steps)
            ask.tools = described(environment.tools, brief.spec)
            messages = render(brief.spec, brief.task, ask.tools, state["recalled"].hints, steps, state["opening"])
            completion = await self.thinking[brief.spec.thinking](brief.task, messages, ask)
            correction = await self.guards[brief.spec.guard](brief.task, steps, completion)
            raw, changed = "", correction.thought
            if changed is not None and changed != completion.thought:
                raw = completion.thought
                completion = (await ask(messages, prefix=changed)).replace(thought=changed)
            if not completion.actions:
                raise Unparsed(f"the thinking {brief.spec.thinking!r} came to no action")
            turn = Turn(
                number=state["turns"], pending=await self._permitted(state, completion, ask.tools), raw_thought=raw,
                thought=completion.thought, correction=None if changed is None else correction, text=completion.text,
                tokens=completion.tokens, finish=completion.finish, usage=ask.usage, unhonoured=completion.unhonoured,
                decided=self.clock(),
            )  # fmt: skip
            return {"turn": turn, "turns": state["turns"] + 1}

        change = await bounded(state, work)
        return _then({**change, "usage": change["usage"] + ask.usage})

    async def _permitted(self, state: State, completion: Completion, tools: Sequence[Tool]) -> tuple[Pending, ...]:
        """The actions, each with an id that is stable across a restart and with what may be done with it."""
        brief, steps = state["brief"], state.get("steps", [])
        permit = self.permit or by_effect(tools)
        pending = []
        for place, action in enumerate(completion.actions):
            if not action.id:
                action = action.replace(id=f"{brief.run}:{state['turns']}:{place}")
            permission = await permit(brief.task, steps, action)
            shown = next((t for t in tools if t.name == action.tool), None) if permission.decision == "ask" else None
            pending.append(Pending(action=action, permission=permission, tool=shown))
        return tuple(pending)

    async def _act(self, state: State) -> Command[Any]:
        """One action a visit; a human's decision is asked for before anything else happens."""
        turn = cast(Turn, state["turn"])
        action, permission = turn.pending[0].action, turn.pending[0].permission
        if permission.decision == "ask" and action.kind != "invalid":
            action, permission = self._asked(turn.approval(state["brief"].run))

        async def work() -> State:
            observation, stop = await self._done(state, action, permission)
            steps = state.get("steps", [])
            if stop is None and len(steps) + 1 >= state["brief"].spec.limits.steps:
                stop = "limit"
            change: State = {"steps": [turn.step(action, permission, observation)], "turn": None if stop else turn.rest}
            if stop is not None:
                change["stop"] = stop
            if stop == "answer":
                change["answer"] = action.text
            return change

        change = await bounded(state, work)
        if change.get("stop") == "limit" and "steps" not in change:
            change["steps"] = [turn.step(action, permission, Observation(content=CUT, error=True))]
        return _then(change)

    async def _score(self, state: State) -> State:
        """Ask the world what became of it, and the verifier what that is worth; then the world is closed."""
        brief, trajectory = state["brief"], summary(state)
        try:
            if trajectory.error is None:
                environment = await self._worlds.of(brief, state.get("steps", []))
                trajectory = trajectory.replace(state=await environment.state())
                if self.verify is not None:
                    trajectory = trajectory.replace(reward=await self.verify(brief.task, trajectory, trajectory.state))
        except Exception as error:
            wall = error.wall if isinstance(error, EnvironmentBroken) else "verifier"
            trajectory = trajectory.replace(error=Failure(wall=wall, message=said(error), infrastructure=True), stop="error")
        await self._worlds.end(brief.run)
        return {"trajectory": trajectory}

    # --- how they work ----------------------------------------------------------------------------------------

    async def _done(self, state: State, action: Action, permission: Permission) -> tuple[Observation, Stop | None]:
        if action.kind == "invalid":
            return Observation(content=action.problem, error=True), None
        if permission.decision == "deny":
            return Observation(content=f"not permitted: {permission.reason}", error=True), None
        if action.kind == "answer":
            return Observation(done=True), "answer"
        observation = await (await self._worlds.of(state["brief"], state.get("steps", []))).step(action)
        return observation, "done" if observation.done else None

    def _asked(self, approval: Approval) -> tuple[Action, Permission]:
        """Interrupt until there is an answer that fits; the hash binds it to what was shown."""
        while True:
            try:
                return decided(approval, interrupt(approval.shown()), self.clock())
            except ApprovalError:
                continue

    async def _through(self, given: State | Command[Any] | None, thread: str, spec: HarnessSpec) -> Trajectory:
        if thread in self._running:
            raise ApprovalError(f"run {thread} is under way: it was decided or resumed a moment ago")
        self._running.add(thread)
        config: dict[str, Any] = {"configurable": {"thread_id": thread}, "recursion_limit": 3 * spec.limits.steps + 20}
        durable = {"durability": "sync"} if self.checkpointer is not None else {}
        try:
            final = await self.graph.ainvoke(cast(Any, given), cast(Any, config), **cast(Any, durable))
        finally:
            self._running.discard(thread)
            await self._worlds.end(thread)
        if "trajectory" in final:
            return cast(Trajectory, final["trajectory"])
        raise Waiting(thread, Approval.read(final["__interrupt__"][0].value))

    async def _snapshot(self, thread: str) -> StateSnapshot:
        return await self.graph.aget_state({"configurable": {"thread_id": thread}})

    async def _waiting(self, thread: str) -> tuple[State, Approval | None]:
        if self.checkpointer is None:
            raise UsageError("this agent has no checkpointer, so no run of it can be resumed; give Agent(checkpointer=...)")
        snapshot = await self._snapshot(thread)
        if "brief" not in snapshot.values:
            raise UsageError(f"there is no run {thread!r} among the checkpoints")
        asked = [i for task in snapshot.tasks for i in task.interrupts]
        approval = Approval.read(asked[0].value) if asked else None
        if approval is not None and await self._answered(snapshot, approval):
            approval = None
        return cast(State, snapshot.values), approval

    async def _answered(self, snapshot: StateSnapshot, approval: Approval) -> bool:
        """Whether a fitting answer was kept before a crash; LangGraph goes on showing the question beside it."""
        saver = cast("BaseCheckpointSaver[str]", self.checkpointer)
        kept = await saver.aget_tuple(snapshot.config)
        given = [value for _, channel, value in (kept.pending_writes or [] if kept else []) if channel == RESUME]
        for answer in (a for value in given for a in (value if isinstance(value, list) else [value])):
            try:
                decided(approval, answer, self.clock())
                return True
            except ApprovalError:
                continue
        return False

    def _known(self, spec: HarnessSpec) -> None:
        for name, known, what in ((spec.thinking, self.thinking, "thinking"), (spec.guard, self.guards, "guard")):
            if name not in known:
                raise UsageError(f"the spec asks for {what} {name!r}; this agent has {', '.join(known)}")


def _then(change: State) -> Command[Any]:
    """The change and the next node; with conditional edges LangGraph would copy the state to ask for it."""
    return Command(update=change, goto="score" if "stop" in change else "act" if change.get("turn") else "decide")
