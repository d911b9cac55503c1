"""Skill: a piece of named know-how as data, and the statuses that it may move between; whether it helps is for a trial."""

import unicodedata
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, field_validator

from harness.errors import UsageError
from harness.value import Value, digest

Source = Literal["agent", "drafter", "human", "imported", "planted"]
Status = Literal["candidate", "active", "retired", "internalised", "rejected", "quarantined"]

LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 1024
LONGEST_BODY: Final = 200_000
LONGEST_COMPATIBILITY: Final = 500
OURS: Final = "assay."
"""Prefix of our own keys in a SKILL.md's metadata; there, `version` is ours too."""
MOST_FILES: Final = 64
LARGEST_FILES: Final = 1_000_000
"""Characters of all files of one skill together."""
FOLDERS: Final = ("scripts", "references", "assets")

MOVES: Final[Mapping[Status, Mapping[Status, Literal["by hand", "measured"]]]] = {
    "candidate": {"active": "by hand", "rejected": "by hand"},
    "active": {"retired": "by hand", "internalised": "measured"},
    "retired": {"active": "by hand", "candidate": "measured", "rejected": "measured"},
    "internalised": {"active": "by hand", "candidate": "measured", "rejected": "measured"},
    "rejected": {"candidate": "measured", "active": "measured"},
    "quarantined": {"active": "measured", "candidate": "measured", "rejected": "by hand"},
}
"""Every legal move. `measured` ones need the id of a verdict; others may have one, and are recorded as unmeasured without."""


class Provenance(Value):
    """Where a skill comes from."""

    source: Source
    """`agent`: from its own runs; `drafter`: written by a model; `planted`: put there for a test or a demo."""
    runs: tuple[str, ...] = ()
    """Ids of the trajectories that it was made from."""
    author_model: str = ""
    note: str = ""


class Skill(Value):
    """One immutable version. Its status is no part of it: that is a row of the bank, for each lineage."""

    name: str
    """As Agent Skills want it: 1 to 64 lower-case letters, digits and single hyphens."""
    description: Annotated[str, Field(min_length=1, max_length=LONGEST_DESCRIPTION)]
    """What it is for and when it helps; with the body, what recall searches."""
    body: Annotated[str, Field(max_length=LONGEST_BODY)]
    """The know-how itself, as the agent reads it."""
    scripts: Mapping[str, str] = {}
    """Path below the skill's folder (`scripts/total.py`) to text; kept, and never run without a sandbox."""
    tools: tuple[str, ...] = ()
    """Tools that it wants to use."""
    version: Annotated[int, Field(ge=1)] = 1
    license: str = ""
    compatibility: Annotated[str, Field(max_length=LONGEST_COMPATIBILITY)] = ""
    metadata: Mapping[str, str] = {}
    provenance: Provenance = Provenance(source="human")

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if problem := name_problem(name):
            raise ValueError(problem)
        return name

    @field_validator("description", "body")
    @classmethod
    def _said(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("is empty: say something")
        return text

    @field_validator("tools")
    @classmethod
    def _words(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        if bad := [tool for tool in tools if not tool or set(tool) & set(", ") or tool.split() != [tool]]:
            raise ValueError(f"tool {bad[0]!r}: a name without spaces and commas")
        return tools

    @field_validator("metadata")
    @classmethod
    def _foreign(cls, metadata: Mapping[str, str]) -> Mapping[str, str]:
        if bad := [key for key in metadata if key == "version" or key.startswith(OURS)]:
            raise ValueError(f"metadata {bad[0]!r} is ours: the skill's own fields say it")
        return metadata

    @field_validator("scripts")
    @classmethod
    def _bounded(cls, scripts: Mapping[str, str]) -> Mapping[str, str]:
        if len(scripts) > MOST_FILES or sum(map(len, scripts.values())) > LARGEST_FILES:
            found = f"{len(scripts)} files of {sum(map(len, scripts.values()))} characters"
            raise ValueError(f"{found}; allowed are {MOST_FILES} files of {LARGEST_FILES} characters together")
        if bad := next((problem for path in scripts if (problem := path_problem(path))), ""):
            raise ValueError(bad)
        return scripts

    @property
    def content(self) -> str:
        """Digest of what it says, whoever wrote it and however it is called: equal ones are duplicates."""
        return digest([self.body.strip(), dict(self.scripts)])

    @property
    def searched(self) -> str:
        """The text that recall embeds and indexes."""
        return f"{self.description}\n\n{self.body}"


def name_problem(name: str) -> str:
    """Why a name breaks the rules of Agent Skills; empty when it does not."""
    rule = f"1 to {LONGEST_NAME} lower-case letters, digits and single hyphens, none at either end"
    good = (
        0 < len(name) <= LONGEST_NAME
        and unicodedata.normalize("NFKC", name) == name == name.lower()
        and all(part.isalnum() for part in name.split("-"))
    )
    return "" if good else f"skill name {name!r}: allowed are {rule}"


def path_problem(path: str) -> str:
    """Why a file may not lie at this path of a skill's folder; empty when it may."""
    parts = path.split("/")
    plain = all(part and part.isprintable() and not part.startswith(".") and not set(part) & set('\\:*?"<>|') for part in parts)
    good = plain and len(path) <= 200 and len(parts) in (2, 3, 4) and parts[0] in FOLDERS and str(PurePosixPath(path)) == path
    return "" if good else f"skill file {path!r}: allowed are plain relative paths below {', '.join(f'{f}/' for f in FOLDERS)}"


def first_status(skill: Skill) -> Status:
    """Imported skills are quarantined until a trial has admitted them."""
    return "quarantined" if skill.provenance.source == "imported" else "candidate"


def check_move(skill: str, before: Status, after: Status, verdict: str) -> None:
    """Raises UsageError when `skill` may not move so, or may not without a verdict."""
    allowed = MOVES[before]
    if after not in allowed:
        known = "" if after in get_args(Status) else f"; statuses are {', '.join(get_args(Status))}"
        raise UsageError(f"skill {skill} is {before} and cannot become {after}: allowed are {', '.join(allowed)}{known}")
    if allowed[after] == "measured" and not verdict:
        raise UsageError(
            f"skill {skill} is {before}: only a verdict makes it {after}; try it: assay evolve TASKS.jsonl --skill {skill}"
        )
