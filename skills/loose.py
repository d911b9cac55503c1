"""Loose: named text fields out of a small model's answer, however it wrapped them; it invents nothing."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

LONGEST: Final = 40_000
"""Characters of an answer that are looked at."""
MOST_OBJECTS: Final = 50


def fields(answer: str, names: Sequence[str]) -> dict[str, str]:
    """The named fields in the answer, as text; empty when nothing looks like them.

    Reads JSON objects, wherever they stand and whatever else they hold (the one with the most of the names counts); else quoted
    fields of an object that is no valid JSON; else headings, `Name: ...`, also in Markdown.
    """
    text = answer[:LONGEST]
    whole = max((_texts(each, names) for each in _objects(text)), key=len, default={})
    return whole or _quoted(text, names) or _headed(text, names)


def _objects(text: str) -> Iterator[Mapping[Any, Any]]:
    decoder = json.JSONDecoder(strict=False)  # line breaks may stand inside strings
    for found in list(re.finditer(r"\{", text))[:MOST_OBJECTS]:
        try:
            value = decoder.raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _texts(found: Mapping[Any, Any], names: Sequence[str]) -> dict[str, str]:
    texts = {str(key).strip().lower(): _text(value) for key, value in found.items()}
    return {name: texts[name] for name in names if texts.get(name, "").strip()}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(_text(item) for item in value.values())
    return "" if value is None else str(value)


def _quoted(text: str, names: Sequence[str]) -> dict[str, str]:
    """Broken JSON: quotes inside strings, trailing commas, single or triple quotes, no end."""
    key = rf"[\"'`]?(?:{'|'.join(names)})[\"'`]?\s*:"
    found: dict[str, str] = {}
    for name in names:
        opening = re.search(rf"[\"'`]?{name}[\"'`]?\s*:\s*(\"\"\"|\"|'|`)", text, re.IGNORECASE)
        if opening is None:
            continue
        quote = re.escape(opening.group(1))
        rest = text[opening.end() :]
        closing = re.search(rf"{quote}\s*(?:,?\s*\}}|,\s*{key}|\Z)", rest, re.IGNORECASE)
        value = rest[: closing.start()] if closing else re.split(r"\n\s*(?:```|\})", rest)[0]
        found[name] = value.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'").strip()
    return {name: value for name, value in found.items() if value}


def _headed(text: str, names: Sequence[str]) -> dict[str, str]:
    mark = r"[ \t#*_>-]*"
    heading = re.compile(rf"^{mark}({'|'.join(names)}){mark}:{mark}", re.IGNORECASE | re.MULTILINE)
    marks = list(heading.finditer(text))
    ends = [m.start() for m in marks[1:]] + [len(text)]
    found = {m.group(1).lower(): text[m.end() : end].strip().strip("`").strip() for m, end in zip(marks, ends, strict=False)}
    return {name: value for name, value in found.items() if value}
