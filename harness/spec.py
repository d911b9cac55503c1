"""HarnessSpec: all that decides an agent's behaviour and may evolve; its digest is its identity."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from harness.policy import Policy
from harness.value import Value


class Prompts(Value):
    dialect: Literal["native", "terminal"] = "native"
    """`native`: chat messages and tool calls. `terminal`: plain text, one command a line, for models without them."""
    system: str = "You solve the user's task with the tools you have. When it is done, answer in plain words."
    """Opening words; in the terminal dialect, the text above the list of commands."""
    tokens: Annotated[int, Field(gt=0)] = 1024
    """New tokens that one model call may write."""


class RecallSizes(Value):
    skills: Annotated[int, Field(ge=0)] = 3
    """Skills offered at most."""
    tokens: Annotated[int, Field(ge=0)] = 1500
    """Budget of all hints together, in estimated tokens (four characters each)."""
    floor: Annotated[float, Field(ge=-1, le=1)] = 0.2
    """Cosine similarity below which nothing is offered."""


class Limits(Value):
    """Caps on compute and money of one episode; reaching one is the agent's failure. Not the error budget."""

    steps: Annotated[int, Field(gt=0)] = 20
    """Actions."""
    tokens: Annotated[int, Field(gt=0)] = 200_000
    """Prompt and completion tokens together."""
    seconds: Annotated[float, Field(gt=0)] = 600.0
    cost: Annotated[float, Field(gt=0)] = 1.0
    """US dollars."""


class HarnessSpec(Value):
    policy: Policy
    prompts: Prompts = Prompts()
    tool_descriptions: Mapping[str, str] = {}
    """Tool name to the description shown instead of the tool's own."""
    thinking: str = "plain"
    guard: str = "none"
    bank: str = ""
    """Digest of the bank revision whose skills may be recalled; empty: none."""
    recall: RecallSizes = RecallSizes()
    limits: Limits = Limits()
