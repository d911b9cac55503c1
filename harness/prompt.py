"""Prompts: `render` makes the agent's prompt, nowhere else does; `parse` is the only way back from text to actions.

Two dialects. `native`: chat messages with tool calls. `terminal`: one plain-text document in which the environment
writes `>` and the model writes the rest of the line (its space belongs to the command's first token).
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import cast

from jsonschema import Draft202012Validator
from pydantic import JsonValue

from harness.errors import Unparsed
from harness.hint import Hint
from harness.message import Action, Completion, Message, Observation
from harness.policy import Sampling
from harness.spec import HarnessSpec, Prompts
from harness.task import Task
from harness.tool import ANSWER, Tool
from harness.trajectory import Step

PROMPT = ">"


def described(tools: Sequence[Tool], spec: HarnessSpec) -> tuple[Tool, ...]:
    """The tools as this spec describes them."""
    return tuple(t.replace(description=spec.tool_descriptions[t.name]) if t.name in spec.tool_descriptions else t for t in tools)


def render(
    spec: HarnessSpec,
    task: Task,
    tools: Sequence[Tool],
    hints: Sequence[Hint] = (),
    steps: Sequence[Step] = (),
    opening: Observation | None = None,
) -> tuple[Message, ...]:
    """The whole prompt before the next model output.

    Hints stand before the task, so that everything up to it is shared by all tasks with the same hints; leaving
    `hints` out gives the student's prompt of the same episode.
    """
    if spec.prompts.dialect == "terminal":
        return _terminal(spec, task, tools, hints, steps, opening)
    return _native(spec, task, hints, steps, opening)


def sampling(prompts: Prompts, seed: int, prefix: str = "") -> Sampling:
    """How a prompt of this dialect is sampled."""
    if prompts.dialect == "terminal":
        return Sampling(seed=seed, prefix=prefix, stop=("\n",), max_tokens=prompts.tokens, template=False)
    return Sampling(seed=seed, prefix=prefix, max_tokens=prompts.tokens)


def parse(prompts: Prompts, completion: Completion, tools: Sequence[Tool]) -> Completion:
    """The completion with its thought and actions; an unusable call becomes an `invalid` action that says why.

    Raises Unparsed when a native output holds neither words nor a call. Never returns half an action.
    """
    if prompts.dialect == "terminal":
        cut = completion.finish == "length"
        return completion.replace(actions=(_half(completion.text, tools) if cut else _command(completion.text, tools),))
    if completion.calls:
        actions = tuple(_call(c.id, c.tool, c.arguments, tools) for c in completion.calls)
        return completion.replace(thought=completion.text.strip(), actions=actions)
    thought, words = _split_thought(completion.text)
    if not words:
        raise Unparsed(f"the model wrote neither a tool call nor an answer (finish: {completion.finish})")
    action = _written_call(words, tools) or _worded(words, cut=completion.finish == "length")
    return completion.replace(thought=thought, actions=(action,))


# --- terminal -------------------------------------------------------------------------------------------------


def _terminal(
    spec: HarnessSpec,
    task: Task,
    tools: Sequence[Tool],
    hints: Sequence[Hint],
    steps: Sequence[Step],
    opening: Observation | None,
) -> tuple[Message, ...]:
    commands = "".join(f"{PROMPT} {t.usage}{_remark(t, spec)}\n" for t in tools)
    # Blank lines open a block instead of closing one: blocks are tokenised one by one, and a trailing blank line would
    # become another token than the same line inside a document.
    head = f"{spec.prompts.system}\n\nCommands:\n{commands}"
    examples = "".join(f"\n{hint.text.strip()}\n" for hint in hints)
    messages = [Message(role="system", content=head)]
    if examples:
        messages.append(Message(role="system", content=examples))
    messages.append(Message(role="user", content=f"\n{request(task, opening)}{PROMPT}"))
    for step in steps:
        ended = "\n" if step.finish == "stop" else ""
        messages.append(Message(role="assistant", content=step.text + ended, tokens=step.tokens))
        messages.append(Message(role="user", content=f"{'' if ended else chr(10)}{_lines(step.observation)}{PROMPT}"))
    return tuple(messages)


def request(task: Task, opening: Observation | None = None) -> str:
    """The task as the terminal shows it, with its last newline."""
    return f"Request: {task.instruction.strip()}\n" + (_lines(opening) if opening else "")


def worked(task: Task, steps: Sequence[Step], opening: Observation | None = None) -> str:
    """A finished episode as a worked example in the terminal dialect, the way a hint shows it."""
    lines = [request(task, opening)]
    for step in steps:
        lines.append(f"{PROMPT}{step.text}\n{_lines(step.observation)}")
    return "".join(lines).rstrip() + "\n"


def _remark(tool: Tool, spec: HarnessSpec) -> str:
    return f"    {spec.tool_descriptions[tool.name]}" if tool.name in spec.tool_descriptions else ""


def _lines(observation: Observation) -> str:
    text = observation.text.strip("\n")
    return f"{text}\n" if text else ""


def _command(line: str, tools: Sequence[Tool]) -> Action:
    text = line.strip().removeprefix(PROMPT).strip()
    known = {t.name: t for t in tools}
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if not words or words[0] not in known:
        return Action(kind="invalid", text=line, problem=_usage(tools))
    tool = known[words[0]]
    if tool.name == ANSWER.name:
        rest = text[len(words[0]) :].strip()
        return Action(kind="answer", text=rest) if rest else Action(kind="invalid", text=line, problem=f"usage: {tool.usage}")
    arguments = _positional(tool, words[1:])
    problem = "usage: " + tool.usage if arguments is None else _mismatch(tool, arguments)
    if arguments is None or problem:
        return Action(kind="invalid", tool=tool.name, text=line, problem=problem)
    return Action(kind="call", tool=tool.name, arguments=arguments, text=line)


def _half(line: str, tools: Sequence[Tool]) -> Action:
    """A line that ran into the token limit: perhaps only the beginning of a command, so it is never acted on."""
    return Action(kind="invalid", text=line, problem=f"the line is too long; {_usage(tools)}")


def _usage(tools: Sequence[Tool]) -> str:
    return "usage: " + " | ".join(t.usage for t in tools)


def _positional(tool: Tool, words: list[str]) -> dict[str, JsonValue] | None:
    """Words to arguments: `name=value` for any parameter, the others in order; the last text parameter takes the rest."""
    arguments: dict[str, JsonValue] = {}
    free: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in tool.properties:
            arguments[name] = _coerced(tool.properties[name], value)
        else:
            free.append(word)
    open_names = [name for name in tool.properties if name not in arguments]
    if len(free) > len(open_names):
        if not open_names or tool.properties[open_names[-1]].get("type") != "string":
            return None
        cut = len(open_names) - 1
        free = [*free[:cut], " ".join(free[cut:])]
    arguments.update({name: _coerced(tool.properties[name], word) for name, word in zip(open_names, free, strict=False)})
    return arguments if all(name in arguments for name in tool.required) else None


def _coerced(schema: Mapping[str, JsonValue], word: str) -> JsonValue:
    """A word as the schema wants it; where it does not fit, the word itself, which validation then refuses."""
    if schema.get("type") == "string":
        return word
    try:
        return cast(JsonValue, json.loads(word))
    except ValueError:
        return word


# --- native ---------------------------------------------------------------------------------------------------


def _native(
    spec: HarnessSpec, task: Task, hints: Sequence[Hint], steps: Sequence[Step], opening: Observation | None
) -> tuple[Message, ...]:
    messages = [Message(role="system", content=spec.prompts.system)]
    if hints:
        shown = "\n\n".join(f'<skill_content name="{hint.name}">\n{hint.text.strip()}\n</skill_content>' for hint in hints)
        messages.append(Message(role="system", content=f"Know-how from earlier work. Use what fits this task.\n\n{shown}"))
    said = opening.text.strip() if opening else ""
    messages.append(Message(role="user", content="\n\n".join(part for part in (task.instruction, said) if part)))
    for turn in sorted({step.turn for step in steps}):
        same = [step for step in steps if step.turn == turn]
        called = tuple(step.action for step in same if step.action.id)
        messages.append(Message(role="assistant", content=same[0].text, actions=called, tokens=same[0].tokens))
        for step in same:
            if step.action.id:
                messages.append(Message(role="tool", content=step.observation.content, call_id=step.action.id))
            else:
                messages.append(Message(role="user", content=step.observation.content))
    return tuple(messages)


def _call(identity: str, name: str, arguments: str, tools: Sequence[Tool]) -> Action:
    known = {t.name: t for t in tools}
    if name not in known:
        problem = f"there is no tool {name!r}; the tools are {', '.join(known) or 'none'}"
        return Action(kind="invalid", id=identity, tool=name, text=arguments, problem=problem)
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError as error:
        problem = f"the arguments of {name} are not JSON ({error}); send one object that fits its schema"
        return Action(kind="invalid", id=identity, tool=name, text=arguments, problem=problem)
    problem = _mismatch(known[name], parsed)
    if problem:
        return Action(kind="invalid", id=identity, tool=name, text=arguments, problem=problem)
    return Action(kind="call", id=identity, tool=name, arguments=parsed, text=arguments)


def _mismatch(tool: Tool, arguments: object) -> str:
    """Why these arguments do not fit the tool's schema; empty when they do."""
    error = next(iter(Draft202012Validator(dict(tool.parameters)).iter_errors(arguments)), None)
    return f"{tool.name}: {error.message}; usage: {tool.usage}" if error else ""


