"""The engine: token ids in, token ids and log-probs out, continuously batched in one worker thread; it knows no text.

A sequence joins the batch as soon as there is a slot and leaves it with its last token. A slot that has finished keeps its
keys and values, so that a prompt which continues it, as the next turn of an episode does, computes only what is new.
"""

import queue
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from harness.errors import ContextOverflow, ModelUnavailable, UsageError
from harness.models.local.load import Weights
from harness.models.local.lora import Lora, Route, routed
from harness.models.local.memory import Row, Shape, Slots, StepPass, Trunk, TrunkPass, Trunks
from harness.models.local.sample import choose, logprobs

CHUNK: Final = 32
"""Tokens of a waiting prompt that one step takes in, beside the sequences that are being decoded."""


@dataclass(frozen=True)
class Request:
    """`shared` leading ids of the prompt are a prefix that other prompts have too: computed once, and kept."""

    prompt: tuple[int, ...]
    shared: int = 0
    lora: Lora | None = None
    """What is added to the weights for this request alone."""
    max_new: int = 0
    """Tokens to write after the prompt; 0: only score."""
    ends: Callable[[Sequence[int]], bool] = lambda new: False
    """Whether the output is complete after these new ids."""
    scored: int = 0
    """Trailing ids of the prompt whose log-probs are wanted."""
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Output:
    ids: tuple[int, ...]
    """The scored ids of the prompt, then the new ones."""
    logprobs: tuple[float, ...]
    """Under the model at temperature 1, one an id."""
    ended: bool
    """False: `max_new` came first."""
    cached: int
    """Prompt ids that were not computed for this request."""


Key = tuple[str, tuple[int, ...]]
"""Digest of the adapter, and the ids of the trunk: what keys and values were computed from."""


