"""Loose: what a small model meant to say is found, in whatever wrapping; what it did not say is not made up."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.loose import fields

NAMES = {"name": ("title",), "description": (), "body": ("steps",)}
WHOLE = {"name": "refund-order", "description": "When asked.", "body": "1. Type: refund NUMBER\n2. Type: confirm CODE"}
PLAIN = json.dumps(WHOLE)


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN,
        f"Sure! Here it is:\n\n```json\n{PLAIN}\n```\nHope it helps {{really}}.",
        f"```\n{json.dumps(WHOLE, indent=2)}\n```",
        json.dumps({"skill": WHOLE}),
        json.dumps({"Name": WHOLE["name"], "DESCRIPTION": WHOLE["description"], "Body": WHOLE["body"], "extra": [1]}),
        json.dumps({**WHOLE, "body": WHOLE["body"].split("\n")}),
        json.dumps({"title": WHOLE["name"], "description": WHOLE["description"], "steps": WHOLE["body"].split("\n")}),
        PLAIN.replace("\\n", "\n"),
        PLAIN[:-1] + ",}",
        PLAIN[:-2],
        PLAIN[:-1],
        "{'name': 'refund-order', 'description': 'When asked.', 'body': '1. Type: refund NUMBER\\n2. Type: confirm CODE'}",
        '{"name": "refund-order", "description": "When asked.", "body": """1. Type: refund NUMBER\n2. Type: confirm CODE"""}',
        "{name: `refund-order`, description: `When asked.`, body: `1. Type: refund NUMBER\n2. Type: confirm CODE`}",
        "Name: refund-order\nDescription: When asked.\nBody:\n1. Type: refund NUMBER\n2. Type: confirm CODE\n",
        "**Name**: refund-order\n**Description:** When asked.\n\n## Body:\n1. Type: refund NUMBER\n2. Type: confirm CODE",
        "- name: refund-order\n- description: When asked.\n- steps: 1. Type: refund NUMBER\n2. Type: confirm CODE",
        '{"thought": "none"} ' + PLAIN,
    ],
)
def test_every_wrapping_holds_the_same(answer: str) -> None:
    assert fields(answer, NAMES) == WHOLE


def test_quotes_inside_a_broken_text_stay() -> None:
    answer = '{"name": "refund-order", "body": "1. Type "refund NUMBER", then wait.", "description": "When asked."}'
    assert fields(answer, NAMES)["body"] == '1. Type "refund NUMBER", then wait.'


@pytest.mark.parametrize(
    "answer", ["", "I cannot help with that.", "{}", "[]", "{" * 3000, '{"other": "x"}', "name", '{"body": " "}']
)
def test_nothing_is_made_up(answer: str) -> None:
    assert fields(answer, NAMES) == {}


def test_what_is_missing_stays_missing() -> None:
    assert fields('{"body": "text", "name": null, "description": 3}', NAMES) == {"body": "text", "description": "3"}
    assert fields('{"body": [{"step": 1, "do": "go"}, "stop"]}', NAMES) == {"body": "1 go\nstop"}


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.text() | st.text(alphabet="{}[]\":,\\ \nnamebody`'"))
def test_any_answer_is_read_without_a_fall(answer: str) -> None:
    assert all(value and name in NAMES for name, value in fields(answer, NAMES).items())


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.fixed_dictionaries({name: st.text(min_size=1).filter(str.strip) for name in NAMES}))
def test_valid_json_is_read_exactly(said: dict[str, str]) -> None:
    assert fields(json.dumps(said), NAMES) == said
