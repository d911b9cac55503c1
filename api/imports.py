"""A user's own functions by import path, found after all that is installed; what they are for is decided elsewhere."""

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import harness
from harness.errors import UsageError

ROOMS = ("api", "evolve", "harness", "memory", "rl", "skills")
"""Names that are ours, whoever else has them."""


def reach(directories: Iterable[Path]) -> None:
    """Put directories at the end of the import path, so that our rooms and installed packages win."""
    for directory in directories:
        if str(directory) not in sys.path:
            sys.path.append(str(directory))


def shadowed(directory: Path) -> list[str]:
    """Names of a user's own folders and files there that cannot be imported, because one of our rooms has the name."""
    directory = directory.resolve()
    if directory == Path(harness.__file__).resolve().parent.parent:
        return []
    found = [f"{room}/" for room in ROOMS if (directory / room).is_dir()]
    return found + [f"{room}.py" for room in ROOMS if (directory / f"{room}.py").is_file()]


def imported(path: str) -> Callable[..., Any]:
    """The function that `module:function` or `module.function` names; raises UsageError that says what was found instead."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not module or not name or not all(part.isidentifier() for part in f"{module}.{name}".split(".")):
        raise UsageError(f"import path {path!r}: allowed are module:function and module.function")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        gone = isinstance(error, ModuleNotFoundError) and error.name == module
        where = ". It was looked for in the working directory, beside the task file, and in what is installed" if gone else ""
        told = f"{type(error).__name__}: {error}{where}{_clash(module)}"
        raise UsageError(f"import path {path!r}: importing {module} raised {told}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known in dir(found) if callable(getattr(found, known, None)) and not known.startswith("_")]
            has = f"it has {', '.join(names) or 'no functions'}{_clash(module)}"
            raise UsageError(f"import path {path!r}: no {part} in {module}; {has}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"import path {path!r}: found {type(found).__name__}, a function is needed")
    return cast(Callable[..., Any], found)


def _clash(module: str) -> str:
    room = module.split(".")[0]
    clash = room in ROOMS and any(name.startswith(room) for name in shadowed(Path.cwd()))
    return f". Assay's own {room}/ wins over yours: rename it" if clash else ""
