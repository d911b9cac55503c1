"""Hint: a piece of the past offered to the agent, and what a recall answers; how it is found is for the rooms above."""

from typing import Literal

from harness.value import Value


class Hint(Value):
    kind: Literal["skill", "experience", "insight", "conclusion", "fact"]
    id: str
    """Digest of the skill version, or id of the memory."""
    name: str = ""
    version: int = 1
    text: str
    """As rendered into the prompt, so that a student's prompt can leave it out."""
    score: float = 0.0
    ranker: str = ""


class Recalled(Value):
    hints: tuple[Hint, ...] = ()
    ranker: Literal["none", "dense", "fused", "likelihood"] = "none"
    reason: str = ""
    """Why nothing, or not everything, was offered; never empty when `hints` is."""
