"""Turns: requests of different kinds that must not be under way together; those of one kind go side by side."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """Whoever comes while another kind waits, waits behind it; so no kind starves, and a turn is as wide as its queue was."""

    def __init__(self) -> None:
        self._kind: Hashable = None
        self._under_way = 0
        self._queue: list[tuple[Hashable, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, kind: Hashable) -> AsyncIterator[None]:
        """Its body runs beside bodies of the same kind alone."""
        await self._entered(kind)
        try:
            yield
        finally:
            self._left()

    async def _entered(self, kind: Hashable) -> None:
        if not self._queue and (not self._under_way or kind == self._kind):
            self._kind, self._under_way = kind, self._under_way + 1
            return
        arrived = asyncio.get_running_loop().create_future()
        self._queue.append((kind, arrived))
        try:
            await arrived
        except asyncio.CancelledError:
            if not arrived.cancelled():
                self._left()  # it was let in before it heard that it was to give up
            raise

    def _left(self) -> None:
        self._under_way -= 1
        self._queue = [place for place in self._queue if not place[1].cancelled()]
        if self._under_way or not self._queue:
            return
        self._kind = self._queue[0][0]
        admitted = [arrived for kind, arrived in self._queue if kind == self._kind]
        self._queue = [place for place in self._queue if place[0] != self._kind]
        self._under_way = len(admitted)
        for arrived in admitted:
            arrived.set_result(None)
