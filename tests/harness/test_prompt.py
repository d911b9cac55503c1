"""Prompts: the issue's document byte for byte, and the laws that rendering and parsing keep."""

import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.environments import desk
from harness.errors import Unparsed
from harness.hint import Hint
from harness.message import Action, Call, Completion, Message, Observation, concatenated
from harness.policy import Policy
from harness.prompt import described, parse, render, sampling, worked
from harness.spec import HarnessSpec, Prompts
from harness.task import Task
from harness.tool import ANSWER, Tool
from harness.trajectory import Step
from tests.harness.rigs import ADD, LOOK, NATIVE, TASK, TERMINAL

laws = settings(derandomize=True, deadline=None, max_examples=100)
TOOLS = (LOOK, ADD, ANSWER)
SAY = Tool(
    name="say",
    parameters={
        "type": "object",
        "properties": {"to": {"type": "string"}, "words": {"type": "string"}},
        "required": ["to", "words"],
    },
)
lines = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=60)
finishes = st.sampled_from(["stop", "length", "calls", "refusal"])

DESK = """Front desk terminal. Type one command per line.

Commands:
> refund NUMBER
> confirm CODE

Request: Refund order 4749.
>"""


def terminal(text: str, tools: tuple[Tool, ...] = TOOLS) -> Action:
    [action] = parse(TERMINAL.prompts, Completion(text=text), tools).actions
    return action


def done(text: str, said: str, turn: int = 0) -> Step:
    return Step(
        turn=turn, action=Action(kind="call", tool="add", id=f"c{turn}"), observation=Observation(content=said), text=text
    )


def test_the_desk_prompt_byte_for_byte() -> None:
    task = Task(instruction="Refund order 4749.")
    prompt = render(desk.spec(Policy(model="scripted/x")), task, desk.COMMANDS["refund"])
    assert concatenated(prompt) == DESK
    assert [message.role for message in prompt] == ["system", "user"]


def test_a_worked_example_reads_like_the_episode_that_it_tells() -> None:
    spec = desk.spec(Policy(model="scripted/x"))
    past = (done(" refund 17", "to finish, type: confirm RX-17"), done(" confirm RX-17", "", 1))
    example = worked(Task(instruction="Refund order 17."), past)
    hint = Hint(kind="skill", id="s", text=example)
    prompt = concatenated(render(spec, Task(instruction="Refund order 4749."), desk.COMMANDS["refund"], (hint,)))
    told = "Request: Refund order 17.\n> refund 17\nto finish, type: confirm RX-17\n> confirm RX-17\n"
    assert prompt == DESK.replace("\nRequest:", f"\n{told}\nRequest:")


@laws
@given(st.lists(st.tuples(lines, lines), max_size=4), st.booleans())
def test_a_terminal_document_only_grows_and_hints_stand_before_the_task(turns: list[tuple[str, str]], hinted: bool) -> None:
    hints = (Hint(kind="skill", id="s", text="Request: x\n> add 1"),) if hinted else ()
    steps = [done(text, said, turn) for turn, (text, said) in enumerate(turns)]
    documents = [concatenated(render(TERMINAL, TASK, TOOLS, hints, steps[:n])) for n in range(len(steps) + 1)]
    for before, after, (text, _) in zip(documents, documents[1:], turns, strict=False):
        assert after.startswith(f"{before}{text}\n")
        assert after.endswith("\n>")
    assert documents[-1].index("Commands:") < documents[-1].index(f"Request: {TASK.instruction}")
    bare = concatenated(render(TERMINAL, TASK, TOOLS, (), steps))
    assert documents[-1].replace("\nRequest: x\n> add 1\n", "", 1) == bare if hinted else documents[-1] == bare


@laws
@given(lines, finishes)
def test_any_line_is_one_action_and_a_cut_one_is_never_done(text: str, finish: str) -> None:
    parsed = parse(TERMINAL.prompts, Completion.model_validate({"text": text, "finish": finish}), TOOLS)
    [action] = parsed.actions
    assert parsed.text == text
    assert (action.kind == "invalid") == bool(action.problem)
    if finish == "length":
        assert action.kind == "invalid"
    if action.kind == "call":
        assert isinstance(action.arguments["n"], int)


@laws
@given(st.integers(), st.sampled_from([" add {}", "add n={}", "  > add   {}  ", " add '{}'"]))
def test_a_command_is_read_however_it_is_spaced(n: int, form: str) -> None:
    action = terminal(form.format(n))
    assert (action.kind, action.tool, dict(action.arguments)) == ("call", "add", {"n": n})


@laws
@given(st.text("abc '\"$=", min_size=1, max_size=20), st.text("abc '\"$", min_size=1, max_size=20))
def test_quoted_words_come_through_as_they_were_meant(to: str, words: str) -> None:
    assert dict(terminal(f" say {shlex.quote(to)} {shlex.quote(words)}", (SAY,)).arguments) == {"to": to, "words": words}


