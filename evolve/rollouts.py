"""Rollouts: many episodes at the house's concurrency, each stored as it ends; which ones, and what they mean, is the caller's."""

import asyncio
from collections.abc import Callable, Sequence

from evolve.house import Episode, House
from harness.errors import Infrastructure
from harness.trajectory import Trajectory


async def rollouts(
    house: House, episodes: Sequence[Episode], on: Callable[[Trajectory], None] = lambda _: None
) -> list[Trajectory]:
    """The trajectories in the order of the episodes, infrastructure failures among them."""
    gate = asyncio.Semaphore(house.concurrency)

    async def one(episode: Episode) -> Trajectory:
        async with gate:
            trajectory = await house.run(episode)
        on(trajectory)
        return trajectory

    return list(await asyncio.gather(*(one(episode) for episode in episodes)))


async def evidence(house: House, episodes: Sequence[Episode], on: Callable[[Trajectory], None] = lambda _: None) -> list[float]:
    """Rewards as the gate counts them; raises Infrastructure when an episode said nothing."""
    runs = await rollouts(house, episodes, on)
    values = [run.evidence for run in runs]
    if None in values:
        mute = runs[values.index(None)]
        said = mute.error.message if mute.error else "its verifier gave no reward"
        raise Infrastructure(f"episode {mute.id} ({mute.arm}) says nothing: {said}; run it again")
    return [value for value in values if value is not None]
