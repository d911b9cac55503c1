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
    """The kept trunks, by adapter and token ids; bounded, least recently used out first."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._kept: OrderedDict[tuple[str, tuple[int, ...]], Trunk] = OrderedDict()

    def get(self, key: tuple[str, tuple[int, ...]]) -> Trunk | None:
        trunk = self._kept.get(key)
        if trunk is not None:
            self._kept.move_to_end(key)
        return trunk

    def new(self, key: tuple[str, tuple[int, ...]], tokens: int) -> Trunk:
        size = (self.shape.layers, self.shape.heads, tokens, self.shape.width)
        trunk = Trunk(torch.zeros(size), torch.zeros(size))
        self._kept[key] = trunk
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
    slots: "Tensor | slice"
    """A slice, with rows that are no one's in between, where that saves copying what the slots hold."""
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
        tokens = (query * scale).transpose(0, 1)
        out = torch.empty(tokens.shape[0], shape.heads * shape.groups * shape.width)
        for group in self.groups:
            rows, longest = group.packed.shape
            asked = tokens[group.packed.reshape(-1)].view(rows, longest, shape.heads, shape.groups, shape.width)
            asked = asked.permute(0, 2, 3, 1, 4)  # rows, heads, groups, longest, width
            found = _two_parts(asked, group, layer, keys[group.slots, :, : group.reach], values[group.slots, :, : group.reach])
            flat = found.permute(0, 3, 1, 2, 4).reshape(rows * longest, -1)
            out[group.packed.reshape(-1)[group.real]] = flat[group.real]
        return out[None]


def _two_parts(asked: Tensor, group: _Group, layer: int, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of [rows, heads, groups, longest, width] to trunk and slot under one softmax."""
    rows, heads, groups, longest, width = asked.shape
    trunk, many = group.trunk.tokens, groups * longest
    near = (asked.reshape(rows, heads, many, width) @ keys.transpose(2, 3)).view(rows, heads, groups, longest, -1)
    near += group.bias
    if not trunk:
        return (torch.softmax(near, -1).view(rows, heads, many, -1) @ values).view(rows, heads, groups, longest, width)
    far = asked.transpose(0, 1).reshape(heads, -1, width) @ group.trunk.keys[layer].transpose(1, 2)
    far = far.view(heads, rows, groups, longest, trunk).transpose(0, 1)
    weights = torch.softmax(torch.cat([far, near], -1), -1).view(rows, heads, many, -1)
    of_trunk = weights[..., :trunk].transpose(0, 1).reshape(heads, -1, trunk) @ group.trunk.values[layer]
    of_slot = weights[..., trunk:] @ values
    return (of_slot + of_trunk.view(heads, rows, many, width).transpose(0, 1)).view(rows, heads, groups, longest, width)


def _group(members: list[tuple[int, Row]]) -> _Group:
    trunk = members[0][1].trunk
    by_slot = {row.slot: (first, row.held, row.tokens) for first, row in members}
    low, high = min(by_slot), max(by_slot) + 1
    slots: Tensor | slice = slice(low, high)
    rows = [by_slot.get(slot, (0, 0, 0)) for slot in range(low, high)]
    if len(rows) > 2 * len(members):
        slots, rows = torch.tensor(list(by_slot)), list(by_slot.values())
    first, held, count = torch.tensor(rows)[:, :, None].unbind(1)
    longest, reach = int(count.max()), int((held + count).max())
    place = torch.arange(longest)[None]
    real = place < count
    hidden = torch.arange(reach) > (held + place)[:, :, None]
    bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))[:, None, None]
    return _Group(trunk, slots, torch.where(real, first + place, 0), real.reshape(-1), bias, reach)
