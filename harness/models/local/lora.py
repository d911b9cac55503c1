"""LoRA in the engine: each token of a packed pass gets what its own adapter adds, and the others are not touched."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from harness.errors import UsageError

PREFIX: Final = "base_model.model.model."
PLAIN: Final[Mapping[str, object]] = {
    "bias": "none", "use_dora": False, "fan_in_fan_out": False, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {},
}  # fmt: skip
"""What an adapter may ask for: anything beyond plain LoRA would be dropped in silence, so it is refused."""


@dataclass(frozen=True, eq=False)
class Lora:
    """One loaded adapter."""

    digest: str
    parts: Mapping[str, tuple[Tensor, Tensor]]
    """Module name to A, [rank, in], and B with the scaling in it, [out, rank]."""


class Route(threading.local):
    """Which tokens of this thread's next pass belong to which adapter."""

    now: Sequence[tuple[Lora, Tensor]] = ()
    """Adapter and the places, [tokens], of its tokens in the packed row."""


class Routed(nn.Module):
    """A linear layer plus, for the tokens that have an adapter with a part here, x A^T B^T."""

    def __init__(self, linear: nn.Module, name: str, route: Route) -> None:
        super().__init__()
        self.linear, self.name, self.route = linear, name, route

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        for lora, places in self.route.now:
            if (part := lora.parts.get(self.name)) is not None:
                a, b = part
                out[0].index_add_(0, places, (x[0, places] @ a.T) @ b.T)
        return out


def routed(model: nn.Module) -> Route:
    """The route that every linear layer of a decoder is under; put there on the first call."""
    modules = list(model.named_modules())
    known = next((module.route for _, module in modules if isinstance(module, Routed)), None)
    if known is not None:
        return known
    route = Route()
    for name, module in modules:
        if isinstance(module, nn.Linear):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, Routed(module, name, route))
    return route


def read(folder: Path, digest: str, model: nn.Module) -> Lora:
    """The adapter in peft's folder, fit for `model` (a decoder without its head).

    Raises UsageError for anything but plain LoRA, and for an adapter of another model.
    """
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    odd = [f"{name} {config[name]!r}" for name, plain in PLAIN.items() if config.get(name) not in (plain, None)]
    if config.get("peft_type") != "LORA" or odd:
        found = ", ".join(odd) or f"peft_type {config.get('peft_type')!r}"
        raise UsageError(f"adapter {digest[:12]}: found {found}; the local model serves plain LoRA alone: train it without")
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    try:
        tensors = load_file(folder / "adapter_model.safetensors")
    except (SafetensorError, OSError) as error:
        raise UsageError(f"adapter {digest[:12]}: {folder} cannot be read ({error}): copy it from a backup") from error
    modules = dict(model.named_modules())
    parts: dict[str, tuple[Tensor, Tensor]] = {}
    for key in sorted(k for k in tensors if k.endswith(".lora_A.weight")):
        name = key.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        a, b = tensors[key].float(), tensors[key.replace(".lora_A.", ".lora_B.")].float() * scale
        _fits(digest, name, modules.get(name), a, b)
        parts[name] = (a, b)
    return Lora(digest, parts)


def _fits(digest: str, name: str, module: Any, a: Tensor, b: Tensor) -> None:
    module = module.linear if isinstance(module, Routed) else module
    if not isinstance(module, nn.Linear) or (module.in_features, module.out_features) != (a.shape[1], b.shape[0]):
        found = f"{name} [{b.shape[0]}, {a.shape[1]}]"
        raise UsageError(f"adapter {digest[:12]} is of another model: its {found} has no layer of that shape here")
