"""Policy and Sampling: which weights answer and how one call is sampled; neither reaches a model."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue

from harness.value import Value


class Policy(Value):
    """Which weights, and how they are sampled: part of the spec, so it is tried like everything else."""

    model: str
    """`local/smollm2-135m-instruct`, `openai/gpt-5-mini`, `ollama/qwen3`, `scripted/...`: provider, slash, name."""
    adapter: str = ""
    """Digest of the adapter on top of the weights; empty: none."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    @property
    def name(self) -> str:
        """`model@adapter`, or the model alone."""
        return f"{self.model}@{self.adapter}" if self.adapter else self.model


class Sampling(Value):
    """What one call asks for beyond its policy; what a provider cannot honour is named on the Completion."""

    seed: int = 0
    prefix: str = ""
    """Text that the output must begin with."""
    stop: tuple[str, ...] = ()
    max_tokens: Annotated[int, Field(gt=0)] = 1024
    json_schema: Mapping[str, JsonValue] | None = None
    """JSON schema that the output must satisfy."""
    template: bool = True
    """False: the messages' contents, concatenated as they stand, are the prompt (the terminal dialect)."""
