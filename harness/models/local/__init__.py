"""The local model: transformers' weights under a decode loop of our own, batched over everything that is asked at once."""

from harness.models.local.model import LocalModel

__all__ = ["LocalModel"]
