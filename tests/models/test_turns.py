"""Turns: kinds never mix, nobody starves, and who gives up while waiting stops no one."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from harness.models.turns import Turns

VISITS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3), st.none() | st.integers(0, 4)), max_size=24
)
"""Kind, steps before it comes, steps that it stays, and steps after which it gives up."""


@given(VISITS)
def test_kinds_never_mix_and_all_come_through(visits: list[tuple[str, int, int, int | None]]) -> None:
    turns, inside, through = Turns(), Counter[str](), 0

    async def steps(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def visit(kind: str, before: int, stays: int) -> None:
        nonlocal through
        await steps(before)
        async with turns.turn(kind):
            inside[kind] += 1
            assert set(+inside) == {kind}
            try:
                await steps(stays)
            finally:
                inside[kind] -= 1
        through += 1

    async def all_of_them() -> list[BaseException | None]:
        tasks = [asyncio.create_task(visit(kind, before, stays)) for kind, before, stays, _ in visits]

        async def give_up(task: asyncio.Task[None], after: int) -> None:
            await steps(after)
            task.cancel()

        leaving = [give_up(task, after) for task, (*_, after) in zip(tasks, visits, strict=True) if after is not None]
        await asyncio.gather(*leaving)
        async with asyncio.timeout(10):
            return await asyncio.gather(*tasks, return_exceptions=True)

    ended = asyncio.run(all_of_them())
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ended)
    assert through == ended.count(None)


async def test_one_kind_goes_side_by_side_and_a_latecomer_waits_behind_the_others() -> None:
    turns, order, go = Turns(), list[str](), asyncio.Event()

    async def visit(name: str) -> None:
        async with turns.turn(name[0]):
            order.append(name)
            await go.wait()

    tasks = []
    for name in ("a1", "a2", "b1", "b2", "a3"):
        tasks.append(asyncio.create_task(visit(name)))
        await asyncio.sleep(0)
    assert order == ["a1", "a2"]
    go.set()
    await asyncio.gather(*tasks)
    assert order == ["a1", "a2", "b1", "b2", "a3"]
