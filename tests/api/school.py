"""A user's directory with a toy model that can learn: what `assay evolve` and `assay train` do there takes seconds, for real."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.rl.toys import folder

ROOT = Path(__file__).parents[2]
ASSAY = Path(sys.executable).parent / "assay"
MORTAL = (sys.executable, "-m", "tests.api.mortal")
MODEL = "local/toy"
SKILL = "say-yes"
TRAIN = ("train", "tasks.jsonl", "--skill", SKILL, "--runs", "16", "--rate", "0.05", "--margin", "0.25", "--yes", "--json")
EVOLVE = ("evolve", "tasks.jsonl", "--skill", SKILL, "--yes", "--json")
SIZES = {"train": 60, "validate": 60, "test": 20}
MARKS = "~" * 100


class School:
    """`data` is the data directory that its commands work on; copies of it are other lives."""

    def __init__(self, place: Path, data: str = "data") -> None:
        self.place, self.data = place, place / data

    @classmethod
    def opened(cls, place: Path) -> "School":
        """A fresh directory: the toy, its tasks, and a skill that is imported and not tried."""
        folder(place / "toy")
        with (place / "tasks.jsonl").open("w") as file:
            for split, many in SIZES.items():
                for number in range(many):
                    words = f"Question {split} {number}: is it so? Answer yes or no."
                    file.write(json.dumps({"instruction": words, "expect": "yes", "split": split}) + "\n")
        (place / SKILL).mkdir()
        head = f"---\nname: {SKILL}\ndescription: Answer the question, is it so, yes or no.\n---\n"
        (place / SKILL / "SKILL.md").write_text(f"{head}Request: Question: is it so? Answer yes or no.\n{MARKS}\n")
        made = cls(place)
        made.run("skills", "import", SKILL)
        return made

    def copy(self, data: str) -> "School":
        """Another life from here on."""
        shutil.copytree(self.data, self.place / data)
        return School(self.place, data)

    def process(self, *words: str, dies_at: int | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
        """A command as a process, which kills itself at its `dies_at`-th step; 0: it only counts them."""
        front = (str(ASSAY),) if dies_at is None else (*MORTAL, str(dies_at))
        environment = {**os.environ, "ASSAY_DATA": str(self.data), "ASSAY_MODEL": MODEL, "COLUMNS": "200", "NO_COLOR": "1"}
        environment["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            [*front, *words], cwd=self.place, env=environment, capture_output=True, text=True, check=False, **more
        )  # fmt: skip

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.process(*words)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words).stdout)
