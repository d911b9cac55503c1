"""What a provider's error means: whose doing it is, whether it may pass, and how long to wait; it neither calls nor waits."""

import email.utils
import re
from collections.abc import Callable, Collection, Mapping

from harness.errors import AssayError, ContextOverflow, Refused, UsageError

OVERFLOW = re.compile(r"context[ _](length|window|size)|maximum context|(prompt|input) is too long", re.IGNORECASE)
FILTERED = re.compile(r"content[ _](filter|management policy|policy)|safety system", re.IGNORECASE)
KEY = re.compile(r"missing credentials|api[_ ]key\b.{0,60}(required|must be set|not set|missing)", re.IGNORECASE)
SECRET = 6
"""Characters from which on a key is long enough to be one, and not a word."""
PASSING = frozenset({408, 409, 425, 429})
"""Client errors that may be over in a moment."""


def lasting(error: Exception, here: str, told: str) -> AssayError | None:
    """What an error is when trying again is no use; None when it may pass. `here` names the model, `told` quotes the provider."""
    status, codes = getattr(error, "status_code", None), _codes(error)
    name, text = type(error).__name__, str(error)
    if name == "ContextWindowExceededError" or "context_length_exceeded" in codes or (status != 429 and OVERFLOW.search(text)):
        return ContextOverflow(f"{here}: the prompt no longer fits: {told}")
    if name == "ContentPolicyViolationError" or "content_filter" in codes or (status == 400 and FILTERED.search(text)):
        return Refused(f"{here} declined: {told}")
    if status in (401, 403) or KEY.search(text):
        return UsageError(f"{here} did not accept the API key: {told}. Set ASSAY_API_KEY or the provider's own variable")
    if status == 402 or "insufficient_quota" in codes:
        return UsageError(f"{here}: the account has no credit: {told}. Pay there, or choose another --model")
    if status == 404:
        return UsageError(f"{here} was not found: {told}. Check --model (provider/name) and --base-url")
    if name == "UnsupportedParamsError" or (isinstance(status, int) and 400 <= status < 500 and status not in PASSING):
        return UsageError(f"{here} refused the request ({status}): {told}. Check --model (provider/name) and --base-url")
    return None


def told(error: Exception, *, secret: str | None) -> str:
    """The provider's own words, without litellm's prefixes and without the key; at most 300 characters."""
    text = " ".join((str(error) or type(error).__name__).split())
    text = re.sub(r"^(?:litellm\.)?(?:\w+(?:\.\w+)*: )*(?:\w+(?:Exception|Error) - )?", "", text) or text
    inside = re.search(r'\{.*"message": ?"((?:[^"\\]|\\.)+)"', text)
    text = inside.group(1) if inside else text
    return (text.replace(secret, "***") if secret and len(secret) >= SECRET else text)[:300].rstrip(". ")


def turned_down(error: Exception, sent: Collection[str]) -> set[str]:
    """Which of the optional parameters that were sent the model does not take, by what this error says."""
    if type(error).__name__ != "UnsupportedParamsError" and not any(code.startswith("unsupported_") for code in _codes(error)):
        return set()
    named = _body(error).get("param")
    if named in sent:
        return {str(named)}
    return {name for name in sent if re.search(rf"\b{name}\b", str(error))}


def retry_after(error: Exception, clock: Callable[[], float]) -> float | None:
    """Seconds that the provider asks to wait: `Retry-After` in seconds or as an HTTP date, or OpenAI's milliseconds."""
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "litellm_response_headers", None) or {}
    after = headers.get("retry-after", "")
    for text, scale in ((headers.get("retry-after-ms", ""), 1000.0), (after, 1.0)):
        try:
            return max(float(text) / scale, 0.0)
        except ValueError:
            continue
    date = email.utils.parsedate_tz(after) if after else None
    return None if date is None else max(email.utils.mktime_tz(date) - clock(), 0.0)


def _body(error: Exception) -> Mapping[str, object]:
    body = getattr(error, "body", None)
    return body if isinstance(body, Mapping) else {}


def _codes(error: Exception) -> set[str]:
    """The provider's own words for what went wrong."""
    return {str(code) for code in (getattr(error, "code", None), _body(error).get("code"), _body(error).get("type")) if code}