@dataclass(eq=False)
class _Sequence:
    request: Request
    future: "Future[Output]"
    trunk: Trunk
    key: Key
    ids: list[int]
    """Everything after the trunk: prompt, then output."""
    given: int
    """How many of them are the prompt's."""
    slot: int
    held: int
    cached: int
    uniform: random.Random
    new: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Engine:
    def __init__(self, weights: Weights, *, tokens: int = 32_768, slots: int = 64) -> None:
        """`tokens` bounds what all slots hold together (about 46 kB each for the embedded model)."""
        config = weights.model.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = config.num_key_value_heads
        self._model, self._head = weights.model.model, weights.model.lm_head
        self._route: Route | None = None
        """None until the first request with an adapter."""
        self._shape = Shape(config.num_hidden_layers, heads, config.num_attention_heads // heads, width)
        self._tokens, self._most, self._least = tokens, slots, tokens // slots
        self._slots = Slots(self._shape, slots, self._least)
        self._trunks = Trunks(self._shape)
        self._idle: dict[int, tuple[Key, list[int]]] = dict.fromkeys(range(slots), (("", ()), []))
        """Free slots, least recently used first, with the trunk and the own ids that they still hold."""
        self.context = int(config.max_position_embeddings)
        self.forwarded = 0
        """Tokens that went through the model since the start."""
        self._asked: queue.SimpleQueue[tuple[Request, Future[Output]] | None] = queue.SimpleQueue()
        self._door, self._closed = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name="assay-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> "Future[Output]":
        """Queue a request; cancelling the future frees its slot. Raises ContextOverflow when it can never fit."""
        given, most = len(request.prompt), min(self.context, self._tokens)
        if given <= request.scored:
            raise UsageError(f"{given} prompt ids, {request.scored} of them scored: at least one must come before those")
        if given + request.max_new > most:
            raise ContextOverflow(f"the prompt has {given} tokens and may write {request.max_new}; the model holds {most}")
        # The id before the first wanted log-prob is computed with the sequence itself.
        request = replace(request, shared=min(request.shared, given - request.scored - 1))
        future: Future[Output] = Future()
        with self._door:
            if self._closed:
                raise ModelUnavailable("the local model was closed")
            self._asked.put((request, future))
        return future

    def close(self) -> None:
        """Finish what is under way and end the worker."""
        with self._door:
            if not self._closed:
                self._closed = True
                self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        waiting: list[tuple[Request, Future[Output]]] = []
        running: list[_Sequence] = []
        open_ = True
        while open_ or waiting or running:
            open_ = self._collect(waiting, block=not waiting and not running) and open_
            try:
                with torch.inference_mode():
                    self._admit(waiting, running)
                    running = self._step(running)
            except Exception as error:
                for future in [f for _, f in waiting] + [s.future for s in running]:
                    if not future.done() and future.set_running_or_notify_cancel():
                        future.set_exception(ModelUnavailable(f"the local model failed: {error}"))
                waiting, running = [], []
                # A trunk that was not filled to its end must never be found again.
                self._trunks = Trunks(self._shape)
                self._resize(self._slots.span)

    def _collect(self, waiting: list[tuple[Request, "Future[Output]"]], *, block: bool) -> bool:
        """Take in what was asked; False once the engine is to close."""
        while True:
            try:
                asked = self._asked.get(block=block)
            except queue.Empty:
                return True
            if asked is None:
                return False
            waiting.append(asked)
            block = False

    def _admit(self, waiting: list[tuple[Request, "Future[Output]"]], running: list[_Sequence]) -> None:
        """Begin what waits, in order, as long as there are slots; their span changes only between sequences."""
        if not running and len(waiting) > len(self._idle) and self._slots.span > self._least:
            self._resize(max(self._least, *(len(r.prompt) - r.shared + r.max_new for r, _ in waiting)))
        while waiting and self._idle:
            request, future = waiting[0]
            own = len(request.prompt) - request.shared + request.max_new
            if own > self._slots.span:
                if running:
                    return
                self._resize(own)
            if not future.cancelled():
                running.append(self._begun(request, future))
            waiting.pop(0)

    def _begun(self, request: Request, future: "Future[Output]") -> _Sequence:
        lora = request.lora
        if lora is not None and self._route is None:
            self._route = routed(self._model)
        first, own = request.prompt[: request.shared], list(request.prompt[request.shared :])
        key = (lora.digest if lora else "", first)
        trunk = self._trunks.get(key)
        computed = trunk is None
        if trunk is None:
            trunk = self._trunks.new(key, len(first))
            if first:
                places = list(range(len(first)))
                self._forward(list(first), places, TrunkPass(trunk), [], [(lora, places)] if lora else [])
        slot, held = self._best_slot(key, own, len(own) - request.scored - 1)
        cached = held + (0 if computed else len(first))
        return _Sequence(request, future, trunk, key, own, len(own), slot, held, cached, random.Random(request.seed))

    def _best_slot(self, key: Key, own: list[int], usable: int) -> tuple[int, int]:
        """A free slot and how many of the ids it holds already; of what it holds beyond them, less than that is lost."""
        best, most = next(iter(self._idle)), 0
        for slot, (trunk, ids) in self._idle.items():
            if trunk == key:
                common = next((i for i, (a, b) in enumerate(zip(ids, own, strict=False)) if a != b), min(len(ids), len(own)))
                if min(common, usable) > most and 2 * common > len(ids):
                    best, most = slot, min(common, usable)
        del self._idle[best]
        return best, most

    def _step(self, running: list[_Sequence]) -> list[_Sequence]:
        """One forward pass for every sequence; those that are not finished are returned."""
        gone = [s for s in running if s.future.cancelled()]
        for sequence in gone:
            self._release(sequence)
        running = [s for s in running if s not in gone]
        if not running:
            return []
        ids: list[int] = []
        places: list[int] = []
        rows: list[Row] = []
        wanted: list[int] = []
        targets: list[tuple[_Sequence, int | None]] = []
        adapted: dict[Lora, list[int]] = {}
        for sequence in running:
            start, stop = sequence.held, min(sequence.held + CHUNK, len(sequence.ids))
            first = len(ids)
            rows.append(Row(sequence.slot, start, stop - start, sequence.trunk))
            ids += sequence.ids[start:stop]
            if sequence.request.lora is not None:
                adapted.setdefault(sequence.request.lora, []).extend(range(first, len(ids)))
            places += range(sequence.trunk.tokens + start, sequence.trunk.tokens + stop)
            sequence.held = stop
            for follows in range(max(start + 1, sequence.given - sequence.request.scored), min(stop + 1, sequence.given)):
                wanted.append(first + follows - 1 - start)
                targets.append((sequence, sequence.ids[follows]))
            if stop == len(sequence.ids) and sequence.request.max_new:
                wanted.append(len(ids) - 1)
                targets.append((sequence, None))
        logits = self._forward(ids, places, StepPass(self._slots, rows), wanted, list(adapted.items()))
        if logits is not None:
            self._take(logits, targets)
        finished = [s for s in running if self._finished(s)]
        for sequence in finished:
            self._release(sequence)
            self._answer(sequence)
        return [s for s in running if s not in finished]

    def _forward(
        self,
        ids: list[int],
        places: list[int],
        plan: StepPass | TrunkPass,
        wanted: list[int],
        adapted: list[tuple[Lora, list[int]]],
    ) -> torch.Tensor | None:
        """Logits, [wanted, vocabulary], of the packed places that are wanted; `adapted` says which tokens have which adapter."""
        self.forwarded += len(ids)
        if self._route is not None:
            self._route.now = [(lora, torch.tensor(theirs)) for lora, theirs in adapted]
        packed = {"input_ids": torch.tensor([ids]), "position_ids": torch.tensor([places])}
        hidden = self._model(**packed, use_cache=False, plan=plan).last_hidden_state[0]
        logits: torch.Tensor | None = self._head(hidden[wanted]).float() if wanted else None
        return logits

    def _take(self, logits: torch.Tensor, targets: list[tuple[_Sequence, int | None]]) -> None:
        """Give each row of logits to its sequence: a drawn token, or the log-prob of the one that follows."""
        writing = [i for i, (_, target) in enumerate(targets) if target is None]
        asked = [targets[i][0] for i in writing]
        drawn = dict(
            zip(
                writing,
                choose(
                    logits[writing], [s.request.temperature for s in asked], [s.request.top_p for s in asked],
                    [s.uniform.random() for s in asked],
                ) if writing else [],
                strict=True,
            )
        )  # fmt: skip
        tokens = [drawn[i] if target is None else target for i, (_, target) in enumerate(targets)]
        for (sequence, target), token, value in zip(targets, tokens, logprobs(logits, tokens), strict=True):
            sequence.logprobs.append(value)
            if target is None:
                sequence.new.append(token)
                sequence.ids.append(token)

    def _finished(self, sequence: _Sequence) -> bool:
        request = sequence.request
        if not request.max_new:
            return sequence.held == len(sequence.ids)
        return bool(sequence.new) and (len(sequence.new) >= request.max_new or request.ends(sequence.new))

    def _answer(self, sequence: _Sequence) -> None:
        request = sequence.request
        ids = sequence.ids[sequence.given - request.scored :]
        ended = bool(request.max_new) and request.ends(sequence.new)
        if sequence.future.set_running_or_notify_cancel():
            sequence.future.set_result(Output(tuple(ids), tuple(sequence.logprobs), ended, sequence.cached))

    def _release(self, sequence: _Sequence) -> None:
        """Give the slot back with what it holds; the last new token was never computed."""
        self._idle[sequence.slot] = (sequence.key, sequence.ids[: sequence.held])

    def _resize(self, span: int) -> None:
        """New slots of at least `span` tokens, and as many as the memory allows; what the old ones held is gone."""
        size = self._least
        while size < span:
            size *= 2
        slots = max(1, min(self._most, self._tokens // size))
        self._slots = Slots(self._shape, slots, min(size, self._tokens))
        self._idle = dict.fromkeys(range(slots), (("", ()), []))
