"""Correction and Permission: what a guard says of a thought, and what may be done with an action."""

from typing import Literal

from harness.value import Value


class Correction(Value):
    """The guard's answer; `thought` None leaves it unchanged."""

    thought: str | None = None
    reason: str = ""
    seconds: float = 0.0


class Permission(Value):
    decision: Literal["allow", "deny", "ask"]
    reason: str = ""
    default: Literal["allow", "deny"] = "deny"
    """For `ask`: what happens when nobody answers in time."""
    seconds: float = 3600.0
    """For `ask`: how long an answer is waited for."""