def _split_thought(text: str) -> tuple[str, str]:
    """Thoughts in <think> tags apart from the words that are meant for the user."""
    found = re.match(r"\s*<think>(.*?)(?:</think>|\Z)", text, re.DOTALL)
    return (found.group(1).strip(), text[found.end() :].strip()) if found else ("", text.strip())


def _worded(words: str, *, cut: bool) -> Action:
    """Plain words are the answer, unless they look like the beginning of a call that ran into the token limit."""
    if cut and (words.startswith(("{", "```")) or "<tool_call>" in words):
        return Action(kind="invalid", text=words, problem="the output is too long and the call in it was cut off; write less")
    return Action(kind="answer", text=words)


def _written_call(words: str, tools: Sequence[Tool]) -> Action | None:
    """A tool call that a small model wrote as JSON into its words: `{"name": ..., "arguments": {...}}`, perhaps fenced.

    Braces are doubled by models that copy how their own chat template escapes them.
    """
    fenced = re.search(r"```(?:json)?\s*(\{.*\})\s*```|<tool_call>\s*(\{.*?\})\s*(?:</tool_call>|\Z)", words, re.DOTALL)
    body = next((g for g in fenced.groups() if g), "") if fenced else words if words.startswith("{") else ""
    data = _json(body) or _json(body.replace("{{", "{").replace("}}", "}"))
    if not isinstance(data, dict) or data.get("name") not in {t.name for t in tools}:
        return None
    arguments = data.get("arguments", data.get("parameters", {}))
    return _call("", str(data["name"]), arguments if isinstance(arguments, str) else json.dumps(arguments), tools)


def _json(text: str) -> JsonValue:
    """None where it is no JSON."""
    try:
        return cast(JsonValue, json.loads(text))
    except ValueError:
        return None
