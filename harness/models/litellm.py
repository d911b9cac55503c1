"""Any hosted model through litellm (`openai/...`, `anthropic/...`, `ollama/...`, a vLLM server); it gives no log-probs.

litellm is imported at the first call, quietly, with the price list that it ships: nothing is fetched.
"""

import asyncio
import json
import logging
import random
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import JsonValue

from harness.errors import ModelUnavailable, Refused
from harness.message import Completion, Finish, Message, Usage
from harness.models import chat, faults
from harness.policy import Policy, Sampling
from harness.tool import Tool

log = logging.getLogger(__name__)

FINISH: Mapping[str, Finish] = {"length": "length", "tool_calls": "calls", "function_call": "calls"}
FIELDS: Mapping[str, str] = {"response_format": "json_schema"}
"""Optional parameters of litellm that have another name here."""
OPTIONAL = frozenset({"temperature", "top_p", "seed", "max_tokens", "stop", "response_format"})
ASIDE = 5.0
"""Seconds for what litellm asks on its own; our calls bring their own timeout."""
KEYLESS = "none"
"""Sent to a server of one's own when no key was given, so that another provider's key never goes there."""


class LiteLLM:
    """The Model seam over litellm, with retries of its own: doubling, jittered, and as long as the provider asks to wait."""

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        price: tuple[float, float] | None = None,
        concurrency: int = 8,
        timeout: float = 120.0,
        retries: int = 5,
        backoff: float = 1.0,
        patience: float = 120.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        """`price` is US dollars per million prompt and completion tokens; without it, what litellm's own list says.

        Seconds: `timeout` of one attempt, `backoff` before the first retry, `patience` the longest wait that is honoured.
        """
        self._base_url, self._api_key, self._price = base_url, api_key or (KEYLESS if base_url else None), price
        self._gate = asyncio.Semaphore(concurrency)
        self._timeout, self._retries, self._backoff, self._patience = timeout, retries, backoff, patience
        self._sleep, self._clock, self._rng = sleep, clock, rng or random.Random()
        self._declined: dict[str, set[str]] = {}
        """Per model, the optional parameters that it does not take."""

    async def complete(
        self, policy: Policy, messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling
    ) -> Completion:
        """One output. Raises ContextOverflow, Refused, ModelUnavailable, and UsageError where a setting is wrong."""
        library = _library()
        model = f"ollama_chat/{policy.model.removeprefix('ollama/')}" if policy.model.startswith("ollama/") else policy.model
        options = _options(policy, sampling)
        said = chat.turns(messages, template=sampling.template)
        prefilled = bool(sampling.prefix) and bool(library.utils.supports_assistant_prefill(model))
        if prefilled:
            said.append({"role": "assistant", "content": sampling.prefix, "prefix": True})
        functions = chat.functions(tools) if sampling.template else []
        async with self._gate:
            began = time.perf_counter()
            response = await self._answered(policy, model, said, functions, options)
            seconds = time.perf_counter() - began
        completion = _completion(policy, response, seconds, self._price)
        if prefilled and not completion.text.startswith(sampling.prefix):
            completion = completion.replace(text=sampling.prefix + completion.text)
        return _honest(completion, sampling, {FIELDS.get(name, name) for name in self._declined[model] & options.keys()})

    def priced(self, model: str) -> bool:
        """Whether its calls are counted in US dollars; otherwise they count as 0, and no cost limit can stop them."""
        if self._price is not None:
            return True
        try:
            _library().cost_per_token(model=model, prompt_tokens=1, completion_tokens=1)
        except Exception:  # whatever litellm raises for what its list lacks
            return False
        return True

    async def close(self) -> None:
        """Close litellm's connections; other instances open theirs again."""
        library = _library()
        await library.close_litellm_async_clients()
        library.in_memory_llm_clients_cache.flush_cache()

    async def _answered(
        self, policy: Policy, model: str, said: list[chat.Json], functions: list[chat.Json], options: Mapping[str, JsonValue]
    ) -> Any:
        library = _library()
        if model not in self._declined:
            self._declined[model] = _unsupported(library, model)
        declined, attempt = self._declined[model], 0
        while True:
            sent = {name: value for name, value in options.items() if name not in declined}
            try:
                async with asyncio.timeout(self._timeout):
                    response = await library.acompletion(
                        model=model,
                        messages=json.loads(json.dumps(said)),
                        tools=functions or None,
                        base_url=self._base_url,
                        api_key=self._api_key,
                        timeout=self._timeout,
                        max_retries=0,
                        num_retries=0,
                        drop_params=False,
                        **sent,
                    )
                if response.choices:
                    return response
                raise LookupError("an answer without choices")
            except Exception as error:
                turned_down = faults.turned_down(error, sent)
                if turned_down:
                    declined |= turned_down
                    continue
                here = f"model {policy.model}" + (f" at {self._base_url}" if self._base_url else "")
                told = faults.told(error, secret=self._api_key if self._api_key != KEYLESS else None)
                failure = faults.lasting(error, here, told)
                if failure is not None:
                    raise failure from error
                asked = faults.retry_after(error, self._clock)
                if asked is not None and asked > self._patience:
                    raise ModelUnavailable(
                        f"{here} asks to wait {asked:.0f} s, more than {self._patience:.0f}: {told}"
                    ) from error
                if attempt == self._retries:
                    raise ModelUnavailable(f"{here} gave no answer in {attempt + 1} attempts: {told}") from error
                await self._sleep(self._wait(asked, attempt))
                attempt += 1

    def _wait(self, asked: float | None, attempt: int) -> float:
        """Seconds until the next attempt: what the provider asks for and a little more, or a jittered doubling."""
        if asked is not None:
            return asked + self._rng.uniform(0, self._backoff)
        return min(self._backoff * 2.0**attempt, self._patience) * self._rng.uniform(0.5, 1.0)


