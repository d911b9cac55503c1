"""The arms of a trial: which task and seeds each pair has, and running one arm until it says something; it judges nothing."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolve.house import Episode, House, Seeds
from evolve.ledger import Rollout
from evolve.questions import Side
from harness.errors import Infrastructure
from harness.message import Usage
from harness.spec import HarnessSpec
from harness.task import Task

TRIES = 3
"""Attempts after an infrastructure failure, each with the same seeds."""


@dataclass(frozen=True)
class Draw:
    """One place in the draw: a task with its world and incumbent seeds, the same for every candidate of a head and block."""

    place: int
    task: Task
    world: int
    incumbent: int


class Paused(Infrastructure):
    """An arm met infrastructure failures until its tries were spent; the trial keeps every pair and goes on later."""

    def __init__(self, arm: str, place: int, message: str) -> None:
        super().__init__(f"{arm} arm, pair {place}: {TRIES} attempts met an infrastructure failure; the last: {message}")


def draws(head: int, spec: str, block: int, tasks: Sequence[Task]) -> Iterator[Draw]:
    """Places 0, 1, 2, ... drawn independently, with replacement, from the tasks in the order of their digests."""
    ordered = sorted(tasks, key=lambda t: t.digest)
    for place in itertools.count():
        key = f"{head}:{spec}:{ordered[0].split}:{block}:{place}"
        yield Draw(
            place=place,
            task=ordered[_number(f"task:{key}") % len(ordered)],
            world=_number(f"world:{key}"),
            incumbent=_number(f"incumbent:{key}"),
        )


def own_seed(trial: str, place: int, side: Side = "candidate") -> int:
    """An arm's own sampling seed: sharing the incumbent's would make an A/A trial trivially quiet."""
    return _number(f"{side}:{trial}:{place}")


async def arm(
    house: House, column: str, name: str, draw: Draw, spec: HarnessSpec, sampling: int, known: Rollout | None
) -> Rollout:
    """One rollout of one arm: the stored one, or a new one; the agent's failure is 0, infrastructure is tried again.

    Raises Paused after TRIES infrastructure failures in a row; the failures stay counted.
    """
    if known is not None and known.value is not None:
        return known
    failures = known.failures if known else 0
    spent = Usage()
    message = ""
    for _ in range(TRIES):
        id = house.once(column, draw.place, failures)
        episode = Episode(draw.task, spec, Seeds(world=draw.world, sampling=sampling), name, id)
        trajectory = await house.run(episode)
        spent = spent + trajectory.usage
        value = trajectory.evidence
        if value is not None:
            watched = {watch.name: metric(trajectory, spec) for metric, watch in house.watches.items()}
            if trajectory.steps and any(s.correction and s.correction.thought is not None for s in trajectory.steps):
                watched["corrected"] = 1.0
            return house.ledger.record(column, draw.place, Rollout(trajectory.id, value, failures, watched, spent))
        failures += 1
        message = trajectory.error.message if trajectory.error else "the verifier gave no reward"
        house.ledger.record(column, draw.place, Rollout(trajectory.id, None, failures, {}, spent))
    raise Paused(name, draw.place, message)


def _number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:7])