def test_the_last_text_takes_the_rest_of_the_line() -> None:
    assert dict(terminal(" say ann how are you", (SAY,)).arguments) == {"to": "ann", "words": "how are you"}
    assert terminal(" answer it's 24 euros").text == "it's 24 euros"
    assert terminal(" answer").problem == "usage: answer TEXT"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "usage: look N |"), (" add", "usage: add N"), (" add 1 2", "usage: add N"), (" add x", "'x' is not of type 'integer'")],
)
def test_what_does_not_fit_says_how_it_is_typed(text: str, problem: str) -> None:
    action = terminal(text)
    assert action.kind == "invalid"
    assert problem in action.problem


@laws
@given(st.text(max_size=80), finishes)
def test_native_words_are_one_action_or_unparsed(text: str, finish: str) -> None:
    completion = Completion.model_validate({"text": text, "finish": finish})
    try:
        parsed = parse(NATIVE.prompts, completion, TOOLS)
    except Unparsed:
        assert not text.strip() or text.lstrip().startswith("<think>")
        return
    [action] = parsed.actions
    assert action.text.strip() or action.tool
    assert action.kind != "call" or set(action.arguments) == {"n"}


@laws
@given(st.text(max_size=40), st.text(max_size=40))
def test_native_calls_keep_their_ids_and_none_is_lost(name: str, arguments: str) -> None:
    made = (Call(id="a", tool=name, arguments=arguments), Call(id="b", tool="add", arguments='{"n": 1}'))
    parsed = parse(NATIVE.prompts, Completion(text=" why ", calls=made), TOOLS)
    assert [action.id for action in parsed.actions] == ["a", "b"]
    assert parsed.actions[1].kind == "call"
    assert parsed.thought == "why"


WRITTEN = json.dumps({"name": "add", "arguments": {"n": 2}})


DOUBLED = f"{{{WRITTEN}}}"
TWICE = WRITTEN.replace("{", "{{").replace("}", "}}")


@pytest.mark.parametrize(
    "words",
    [
        WRITTEN,
        DOUBLED,
        TWICE,
        f"I add.\n```json\n{WRITTEN}\n```",
        f"<tool_call>{WRITTEN}</tool_call>",
        f"<tool_call>\n{DOUBLED}\n</tool_call>",
        f"<think>hm</think>{WRITTEN}",
    ],
)
def test_a_call_that_was_written_into_the_words_is_a_call(words: str) -> None:
    parsed = parse(NATIVE.prompts, Completion(text=words), TOOLS)
    assert [(a.kind, a.tool, dict(a.arguments)) for a in parsed.actions] == [("call", "add", {"n": 2})]
    assert parsed.thought == ("hm" if "think" in words else "")


def test_json_that_names_no_tool_is_an_answer() -> None:
    [action] = parse(NATIVE.prompts, Completion(text='{"total": 24}'), TOOLS).actions
    assert (action.kind, action.text) == ("answer", '{"total": 24}')


def test_a_native_prompt_holds_one_assistant_message_a_turn_and_an_answer_to_every_call() -> None:
    steps = [done("both", "1"), done("", "2").replace(action=Action(kind="call", tool="add", id="d0")), done("no call", "hm", 1)]
    steps[2] = steps[2].replace(action=Action(kind="invalid", problem="hm"))
    hint = Hint(kind="skill", id="s", name="adding", text="Add up.")
    prompt = render(NATIVE, TASK, TOOLS, (hint,), steps, Observation(content="ready"))
    assert [m.role for m in prompt] == ["system", "system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [action.id for action in prompt[3].actions] == ["c0", "d0"]
    assert [m.call_id for m in prompt if m.role == "tool"] == ["c0", "d0"]
    assert prompt[2] == Message(role="user", content="Count to two.\n\nready")
    assert '<skill_content name="adding">\nAdd up.\n</skill_content>' in str(prompt[1].content)


def test_a_spec_describes_tools_anew_and_says_how_it_samples() -> None:
    spec = HarnessSpec(
        policy=Policy(model="m"), tool_descriptions={"add": "Adds."}, prompts=Prompts(dialect="terminal", tokens=7)
    )
    assert [t.description for t in described(TOOLS, spec)] == ["", "Adds.", ANSWER.description]
    assert "> add N    Adds.\n" in concatenated(render(spec, TASK, TOOLS))
    asked = sampling(spec.prompts, 5, "p")
    assert (asked.seed, asked.prefix, asked.stop, asked.max_tokens, asked.template) == (5, "p", ("\n",), 7, False)
    assert sampling(NATIVE.prompts, 5).template