def _library() -> Any:
    """litellm, without its network calls, telemetry, banners, log lines, and the warnings about how it writes its types."""
    # Whenever another corner of litellm is loaded, also within a call, pydantic warns of its types again.
    warnings.filterwarnings("ignore", "Items? .* using the `ReadOnly` qualifier", UserWarning)
    return _imported()


@cache
def _imported() -> Any:
    import litellm

    library: Any = litellm
    # litellm looks up an Ollama model after its first answer, blocking the event loop for as long as this.
    library.request_timeout = ASIDE
    library.suppress_debug_info = True
    library.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return library


def _unsupported(library: Any, model: str) -> set[str]:
    """Which of our optional parameters litellm knows this model not to take."""
    try:
        known = library.get_supported_openai_params(model=model)
    except Exception:
        known = None
    return set(OPTIONAL.difference(known)) if known else set()


def _options(policy: Policy, sampling: Sampling) -> dict[str, JsonValue]:
    """litellm's optional parameters, by its names."""
    options: dict[str, JsonValue] = {
        "temperature": policy.temperature,
        "top_p": policy.top_p,
        "seed": sampling.seed % 2**31,
        "max_tokens": sampling.max_tokens,
    }
    if policy.top_p == 1:
        del options["top_p"]
    if sampling.stop:
        options["stop"] = list(sampling.stop)
    if sampling.json_schema is not None:
        options["response_format"] = chat.response_format(dict(sampling.json_schema))
    return options


def _completion(policy: Policy, response: Any, seconds: float, price: tuple[float, float] | None) -> Completion:
    choice = response.choices[0]
    said, finish = choice.message, str(choice.finish_reason or "stop")
    if finish == "content_filter" or getattr(said, "refusal", None):
        raise Refused(
            f"model {policy.model} declined: {getattr(said, 'refusal', None) or 'its content filter stopped the answer'}"
        )
    calls = tuple(
        chat.call(place, called.id, called.function.name, called.function.arguments)
        for place, called in enumerate(said.tool_calls or ())
    )
    return Completion(
        text=said.content or "",
        calls=calls,
        usage=_usage(policy, response, seconds, price),
        finish="calls" if calls else FINISH.get(finish, "stop"),
        model=str(response.model or ""),
    )


def _usage(policy: Policy, response: Any, seconds: float, price: tuple[float, float] | None) -> Usage:
    used = getattr(response, "usage", None)
    read, written = (getattr(used, f"{which}_tokens", 0) or 0 for which in ("prompt", "completion"))
    if price is not None:
        cost = (read * price[0] + written * price[1]) / 1e6
    else:
        cost = getattr(response, "_hidden_params", {}).get("response_cost")
    if cost is None:
        _unpriced(policy.model)
    return Usage(
        prompt_tokens=read,
        completion_tokens=written,
        cached_tokens=getattr(getattr(used, "prompt_tokens_details", None), "cached_tokens", 0) or 0,
        cost=float(cost or 0.0),
        seconds=seconds,
        calls=1,
    )


@cache
def _unpriced(model: str) -> None:
    log.warning("no price is known for model %s: its calls count as 0 USD, so no cost limit can stop them", model)


def _honest(completion: Completion, sampling: Sampling, declined: set[str]) -> Completion:
    """The completion with the names of all that was asked for and visibly not done; a stop is made up for by cutting."""
    unhonoured = set(declined)
    if not sampling.template:
        unhonoured.add("template")
    if sampling.prefix and not completion.text.startswith(sampling.prefix):
        unhonoured.add("prefix")
    ends = [place for place in map(completion.text.find, sampling.stop) if place >= 0]
    if ends:
        unhonoured.add("stop")
        completion = completion.replace(text=completion.text[: min(ends)], finish="stop")
    if sampling.json_schema is not None and not completion.calls and not _conforms(completion.text, sampling.json_schema):
        unhonoured.add("json_schema")
    if completion.usage.completion_tokens > sampling.max_tokens:
        unhonoured.add("max_tokens")
    return completion.replace(unhonoured=tuple(sorted(unhonoured)))


def _conforms(text: str, schema: Mapping[str, JsonValue]) -> bool:
    try:
        return bool(Draft202012Validator(dict(schema)).is_valid(json.loads(text)))
    except ValueError:
        return False
