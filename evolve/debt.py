"""Debt: what removals have given away within their margins, less what later admissions have won; kept below a cap."""

from collections.abc import Sequence

from evolve.change import Change
from evolve.gate import Rule
from evolve.verdict import Verdict
from harness.errors import UsageError


def owed(verdicts: Sequence[Verdict]) -> float:
    """Mean reward that may have been lost so far: margins given away, less each later admission's `low`, never below 0.

    Each margin is an upper bound of a loss at its level, each `low` a lower bound of a gain; nothing resets it.
    """
    debt = 0.0
    for verdict in verdicts:
        if verdict.decision == "admit":
            debt = debt + verdict.margin if verdict.kind == "retire" else max(debt - max(verdict.low, 0.0) * verdict.share, 0.0)
    return debt


def afford(change: Change, rule: Rule, verdicts: Sequence[Verdict]) -> None:
    """Raises UsageError for a removal that states no margin, or that goes beyond the cap with what was given away before."""
    if not rule.margin:
        raise UsageError(
            f"removal {change.name!r} states no margin: say how much mean reward may be given away, such as --margin 0.1 (a"
            " smaller one needs more pairs; the forecast says how many)"
        )
    debt, cap = owed(verdicts), rule.margin if rule.cap is None else rule.cap
    if debt + rule.margin > cap + 1e-9:
        raise UsageError(
            f"removal {change.name!r}: earlier removals may have given away {debt:.3f} of mean reward, this one {rule.margin:g}"
            f" more, and the cap is {cap:g}. Let additions win it back, or allow more with --cap {debt + rule.margin:.3f}"
        )
