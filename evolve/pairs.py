"""The pairs of one trial: run with a window under way, kept and judged in draw order; completion order never decides."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from evolve.arms import Draw, arm, draws, own_seed
from evolve.gate import Decision, Rule, decide
from evolve.house import House
from evolve.ledger import Opened, Rollout
from evolve.watch import Watched, judge
from harness.spec import HarnessSpec
from harness.task import Task


@dataclass(frozen=True)
class Pair:
    draw: Draw
    incumbent: Rollout
    candidate: Rollout

    @property
    def values(self) -> tuple[float, float]:
        """(incumbent, candidate) rewards."""
        return self.incumbent.value or 0.0, self.candidate.value or 0.0


@dataclass
class Pairs:
    """What one run of a trial has seen; a new run of the same trial begins with the stored rollouts."""

    house: House
    opened: Opened
    incumbent: HarnessSpec
    candidate: HarnessSpec
    tasks: Sequence[Task]
    concerned: frozenset[str]
    rule: Rule
    complete: list[Pair] = field(default_factory=list)

    def decision(self) -> Decision:
        """The gate's answer on the complete prefix."""
        return decide([pair.values for pair in self.complete], self.rule, level=self.opened.grant.level)

    def watched(self) -> tuple[Watched, ...]:
        """The watched metrics' answers on the complete prefix."""
        level = self.opened.grant.level
        return tuple(
            judge(watch, [(p.incumbent.watched[watch.name], p.candidate.watched[watch.name]) for p in self.complete], level)
            for watch in self.house.watches.values()
        )

    async def run(self, on: Callable[[Decision], None]) -> Decision:
        """Run pairs until the gate knows, `max_pairs` are complete, or the house's purse is empty."""
        known = tuple(self.house.ledger.column(column) for column in self.opened.columns)
        every = draws(self.opened.head, self.incumbent.digest, self.opened.block, self.tasks)
        places = islice((d for d in every if d.task.digest in self.concerned), self.rule.max_pairs)
        under_way = deque(asyncio.create_task(self._pair(d, known)) for d in islice(places, self.house.concurrency))
        decision = self.decision()
        try:
            while under_way:
                self.complete.append(await under_way[0])
                under_way.popleft()
                decision = self.decision()
                on(decision)
                if self._enough(decision) or self.house.purse.empty:
                    break
                under_way.extend(asyncio.create_task(self._pair(d, known)) for d in islice(places, 1))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return decision

    def attempts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(failed, successful) attempts of the incumbent and the candidate, over the places where both were attempted."""
        columns = [self.house.ledger.column(column) for column in self.opened.columns]
        shared = columns[0].keys() & columns[1].keys()
        counts = []
        for column in columns:
            rollouts = [rollout for place, rollout in column.items() if place in shared]
            counts.append((sum(r.failures for r in rollouts), sum(r.value is not None for r in rollouts)))
        return counts[0], counts[1]

    def _enough(self, decision: Decision) -> bool:
        """Decided, and no metric that admission requires is still open."""
        if decision.code == "undecided":
            return False
        return decision.decision != "admit" or not any(w.holds_back for w in self.watched())

    async def _pair(self, draw: Draw, known: tuple[dict[int, Rollout], ...]) -> Pair:
        """Both arms, one after the other; which goes first alternates."""
        sides = [
            (0, "incumbent", self.incumbent, draw.incumbent),
            (1, "candidate", self.candidate, own_seed(self.opened.id, draw.place)),
        ]
        done: dict[int, Rollout] = {}
        for side, name, spec, sampling in sides if draw.place % 2 else reversed(sides):
            before = known[side].get(draw.place)
            done[side] = await arm(self.house, self.opened.columns[side], name, draw, spec, sampling, before)
        return Pair(draw, done[0], done[1])
