"""Questions: what a trial has to show, between which arms, and the one answer that follows; pure statistics, as the gate is.

A new skill asks one question: is the candidate better? Putting weights in a text's place asks three, of three arms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from evolve.capital import Floats
from evolve.gate import Decision, Rule, decide
from evolve.simulate import Outcomes, simulate
from harness.value import Value

Side = Literal["incumbent", "candidate", "neither"]
"""`neither` has lost the text and has not got the weights."""


class Question(Value):
    """Whether `after` earns more mean reward than `before`, less the margin."""

    name: Literal["better", "kept", "carries", "needed"]
    before: Side
    after: Side
    margin: float = 0.0
    refuted: str = "rejected"
    """Code of the verdict when the answer is no."""
    no: str = ""
    """What a no means, in words."""

    def rule(self, rule: Rule) -> Rule:
        return rule.replace(margin=self.margin)


CARRIES: Final = Question(
    name="carries", before="neither", after="candidate", refuted="carries_nothing",
    no="the adapter does no better than an agent with neither text nor adapter",
)  # fmt: skip
NEEDED: Final = Question(
    name="needed", before="neither", after="incumbent", refuted="nothing_to_internalise",
    no="the text does no better than an agent without it, so there is nothing to internalise",
)  # fmt: skip


def asked(rule: Rule, *, replaces: bool) -> tuple[Question, ...]:
    """The questions of a trial, the one between its head and its candidate first.

    `replaces`: weights take a text's place. "No worse than the text, less the margin" alone would let an adapter that does
    nothing pass in a third of trials; so it must also beat an agent with neither, and so must the text (DESIGN section 6).
    """
    first = Question(name="kept" if rule.margin else "better", before="incumbent", after="candidate", margin=rule.margin)
    return (first, CARRIES, NEEDED) if replaces else (first,)


class Answered(Value):
    """One question with the gate's decision on it, at the level that the trial was granted."""

    question: Question
    decision: Decision


@dataclass(frozen=True)
class Judged:
    """Where a trial stands."""

    answers: tuple[Answered, ...]
    decision: Literal["admit", "reject", "indecisive"]
    code: str
    """As the gate's, or the `refuted` of a question."""
    reason: str

    @property
    def first(self) -> Decision:
        """The gate's decision between the head and the candidate."""
        return self.answers[0].decision


Values = Mapping[Side, Sequence[float]]


def judge(questions: Sequence[Question], values: Sequence[Values], rule: Rule, level: float) -> Judged:
    """Judge complete places, in draw order: `values[i]` are the rewards of question i's arms, place by place.

    The first no ends the trial; a yes to every question admits; else it goes on until one of them can no longer be answered.
    """
    answers = []
    for question, arms in zip(questions, values, strict=True):
        pairs = list(zip(arms[question.before], arms[question.after], strict=True))
        answers.append(Answered(question=question, decision=decide(pairs, question.rule(rule), level=level)))
    told = min(answers, key=_foremost)
    decision, question = told.decision, told.question
    refuted = decision.decision == "reject"
    reason = f"{question.no}: {decision.reason}" if refuted and question.no else decision.reason
    if len(answers) > 1 and not refuted:
        told_of = answers if decision.code == "admitted" else [told]
        reason = "; ".join(f"{a.question.name}: {a.decision.reason}" for a in told_of)
    return Judged(tuple(answers), decision.decision, question.refuted if refuted else decision.code, reason)


def _foremost(answered: Answered) -> tuple[int, int]:
    """What decides a trial first: a no, then what cannot be answered, then what is open, and a yes last."""
    rank = {"rejected": 0, "futile": 1, "max_pairs": 1, "undecided": 2, "admitted": 3}
    return rank[answered.decision.code], answered.decision.pairs


def simulate_replacement(text: Floats, weights: Floats, neither: Floats, rule: Rule, level: float) -> Outcomes:
    """Many trials of weights in a text's place at once, as `judge` decides them; each arm's rewards are [streams, pairs]."""
    arms = {"incumbent": text, "candidate": weights, "neither": neither}
    ends = [simulate(arms[q.after] - arms[q.before], q.rule(rule), level) for q in asked(rule, replaces=True)]
    yes = np.array([end.admitted for end in ends])
    pairs = np.array([end.pairs for end in ends])
    admitted = yes.all(axis=0)
    first_no = np.where(yes, rule.max_pairs + 1, pairs).argmin(axis=0)
    streams = np.arange(len(text))
    code = np.where(admitted, "admitted", np.array([end.code for end in ends])[first_no, streams])
    return Outcomes(code=code, pairs=np.where(admitted, pairs.max(axis=0), pairs[first_no, streams]), effect=ends[0].effect)
