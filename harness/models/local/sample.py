"""Sampling: one token a sequence from its own distribution, by its own uniform; no sequence sees its neighbours."""

from collections.abc import Sequence

import torch
from torch import Tensor


def choose(logits: Tensor, temperatures: Sequence[float], top_p: Sequence[float], uniforms: Sequence[float]) -> list[int]:
    """Token ids for [rows, vocabulary] logits by inversion of each row's distribution; temperature 0 takes the likeliest."""
    heat = torch.tensor([t if t > 0 else 1.0 for t in temperatures])[:, None]
    chances = torch.softmax(logits / heat, -1)
    for row, share in enumerate(top_p):
        if share < 1:
            chances[row] = _nucleus(chances[row], share)
    # In fp32, a uniform near 1 could land beyond the last token with any chance.
    sums = chances.cumsum(-1, dtype=torch.float64)
    goals = torch.tensor(uniforms, dtype=sums.dtype)[:, None] * sums[:, -1:]
    drawn = torch.searchsorted(sums, goals, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    likeliest = logits.argmax(-1)
    cold = torch.tensor([t == 0 for t in temperatures])
    return [int(token) for token in torch.where(cold, likeliest, drawn).tolist()]


def logprobs(logits: Tensor, tokens: Sequence[int]) -> list[float]:
    """Log-probability of each row's token at temperature 1."""
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return [float(value) for value in (chosen - logits.logsumexp(-1)).tolist()]


def _nucleus(chances: Tensor, share: float) -> Tensor:
    """The smallest set of likeliest tokens whose chances reach `share`; the others get 0 (Holtzman et al. 2020)."""
    ordered, order = chances.sort(descending=True)
    kept = ordered.cumsum(-1) - ordered < share
    return torch.zeros_like(chances).scatter(0, order[kept], ordered[kept])
