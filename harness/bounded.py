"""bounded: a node's work within the episode's time, where a failure becomes data; it works on nothing itself."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from harness.episode import State
from harness.errors import AgentFailure, Infrastructure, UsageError
from harness.message import Usage
from harness.trajectory import Failure


async def bounded(state: State, work: Callable[[], Awaitable[State]]) -> State:
    """Run a node's work within the episode's time; a failure becomes data here, and only here."""
    began = monotonic()
    left = state["brief"].spec.limits.seconds - state.get("usage", Usage()).seconds
    change: State
    deadline = asyncio.timeout(max(left, 0.0))
    try:
        async with deadline:
            change = await work()
    except AgentFailure as error:
        change = {"failure": Failure(wall=error.wall, message=str(error)), "stop": "error"}
    except Infrastructure as error:
        change = {"failure": Failure(wall=error.wall, message=str(error), infrastructure=True), "stop": "error"}
    except UsageError:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            change = {"stop": "limit"}
        else:
            change = {"failure": Failure(wall="infrastructure", message=said(error), infrastructure=True), "stop": "error"}
    change["usage"] = change.get("usage", Usage()) + Usage(seconds=monotonic() - began)
    return change


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
