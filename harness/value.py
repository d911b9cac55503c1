"""Value: the frozen, content-addressed base of every noun; it holds data and no behaviour."""

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Immutable data that is identified by what it says.

    Two values with equal fields have equal digests, in every process and on every machine.
    Fields that still have their default are left out of the digest, so that a later version may add a
    field without renaming everything that exists; hence a default, once released, never changes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def digest(self) -> str:
        """sha256 (64 hex digits) of the canonical JSON: sorted keys, no spaces, UTF-8."""
        return digest(self.model_dump(mode="json", exclude_defaults=True))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated like a new one (`model_copy` validates nothing)."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})


def digest(data: object) -> str:
    """sha256 of any JSON value in canonical form; raises ValueError on NaN and infinities."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
