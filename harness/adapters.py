"""Adapters on disk: LoRA weights in peft's form, each folder named by the digest of its files; how they came about is for rl."""

import hashlib
from pathlib import Path
from typing import Final

from harness.errors import UsageError

FILES: Final = ("adapter_config.json", "adapter_model.safetensors")


class Adapters:
    """A folder of immutable adapters."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sound: set[str] = set()

    def folder(self, digest: str) -> Path:
        """Where an adapter lies, its files checked against its name, once.

        Raises UsageError when it is not there, or when a file is missing, cut short or changed.
        """
        folder = self.root / digest
        if digest not in self._sound:
            back = "`assay lineage show` lists the heads, `assay lineage rollback N` goes back to one without it"
            if not folder.is_dir():
                raise UsageError(f"adapter {digest[:12]} is not in {self.root}: copy its folder there, or go back. {back}")
            if missing := [name for name in FILES if not (folder / name).is_file()]:
                raise UsageError(f"adapter {digest[:12]}: {folder} lacks {', '.join(missing)}. Copy it from a backup, or {back}")
            if (found := named(folder)) != digest:
                sizes = ", ".join(f"{name} {(folder / name).stat().st_size:,} bytes" for name in FILES)
                raise UsageError(
                    f"adapter {digest[:12]}: its files ({sizes}) have the digest {found[:12]}, so they were cut short or changed."
                    f" Copy {folder} from a backup, or {back}"
                )
            self._sound.add(digest)
        return folder


def named(folder: Path) -> str:
    """The digest of an adapter's files (64 hex digits): sha256 over the sha256 of each."""
    whole = hashlib.sha256()
    for name in FILES:
        with (folder / name).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()
