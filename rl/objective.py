"""Objectives: a batch of tokens to a loss; pure functions of the model's outputs that know no optimiser and no data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as mean_cross_entropy

from rl.dataset import Row


@dataclass(frozen=True)
class TokenBatch:
    """Rows of unequal length, padded on the right."""

    ids: Tensor
    """[rows, longest]."""
    mask: Tensor
    """[rows, longest]: True where the id is to be learnt; False in the padding."""


def batched(rows: Sequence[Row], padding: int = 0) -> TokenBatch:
    """The rows side by side; what pads them is never looked at."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), padding)
    mask = torch.zeros((len(rows), longest), dtype=torch.bool)
    for place, row in enumerate(rows):
        ids[place, : len(row.ids)] = torch.tensor(row.ids)
        mask[place, : len(row.mask)] = torch.tensor(row.mask)
    return TokenBatch(ids, mask)


def cross_entropy(model: Any, batch: TokenBatch) -> Tensor:
    """Mean negative log-likelihood, in nats, over all masked ids of the batch together.

    `model` is a causal decoder with `.model` and `.lm_head`. Causal attention never looks to the right, so the padding needs
    no mask; and only the places before a masked id go through the head, which is most of a small model's work.
    """
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
    before = batch.mask[:, 1:]
    logits = model.lm_head(hidden[:, :-1][before]).float()
    return mean_cross_entropy(logits, batch.ids[:, 1:][before])
