"""The trainer: rows and a recipe to an adapter; killed anywhere, it goes on where it was. It judges no agent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, cast

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.models.local.load import Weights
from rl.checkpoint import Checkpoint, keep, newest
from rl.dataset import Row
from rl.lora import adapted, publish, restore, state
from rl.objective import batched, cross_entropy
from rl.recipe import Point, Recipe, Trained, training

NUMBERS = ("exp_avg", "exp_avg_sq", "step")
"""AdamW's state of one parameter."""


@dataclass
class _Run:
    """A training under way: all that a checkpoint holds."""

    model: Any
    optimiser: torch.optim.AdamW
    step: int = 0
    curve: list[Point] = field(default_factory=list)
    held: list[Point] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def kept(self) -> int:
        return min(self.held, key=lambda point: point.loss).step


def train(
    weights: Weights,
    rows: Sequence[Row],
    recipe: Recipe,
    *,
    work: Path,
    adapters: Path,
    parent: Path | None = None,
    on: Callable[[Point], None] = lambda point: None,
) -> Trained:
    """Train one adapter on `weights`, whose model is used up, and publish it in the folder `adapters`.

    The same rows, recipe and weights are the same training: killed anywhere, it goes on from its last checkpoint under `work`
    to the same adapter, bit for bit where the arithmetic repeats itself. `on` hears every step that is done now. The folder
    `work` is the caller's to remove, once the adapter is on record.
    Raises UsageError when the rows teach nothing, StoreError for a damaged checkpoint.
    """
    learnt, held = split(rows, recipe)
    if not sum(row.trained for row in learnt):
        raise UsageError(f"{len(rows)} rows with nothing to learn in them: run more train tasks that succeed")
    folder = work / training(recipe, rows, weights.digest, parent.name if parent else "")[:32]
    run = _begun(weights.model, recipe, parent)
    _resume(run, newest(folder))
    began, before = monotonic(), run.seconds
    for step, chosen in enumerate(order(len(learnt), recipe), start=1):
        if step <= run.step:
            continue
        point = _step(run, [learnt[i] for i in chosen], recipe, step)
        on(point)
        if step % recipe.every == 0 or step == recipe.steps:
            loss = _loss(run, held) if held else point.loss
            run.held.append(Point(step=step, loss=loss))
            if run.kept == step:
                run.best = state(run.model)
            run.seconds = before + monotonic() - began
            keep(folder, _checkpoint(run))
    adapter = publish(run.model, run.best, weights.digest, adapters)
    return Trained(adapter=adapter, kept=run.kept, curve=tuple(run.curve), held=tuple(run.held), seconds=run.seconds)


def split(rows: Sequence[Row], recipe: Recipe) -> tuple[list[Row], list[Row]]:
    """The rows to learn, and those held out: whole runs, drawn by the recipe's seed."""
    runs = list(dict.fromkeys(row.run for row in rows))
    places = list(range(len(runs)))
    Random(f"held {recipe.seed}").shuffle(places)
    kept = {runs[place] for place in places[: int(recipe.held * len(runs))]}
    return [row for row in rows if row.run not in kept], [row for row in rows if row.run in kept]


def order(rows: int, recipe: Recipe) -> Iterator[list[int]]:
    """The places of each step's rows: every row once an epoch, in an order of that epoch."""
    waiting: list[int] = []
    epoch = 0
    for _ in range(recipe.steps):
        while len(waiting) < min(recipe.batch, rows):
            fresh = list(range(rows))
            Random(f"order {recipe.seed} {epoch}").shuffle(fresh)
            waiting, epoch = waiting + fresh, epoch + 1
        chosen, waiting = waiting[: recipe.batch], waiting[recipe.batch :]
        yield chosen


def _begun(model: Any, recipe: Recipe, parent: Path | None) -> _Run:
    wrapped = adapted(model, recipe, parent)
    wrapped.train()
    own = [value for value in wrapped.parameters() if value.requires_grad]
    return _Run(wrapped, torch.optim.AdamW(own, lr=recipe.rate, weight_decay=0.0))


def _step(run: _Run, rows: Sequence[Row], recipe: Recipe, step: int) -> Point:
    loss = cross_entropy(run.model.get_base_model(), batched(rows))
    loss.backward()  # type: ignore[no-untyped-call]
    own = run.optimiser.param_groups[0]["params"]
    norm = float(torch.nn.utils.clip_grad_norm_(own, recipe.clip))
    run.optimiser.step()
    run.optimiser.zero_grad()
    run.step = step
    run.curve.append(Point(step=step, loss=float(loss.detach()), norm=norm))
    return run.curve[-1]


def _loss(run: _Run, rows: Sequence[Row], many: int = 16) -> float:
    """Mean loss over all masked ids of the rows."""
    total, ids = 0.0, 0
    with torch.no_grad():
        for first in range(0, len(rows), many):
            some = rows[first : first + many]
            trained = sum(row.trained for row in some)
            if trained:
                total += float(cross_entropy(run.model.get_base_model(), batched(some))) * trained
                ids += trained
    return total / max(ids, 1)


def _checkpoint(run: _Run) -> Checkpoint:
    tensors = {f"weights.{name}": value for name, value in state(run.model).items()}
    tensors |= {f"best.{name}": value for name, value in run.best.items()}
    tensors["random"] = torch.get_rng_state()
    for place, numbers in run.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{place}.{name}": numbers[name].clone() for name in NUMBERS}
    facts: dict[str, Any] = {
        "curve": [point.model_dump() for point in run.curve], "held": [point.model_dump() for point in run.held],
        "seconds": run.seconds,
    }  # fmt: skip
    return Checkpoint(step=run.step, tensors=tensors, facts=facts)


def _resume(run: _Run, checkpoint: Checkpoint | None) -> None:
    if checkpoint is None:
        return
    facts = cast(dict[str, Any], checkpoint.facts)
    run.step, run.seconds = checkpoint.step, facts["seconds"]
    run.curve = [Point.model_validate(point) for point in facts["curve"]]
    run.held = [Point.model_validate(point) for point in facts["held"]]
    found: dict[str, dict[str, Tensor]] = {"weights": {}, "best": {}, "adam": {}}
    for name, value in checkpoint.tensors.items():
        kind, _, rest = name.partition(".")
        if rest:
            found[kind][rest] = value
    restore(run.model, found["weights"])
    run.best = found["best"]
    numbers: dict[int, dict[str, Tensor]] = {}
    for name, value in found["adam"].items():
        place, _, number = name.partition(".")
        numbers.setdefault(int(place), {})[number] = value
    run.optimiser.load_state_dict({"state": numbers, "param_groups": run.optimiser.state_dict()["param_groups"]})
    torch.set_rng_state(checkpoint.tensors["random"])
