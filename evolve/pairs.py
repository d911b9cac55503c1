"""The pairs of one trial: run with a window under way, kept and judged in draw order; completion order never decides."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from evolve.arms import Draw, arm, draws, own_seed
from evolve.gate import Rule
from evolve.house import House
from evolve.ledger import Opened, Rollout
from evolve.questions import Judged, Question, Side, Values, judge
from evolve.watch import Watched
from evolve.watch import judge as judge_watched
from harness.spec import HarnessSpec
from harness.task import Task


@dataclass(frozen=True)
class Pair:
    """One place of the draw with a rollout of every arm that is asked about there."""

    draw: Draw
    rollouts: Mapping[Side, Rollout]

    @property
    def incumbent(self) -> Rollout:
        return self.rollouts["incumbent"]

    @property
    def candidate(self) -> Rollout:
        return self.rollouts["candidate"]


@dataclass
class Pairs:
    """What one run of a trial has seen; a new run of the same trial begins with the stored rollouts."""

    house: House
    opened: Opened
    arms: Mapping[Side, HarnessSpec]
    concerned: Mapping[Side, frozenset[str]]
    """Digests of the tasks that an arm is run on."""
    tasks: Sequence[Task]
    questions: Sequence[Question]
    rule: Rule
    complete: list[Pair] = field(default_factory=list)

    def judged(self) -> Judged:
        """The answer on the complete prefix."""
        return judge(self.questions, [self._values(q) for q in self.questions], self.rule, self.opened.grant.level)

    def watched(self) -> tuple[Watched, ...]:
        """The watched metrics' answers on the complete prefix."""
        level = self.opened.grant.level
        return tuple(
            judge_watched(
                watch, [(p.incumbent.watched[watch.name], p.candidate.watched[watch.name]) for p in self.complete], level
            )
            for watch in self.house.watches.values()
        )

    async def run(self, on: Callable[[Judged], None]) -> Judged:
        """Run pairs until every question is answered, `max_pairs` are complete, or the house's purse is empty."""
        known = {side: self.house.ledger.column(self.opened.column(side)) for side in self.arms}
        every = draws(self.opened.head, self.arms["incumbent"].digest, self.opened.block, self.tasks)
        places = islice((d for d in every if d.task.digest in self.concerned["candidate"]), self.rule.max_pairs)
        under_way = deque(asyncio.create_task(self._pair(d, known)) for d in islice(places, self.house.concurrency))
        judged = self.judged()
        try:
            while under_way:
                self.complete.append(await under_way[0])
                under_way.popleft()
                judged = self.judged()
                on(judged)
                if self._enough(judged) or self.house.purse.empty:
                    break
                under_way.extend(asyncio.create_task(self._pair(d, known)) for d in islice(places, 1))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return judged

    def attempts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(failed, successful) attempts of the incumbent and the candidate, over the places where both were attempted."""
        sides: tuple[Side, Side] = ("incumbent", "candidate")
        columns = [self.house.ledger.column(self.opened.column(side)) for side in sides]
        shared = columns[0].keys() & columns[1].keys()
        counts = []
        for column in columns:
            rollouts = [rollout for place, rollout in column.items() if place in shared]
            counts.append((sum(r.failures for r in rollouts), sum(r.value is not None for r in rollouts)))
        return counts[0], counts[1]

    def _values(self, question: Question) -> Values:
        """Rewards of the places where both arms of the question were run."""
        sides = (question.before, question.after)
        places = [pair for pair in self.complete if all(side in pair.rollouts for side in sides)]
        return {side: [pair.rollouts[side].value or 0.0 for pair in places] for side in sides}

    def _enough(self, judged: Judged) -> bool:
        """Decided, and no metric that admission requires is still open."""
        if judged.code == "undecided":
            return False
        return judged.decision != "admit" or not any(w.holds_back for w in self.watched())

    async def _pair(self, draw: Draw, known: Mapping[Side, dict[int, Rollout]]) -> Pair:
        """Every arm, one after the other; which goes first alternates. The incumbent has the draw's seed, each other its own."""
        sides = [side for side in self.arms if draw.task.digest in self.concerned[side]]
        done: dict[Side, Rollout] = {}
        for side in sides if draw.place % 2 else reversed(sides):
            sampling = draw.incumbent if side == "incumbent" else own_seed(self.opened.id, draw.place, side)
            column, before = self.opened.column(side), known[side].get(draw.place)
            done[side] = await arm(self.house, column, side, draw, self.arms[side], sampling, before)
        return Pair(draw, done)
