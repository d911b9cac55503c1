"""Reward: what a verifier says of a finished episode; a live task may have none."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from harness.value import Value


class Reward(Value):
    value: Annotated[float, Field(ge=0, le=1)]
    parts: Mapping[str, float] = {}
    """Named components, kept for credit and for reports."""
    verifier: str = ""
    """Name or digest of the verifier."""
    note: str = ""
    """Why, in words that a person can act on."""
