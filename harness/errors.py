"""Errors, named by the wall they crossed; a failed rollout is data, so the agent records them and goes on.

AssayError                  everything that we raise on purpose
├── UsageError              the person or program that called us: bad input, with the next step in the text
│   └── SplitError          data of one split was about to be used as another
├── AgentFailure            the agent's own doing: it counts as reward 0 and is never run again
│   ├── ContextOverflow     the prompt no longer fits the model
│   ├── Unparsed            the model's output held no action, also after one repair
│   └── Refused             the provider declined to answer
├── Infrastructure          not the agent's doing: the episode says nothing and is repeated with the same seeds
│   ├── ModelUnavailable    connection, 429 or 5xx after retries, timeout of the provider
│   └── EnvironmentBroken   the world, not the action, failed
├── StoreError              the database or the index
└── ApprovalError           a human decision that does not fit what was asked
"""

from typing import ClassVar


class AssayError(Exception):
    """Says the thing, what was found, what is allowed, and the next command."""

    wall: ClassVar[str] = "assay"


class UsageError(AssayError):
    wall: ClassVar[str] = "usage"


class SplitError(UsageError):
    pass


class AgentFailure(AssayError):
    wall: ClassVar[str] = "agent"


class ContextOverflow(AgentFailure):
    wall: ClassVar[str] = "context"


class Unparsed(AgentFailure):
    wall: ClassVar[str] = "parse"


class Refused(AgentFailure):
    wall: ClassVar[str] = "refusal"


class Infrastructure(AssayError):
    wall: ClassVar[str] = "infrastructure"


class ModelUnavailable(Infrastructure):
    wall: ClassVar[str] = "model"


class EnvironmentBroken(Infrastructure):
    wall: ClassVar[str] = "environment"


class StoreError(AssayError):
    wall: ClassVar[str] = "store"


class ApprovalError(UsageError):
    wall: ClassVar[str] = "approval"
