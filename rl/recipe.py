"""Recipe and what came of it: how an adapter is trained, as data that names the training; nothing is computed here."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from harness.value import Value, digest
from rl.dataset import Row


class Recipe(Value):
    """Everything but the rows that decides the weights that come out."""

    rank: Annotated[int, Field(ge=1, le=256)] = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    """LoRA's scaling is alpha / rank (Hu et al. 2021, section 4.1)."""
    rate: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of AdamW, without weight decay."""
    steps: Annotated[int, Field(ge=1)] = 16
    batch: Annotated[int, Field(ge=1)] = 8
    """Rows a step."""
    clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest norm of the gradient."""
    seed: int = 0
    held: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the rows that is not trained on: the checkpoint to keep is chosen by the loss there."""
    every: Annotated[int, Field(ge=1)] = 4
    """Steps from one checkpoint to the next."""


class Point(Value):
    """The loss at one step."""

    step: int
    loss: float
    """Mean cross-entropy, in nats a token."""
    norm: float = 0.0
    """Norm of the gradient before clipping; 0 for held-out losses."""


class Trained(Value):
    """An adapter as it was made."""

    adapter: str
    """Digest of its files: its name everywhere."""
    kept: int
    """Step of the checkpoint that was kept."""
    curve: tuple[Point, ...]
    """Loss of each step, on the rows of its batch."""
    held: tuple[Point, ...]
    """Loss on the held-out rows; without them, on the last batch before it."""
    seconds: float


class Adapter(Value):
    """One stored adapter with its descent."""

    base: str
    """Digest of the weights under it."""
    parent: str = ""
    """Digest of the adapter that training began from; empty: none."""
    skill: str = ""
    """Digest of the skill whose know-how it carries."""
    source: str
    """Where its rows came from, in words."""
    runs: tuple[str, ...]
    """Trajectories that it was trained on."""
    recipe: Recipe
    training: str
    """Name of the training that made it."""
    trained: Trained
    created: datetime

    @property
    def name(self) -> str:
        """Digest of its files."""
        return self.trained.adapter


def training(recipe: Recipe, rows: Sequence[Row], base: str, parent: str = "") -> str:
    """Name of a training (64 hex digits): equal rows on equal weights by an equal recipe, whatever the runs' ids are."""
    return digest([recipe.digest, base, parent, [[list(row.ids), [int(m) for m in row.mask]] for row in rows]])
