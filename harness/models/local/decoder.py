"""The decoder's forward pass over packed tokens: our own over fused weights where it is a plain Llama, else transformers'."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from harness.models.local.memory import Forward

Decoder = Callable[[Tensor, Tensor, Forward], Tensor]
"""Token ids and their places, [tokens] each, to hidden states, [tokens, width]."""


def decoder(model: Any) -> Decoder:
    """Our pass where it applies, else the modules; a Llama's modules share the fused weights afterwards."""
    config = model.config
    plain = config.model_type == "llama" and not (config.attention_bias or config.mlp_bias) and config.hidden_act == "silu"
    return Llama(model) if plain else _modules(model)


def _modules(model: Any) -> Decoder:
    def forward(ids: Tensor, places: Tensor, plan: Forward) -> Tensor:
        found = model.model(input_ids=ids[None], position_ids=places[None], use_cache=False, plan=plan)
        hidden: Tensor = found.last_hidden_state[0]
        return hidden

    return forward


class Llama:
    """The same arithmetic as transformers' LlamaModel, with fused weights; measured no faster than its modules."""

    def __init__(self, model: Any) -> None:
        config, inner = model.config, model.model
        self._embed: Tensor = inner.embed_tokens.weight
        self._rotary = inner.rotary_emb
        self._norm: Tensor = inner.norm.weight
        self._epsilon = float(config.rms_norm_eps)
        self._heads, self._pairs = int(config.num_attention_heads), int(config.num_key_value_heads)
        self._scale = float(inner.layers[0].self_attn.scaling)
        self._layers = [
            (
                layer.input_layernorm.weight,
                _fused(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                layer.self_attn.o_proj.weight.t(),
                layer.post_attention_layernorm.weight,
                _fused(layer.mlp.gate_proj, layer.mlp.up_proj),
                layer.mlp.down_proj.weight.t(),
            )
            for layer in inner.layers
        ]

    def __call__(self, ids: Tensor, places: Tensor, plan: Forward) -> Tensor:
        hidden = self._embed[ids]
        width = hidden.shape[1:]
        turned = self._heads + self._pairs
        cos, sin = (part[0, :, None] for part in self._rotary(hidden, places[None]))
        half = cos.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        for number, (before, qkv, o, after, gate_up, down) in enumerate(self._layers):
            heads = linear(rms_norm(hidden, width, before, self._epsilon), qkv).view(len(ids), turned + self._pairs, -1)
            query_key = heads[:, :turned]
            query_key = query_key * cos + query_key.roll(half, -1) * sin
            query, key, value = (
                part.transpose(0, 1) for part in (query_key[:, : self._heads], query_key[:, self._heads :], heads[:, turned:])
            )
            hidden = torch.addmm(hidden, plan.attend(number, query, key, value, self._scale)[0], o)
            gate, up = linear(rms_norm(hidden, width, after, self._epsilon), gate_up).chunk(2, -1)
            hidden = torch.addmm(hidden, silu(gate).mul_(up), down)
        return rms_norm(hidden, width, self._norm, self._epsilon)


def _fused(*parts: Any) -> Tensor:
    """One weight for several linear layers of the same input; theirs become views of it, so nothing is held twice."""
    whole = torch.cat([part.weight.detach() for part in parts])
    for part, rows in zip(parts, torch.split(whole, [part.weight.shape[0] for part in parts]), strict=True):
        part.weight = torch.nn.Parameter(rows, requires_grad=False)
    return whole
