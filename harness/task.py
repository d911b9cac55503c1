"""Task: what an agent is asked to do, in which world, and which split it belongs to; it never holds a solution's path."""

from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from harness.value import Value

Split = Literal["train", "validate", "test"]


class Task(Value):
    """Proposers and trainers see `train`, trials `validate`, reports `test`."""

    instruction: str
    environment: str = "tools"
    """Name of the environment that opens this task."""
    data: Mapping[str, JsonValue] = {}
    """What the environment and the verifier need."""
    split: Split = "train"
