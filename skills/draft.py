"""Drafts: worked-example skills, made word for word from successful runs; they are stored by others and judged by trials."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from harness.errors import SplitError, UsageError
from harness.prompt import worked
from harness.trajectory import Step, Trajectory
from harness.value import Value
from memory.embed import Embedder
from skills.skill import LONGEST_DESCRIPTION, LONGEST_NAME, Provenance, Skill, Source, name_problem

_TOLD_BY: Final[Mapping[str, Source]] = {"policy": "agent", "human": "human", "recorded": "human"}
"""Whose runs may become a worked example, and what the skill then says of itself."""
_UNTELLING: Final = frozenset(
    {"a", "an", "and", "at", "by", "for", "from", "i", "in", "is", "it", "me", "my", "of", "on", "or", "our", "please", "that"}
    | {"the", "this", "to", "us", "we", "with", "you"}
)


class Refusal(Value):
    """Why there is no draft."""

    code: Literal["unreadable", "incomplete", "ungrounded", "declined"]
    reason: str
    answer: str = ""
    """What the model wrote last."""


def worked_example(trajectories: Sequence[Trajectory], *, name: str = "", description: str = "") -> Skill:
    """A skill that shows whole successful episodes, in the order given; equal runs give equal skills.

    Raises SplitError for a run of another split than train; UsageError for none, and for one that is no full success, took
    no step, or is neither the agent's own nor a person's.
    """
    if not trajectories:
        raise UsageError("a worked example needs a successful run of a train task, found none: `assay evolve` makes some")
    for run in trajectories:
        trainable(run)
        if not run.success or run.error is not None or not run.steps:
            found = "no reward" if run.reward is None else f"reward {run.reward.value:g} after {len(run.steps)} steps"
            raise UsageError(f"a worked example shows full successes; run {run.id} has {found}: leave it out")
        if run.source not in _TOLD_BY:
            raise UsageError(f"run {run.id} is of source {run.source}; a worked example is made from {', '.join(_TOLD_BY)} alone")
    sources = sorted({run.source for run in trajectories})
    kinds = list(dict.fromkeys(masked(run.task.instruction) for run in trajectories))
    return Skill(
        name=name or named(kinds[0]) or "worked-example",
        description=description or _cut(f"Worked example{'s' if len(trajectories) > 1 else ''}: {' / '.join(kinds)}"),
        body="\n".join(transcript(run) for run in trajectories),
        provenance=Provenance(
            source="agent" if sources == ["policy"] else "human",
            runs=tuple(run.id for run in trajectories),
            author_model=", ".join(sorted({run.policy for run in trajectories})),
            note="" if sources == ["policy"] else f"runs of source {', '.join(sources)}",
        ),
    )


def trainable(run: Trajectory) -> None:
    """Raises SplitError unless the run is of the train split: proposers learn from nothing else."""
    if run.task.split != "train":
        raise SplitError(f"skills are drafted from train runs alone; run {run.id} is of {run.task.split}: leave it out")


def transcript(run: Trajectory) -> str:
    """The episode as text, also where the model called its tools natively."""
    return worked(run.task, [_typed(step) for step in run.steps], run.opening)


def nearest(failure: Trajectory, successes: Sequence[Trajectory], embedder: Embedder) -> Trajectory:
    """The success whose task is most like the failure's, the same task first; the earlier one on a tie.

    Raises UsageError when there is no success.
    """
    if not successes:
        raise UsageError(f"run {failure.id} failed and no success is known to set beside it: run more train tasks")
    texts = [masked(run.task.instruction) for run in (failure, *successes)]
    mine, *others = embedder.embed(texts)
    cosines = [sum(a * b for a, b in zip(mine, other, strict=True)) for other in others]
    same = [run.task.digest == failure.task.digest for run in successes]
    return successes[max(range(len(successes)), key=lambda i: (same[i], cosines[i], -i))]


def masked(instruction: str) -> str:
    """The instruction on one line, with `#` for every word that holds a digit: what it asks, of nobody in particular."""
    return " ".join(re.sub(r"\w*\d[\w.,-]*\w|\w*\d", "#", word) for word in instruction.split())


def _typed(step: Step) -> Step:
    """A step as a command line; native tool calls have no such text of their own."""
    action = step.action
    if action.kind == "call" and action.text != step.text:
        words = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in action.arguments.items())
        return step.replace(text=" " + " ".join([action.tool, *words]))
    if not step.text.strip():
        return step.replace(text=f" {f'{action.tool} {action.text}'.strip()}")
    return step


def named(text: str) -> str:
    """A skill's name out of the telling words of a text, six at most; empty when there are none."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    words = [word for word in re.split(r"[\W_]+", plain) if word.isalpha() and word not in _UNTELLING]
    name = "-".join(words[:6])[:LONGEST_NAME].strip("-")
    return "" if name_problem(name) else name


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_DESCRIPTION else text[: LONGEST_DESCRIPTION - 1] + "…"
