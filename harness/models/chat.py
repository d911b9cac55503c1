"""Our nouns as OpenAI-shaped chat JSON and back, the tongue that hosted models and their servers speak; it calls nobody."""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from harness.message import Action, Call, Content, ImagePart, Message, concatenated
from harness.tool import Tool

Json = dict[str, JsonValue]
EMPTY = "(nothing)"
"""Stands for an output without words, which providers refuse as history."""


def turns(messages: Sequence[Message], *, template: bool) -> list[Json]:
    """The messages as chat turns: one system turn first, then the dialogue.

    With `template` False (the terminal dialect, one document in pieces) the pieces keep their text as it stands.
    """
    leading = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    head, rest = messages[:leading], messages[leading:]
    joined = concatenated(head) if not template else "\n\n".join(concatenated([message]) for message in head)
    first: list[Json] = [{"role": "system", "content": joined}] if joined else []
    return first + [_turn(message) for message in rest]


def functions(tools: Sequence[Tool]) -> list[Json]:
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}}
        for t in tools
    ]


def response_format(schema: Json) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def call(place: int, identity: object, name: object, arguments: object) -> Call:
    """A tool call as it came, with an id of ours where the provider gave none, and nothing where it gave nothing."""
    written = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
    return Call(id=str(identity or f"call_{place}"), tool=str(name or ""), arguments=written)


def _turn(message: Message) -> Json:
    turn: Json = {"role": message.role, "content": _content(message.content)}
    if message.role == "tool":
        turn["tool_call_id"] = message.call_id
    if message.actions:
        turn["tool_calls"] = [_called(action) for action in message.actions]
        turn["content"] = turn["content"] or None
    elif message.role == "assistant" and not turn["content"]:
        turn["content"] = EMPTY
    return turn


def _called(action: Action) -> JsonValue:
    """A call as history: providers refuse a history with broken JSON or a nameless tool, so those are wrapped."""
    arguments = json.dumps(dict(action.arguments)) if action.kind == "call" else _repaired(action.text)
    return {"id": action.id, "type": "function", "function": {"name": action.tool or "unnamed", "arguments": arguments}}


def _repaired(text: str) -> str:
    try:
        return text if isinstance(json.loads(text), dict) else json.dumps({"unreadable": text})
    except ValueError:
        return json.dumps({"unreadable": text})


def _content(content: Content) -> JsonValue:
    if isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": part.url}}
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.text}
        for part in content
    ]
