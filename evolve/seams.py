"""The seam of this room: how a proposal is made."""

from collections.abc import Awaitable, Callable, Sequence

from evolve.change import Change
from evolve.verdict import Tried
from harness.group import Group
from harness.spec import HarnessSpec

Propose = Callable[[HarnessSpec, Sequence[Group], Sequence[Tried]], Awaitable[Sequence[Change]]]
"""Sees runs of the train split alone; writes nowhere."""
