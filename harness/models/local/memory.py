"""Keys and values of everything that is being decoded: trunks shared by many sequences, and one slot a sequence for the rest.

Attention runs in two parts under one softmax: against the trunk, one matrix product for all sequences that share it, and
against each sequence's own slot. Tokens of all sequences are packed into one row, so nothing is padded outside attention.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

ATTENTION: Final = "assay"
TRUNK_TOKENS: Final = 8192
"""Tokens that all kept trunks hold together, the least recently used leaving first."""


class Forward(Protocol):
    """How one forward pass attends."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """[heads, tokens, width] each to [1, tokens, all query heads * width]; keeps the keys and values."""
        ...


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: object, **given: Any) -> tuple[Tensor, None]:
    plan: Forward = given["plan"]
    return plan.attend(module.layer_idx, query[0], key[0], value[0], given["scaling"]), None


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, lambda *args, **kwargs: None)


@dataclass
class Trunk:
    """Keys and values, [layers, heads, tokens, width], of a prefix that many prompts share."""

    keys: Tensor
    values: Tensor

    @property
    def tokens(self) -> int:
        return int(self.keys.shape[2])


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    """Key-value heads."""
    groups: int
    """Query heads for each of them."""
    width: int


class Slots:
    """One slot of `span` tokens for each sequence: [layers, slots, heads, span, width]."""

    def __init__(self, shape: Shape, slots: int, span: int) -> None:
        self.shape, self.slots, self.span = shape, slots, span
        size = (shape.layers, slots, shape.heads, span, shape.width)
        self.keys = torch.zeros(size)
        self.values = torch.zeros(size)


class Trunks:
    """The kept trunks, by their token ids; bounded, least recently used out first."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._kept: OrderedDict[tuple[int, ...], Trunk] = OrderedDict()

    def get(self, ids: tuple[int, ...]) -> Trunk | None:
        trunk = self._kept.get(ids)
        if trunk is not None:
            self._kept.move_to_end(ids)
        return trunk

    def new(self, ids: tuple[int, ...]) -> Trunk:
        size = (self.shape.layers, self.shape.heads, len(ids), self.shape.width)
        trunk = Trunk(torch.zeros(size), torch.zeros(size))
        self._kept[ids] = trunk
        while sum(t.tokens for t in self._kept.values()) > TRUNK_TOKENS and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return trunk


@dataclass
class TrunkPass:
    """Fills a new trunk: plain causal attention of a prefix with itself."""

    trunk: Trunk

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.trunk.keys[layer], self.trunk.values[layer] = key, value
        out = scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True, scale=scale, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(1, query.shape[1], -1)


@dataclass(frozen=True)
class Row:
    """The next `tokens` tokens of the sequence in `slot`, which holds `held` tokens already."""

    slot: int
    held: int
    tokens: int
    trunk: Trunk


@dataclass(frozen=True)
class _Group:
    """Rows that share a trunk and are all of one token, or all of several; padded to the longest in attention alone."""

    trunk: Trunk
    slots: Tensor
    packed: Tensor
    """[rows, longest]: places in the packed tokens."""
    real: Tensor
    """[rows * longest]: which of them are no padding."""
    bias: Tensor
    """[rows, 1, 1, longest, reach]: 0 where a token may look, minus infinity elsewhere."""
    reach: int


class StepPass:
    """One step of many sequences, each a Row."""

    def __init__(self, slots: Slots, rows: list[Row]) -> None:
        self.slots = slots
        self.slot = torch.tensor([row.slot for row in rows for _ in range(row.tokens)])
        self.place = torch.tensor([row.held + i for row in rows for i in range(row.tokens)])
        grouped: dict[tuple[int, bool], list[tuple[int, Row]]] = {}
        first = 0
        for row in rows:
            grouped.setdefault((id(row.trunk), row.tokens == 1), []).append((first, row))
            first += row.tokens
        self.groups = [_group(members) for members in grouped.values()]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self.slots.keys[layer], self.slots.values[layer]
        keys[self.slot, :, self.place] = key.transpose(0, 1)
        values[self.slot, :, self.place] = value.transpose(0, 1)
        shape = self.slots.shape
        tokens = query.transpose(0, 1)
        out = torch.empty(tokens.shape[0], shape.heads * shape.groups * shape.width)
        for group in self.groups:
            rows, longest = group.packed.shape
            asked = tokens[group.packed.reshape(-1)].reshape(rows, longest, shape.heads, shape.groups, shape.width)
            asked = asked.permute(2, 0, 3, 1, 4) * scale  # heads, rows, groups, longest, width
            mine = keys[group.slots, :, : group.reach].transpose(0, 1), values[group.slots, :, : group.reach].transpose(0, 1)
            found = _two_parts(asked, group, layer, *mine)
            flat = found.permute(1, 3, 0, 2, 4).reshape(rows * longest, -1)
            out[group.packed.reshape(-1)[group.real]] = flat[group.real]
        return out[None]


def _two_parts(asked: Tensor, group: _Group, layer: int, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of [heads, rows, groups, longest, width] to trunk and slot under one softmax."""
    heads, rows, groups, longest, width = asked.shape
    trunk = group.trunk.tokens
    near = (asked.reshape(heads, rows, groups * longest, width) @ keys.transpose(2, 3)).view(heads, rows, groups, longest, -1)
    near = near + group.bias
    far = (asked.reshape(heads, -1, width) @ group.trunk.keys[layer].transpose(1, 2)).view(heads, rows, groups, longest, trunk)
    weights = torch.softmax(torch.cat([far, near], -1), -1)
    of_trunk = (weights[..., :trunk].reshape(heads, -1, trunk) @ group.trunk.values[layer]).view(asked.shape)
    of_slot = (weights[..., trunk:].reshape(heads, rows, groups * longest, -1) @ values).view(asked.shape)
    return of_trunk + of_slot


def _group(members: list[tuple[int, Row]]) -> _Group:
    rows = [row for _, row in members]
    longest = max(row.tokens for row in rows)
    reach = max(row.held + row.tokens for row in rows)
    place = torch.arange(longest)
    counts = torch.tensor([row.tokens for row in rows])
    held = torch.tensor([row.held for row in rows])
    real = place[None] < counts[:, None]
    packed = torch.where(real, torch.tensor([first for first, _ in members])[:, None] + place[None], 0)
    hidden = torch.arange(reach)[None, None] > held[:, None, None] + place[None, :, None]
    bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))[:, None]
    return _Group(rows[0].trunk, torch.tensor([row.slot for row in rows]), packed, real.reshape(-1), bias, reach)
