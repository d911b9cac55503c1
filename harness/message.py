"""What is said between the agent, its model and its world; plain data, rendered and parsed in `harness/prompt.py` alone."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from harness.value import Value


class TextPart(Value):
    type: Literal["text"] = "text"
    text: str


class ImagePart(Value):
    type: Literal["image"] = "image"
    url: str
    """An https or data URL."""


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Content = str | tuple[Part, ...]


class Tokens(Value):
    """Token ids that an engine really produced, one log-prob each; never made by encoding a text again."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Natural log-probability of each id under the policy's own distribution (temperature 1, no top_p)."""
    mask: tuple[bool, ...] = ()
    """Train mask: True where the agent itself chose the token."""
    version: str = ""
    """Digest of the weights (and adapter) that produced them."""

    @model_validator(mode="after")
    def _aligned(self) -> "Tokens":
        if not len(self.ids) == len(self.logprobs) == len(self.mask):
            raise ValueError(f"{len(self.ids)} ids, {len(self.logprobs)} logprobs, {len(self.mask)} mask entries: must be equal")
        return self


class Usage(Value):
    """What something cost; values add up with `+`."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that were not computed again."""
    cost: float = 0.0
    """US dollars."""
    seconds: float = 0.0
    calls: int = 0
    """Model calls."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Call(Value):
    """A tool call as the provider sent it: the arguments are still text, perhaps broken."""

    id: str
    tool: str
    arguments: str


class Action(Value):
    """One thing that the agent wants done: a tool call, or its answer."""

    kind: Literal["call", "answer", "invalid"]
    id: str = ""
    """The provider's call id, or one of ours that is stable across a restart."""
    tool: str = ""
    arguments: Mapping[str, JsonValue] = {}
    text: str = ""
    """The answer; for a call or an invalid action, the words that the model used."""
    problem: str = ""
    """Why it is invalid, as told to the agent."""


class Observation(Value):
    """What came back from the world."""

    content: Content = ""
    error: bool = False
    """The action failed by the agent's own doing."""
    done: bool = False
    """The episode is over."""

    @property
    def text(self) -> str:
        """The words alone, without images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))


class Message(Value):
    """One entry of a prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content = ""
    actions: tuple[Action, ...] = ()
    """For an assistant: the tools that it called."""
    call_id: str = ""
    """For a tool: the call that this answers."""
    tokens: Tokens = Tokens()
    """For an assistant: the ids behind `content`, where the engine gave them."""


Finish = Literal["stop", "length", "calls", "refusal"]


class Completion(Value):
    """One model output. A Model fills everything but `thought` and `actions`, which `prompt.parse` adds."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    actions: tuple[Action, ...] = ()
    tokens: Tokens = Tokens()
    usage: Usage = Usage()
    finish: Finish = "stop"
    model: str = ""
    """The model's own name for itself, as the provider answered it."""
    unhonoured: tuple[str, ...] = ()
    """Names of Sampling fields that this provider could not honour."""


def concatenated(messages: Sequence[Message]) -> str:
    """The messages' words as one document, the way the terminal dialect means them."""
    return "".join(m.content if isinstance(m.content, str) else Observation(content=m.content).text for m in messages)
