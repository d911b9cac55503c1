"""Tool: what an agent may call, as data, and how a Python function declares itself one; running it is for an environment."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar, cast, get_args, get_type_hints

from pydantic import BaseModel, JsonValue, TypeAdapter, create_model

from harness.errors import UsageError
from harness.value import Value

Effect = Literal["read", "episode", "world"]
"""`read` changes nothing; `episode` changes only what this episode owns; `world` changes something real."""


class Tool(Value):
    name: str
    description: str = ""
    parameters: Mapping[str, JsonValue] = {"type": "object", "properties": {}}
    """JSON schema of the arguments, an object."""
    effect: Effect = "world"
    """Undeclared tools are taken for the worst."""

    @property
    def properties(self) -> Mapping[str, Mapping[str, JsonValue]]:
        """Parameter name to its schema, in the order of the signature."""
        return cast(Mapping[str, Mapping[str, JsonValue]], self.parameters.get("properties", {}))

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(cast(list[str], self.parameters.get("required", [])))

    @property
    def usage(self) -> str:
        """`refund NUMBER`: how the terminal dialect types it; optional parameters stand in brackets."""
        words = [name.upper() if name in self.required else f"[{name}=...]" for name in self.properties]
        return " ".join([self.name, *words])


ANSWER = Tool(
    name="answer",
    description="Give the final answer in plain words.",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    effect="read",
)
"""The answer as a command: shown in the terminal dialect, where plain words have no other place."""


class ToolFunction(Protocol):
    """A function that `tool` has described."""

    tool: Tool

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


F = TypeVar("F", bound=Callable[..., Any])


def tool(*, effect: Effect, name: str | None = None) -> Callable[[F], F]:
    """Declare a function as a tool: `@tool(effect="read")`; its docstring and annotations are what the model sees.

    Raises UsageError when the effect is unknown or a parameter has no annotation.
    """
    if effect not in get_args(Effect):
        raise UsageError(f"tool effect {effect!r}: allowed are {', '.join(get_args(Effect))}")

    def declare(function: F) -> F:
        cast(Any, function).tool = describe(function, effect=effect, name=name)
        return function

    return declare


def describe(function: Callable[..., Any], *, effect: Effect, name: str | None = None) -> Tool:
    """The Tool of a plain function, from its signature and docstring."""
    title: str = name or function.__name__
    hints = get_type_hints(function)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UsageError(f"tool {title}: *{parameter.name} has no schema; name each parameter")
        if parameter.name not in hints:
            raise UsageError(f"tool {title}: parameter {parameter.name} has no annotation; write e.g. {parameter.name}: str")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    arguments: type[BaseModel] = create_model(title, **fields)
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    return Tool(name=title, description=inspect.getdoc(function) or "", parameters=schema, effect=effect)


def checked(function: Callable[..., Any], arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Arguments validated and converted to the function's annotated types; raises pydantic.ValidationError or TypeError."""
    signature, adapters = _adapted(function)
    bound = signature.bind(**arguments)
    return {name: adapters[name].validate_python(value) for name, value in bound.arguments.items()}


@functools.lru_cache(maxsize=1024)
def _adapted(function: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, TypeAdapter[Any]]]:
    signature, hints = inspect.signature(function), get_type_hints(function)
    return signature, {name: TypeAdapter(hints[name]) for name in signature.parameters}
