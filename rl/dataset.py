"""Dataset: finished episodes to training rows of the ids that the engine produced; no text is ever encoded in their place."""

from collections.abc import Callable, Collection, Sequence

from pydantic import model_validator

from harness.errors import SplitError, UsageError
from harness.message import Message, Tokens
from harness.prompt import render
from harness.spec import HarnessSpec
from harness.tool import Tool
from harness.trajectory import Step, Trajectory
from harness.value import Value

Ids = Callable[[Sequence[Message]], Sequence[int]]
"""Messages to the ids that the engine would be given, with outputs that it produced before put back as they were."""


class Row(Value):
    """One sequence to train on."""

    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """True where the agent itself chose the id and may learn it."""
    run: str
    """Id of the trajectory."""

    @model_validator(mode="after")
    def _aligned(self) -> "Row":
        if len(self.ids) != len(self.mask):
            raise ValueError(f"row of run {self.run}: {len(self.ids)} ids, {len(self.mask)} mask entries: must be equal")
        return self

    @property
    def trained(self) -> int:
        """Ids that the row teaches."""
        return sum(self.mask)


def rows(
    run: Trajectory, spec: HarnessSpec, tools: Sequence[Tool], ids: Ids, *, without: Collection[str] = ()
) -> tuple[Row, ...]:
    """The episode as a student would live it: prompts as `spec` renders them, the hints with an id in `without` left out.

    An output extends the row before it where its prompt does so exactly, id for id; else it begins a new row, in which what
    was taught already is context. An output whose action failed is context too, never a target.
    Raises SplitError for a run of another split than train, UsageError where an output has no ids (a hosted model's).
    """
    if run.task.split != "train":
        raise SplitError(f"weights learn from train runs alone; run {run.id} is of {run.task.split}: leave it out")
    hints = [hint for hint in run.recalled.hints if hint.id not in without]
    found: list[Row] = []
    for place, tokens, learnt in _outputs(run):
        prompt = tuple(ids(render(spec, run.task, tools, hints, run.steps[:place], run.opening)))
        known = found.pop() if found and _extends(prompt, found[-1].ids) else Row(ids=(), mask=(), run=run.id)
        context = prompt[len(known.ids) :]
        mask = tuple(own and learnt for own in tokens.mask)
        found.append(Row(ids=prompt + tokens.ids, mask=(*known.mask, *[False] * len(context), *mask), run=run.id))
    return tuple(found)


def _outputs(run: Trajectory) -> list[tuple[int, Tokens, bool]]:
    """Each model output: the place of its first step, its tokens, and whether all that it did went well."""
    turns: dict[int, list[tuple[int, Step]]] = {}
    for place, step in enumerate(run.steps):
        turns.setdefault(step.turn, []).append((place, step))
    found = []
    for steps in turns.values():
        place, first = steps[0]
        if not first.tokens.ids:
            raise UsageError(
                f"run {run.id}, step {place + 1}: the model gave no token ids, and text is never encoded in their place; train on"
                " runs of a local or a vLLM model"
            )
        found.append((place, first.tokens, not any(step.observation.error for _, step in steps)))
    return found


def _extends(prompt: Sequence[int], before: Sequence[int]) -> bool:
    return tuple(prompt[: len(before)]) == tuple(before)
