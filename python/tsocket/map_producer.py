# SPDX-License-Identifier: Apache-2.0
"""A map-style dataset as the source: any sample of any epoch can be made again, at any time.

    dataset = torchvision.datasets.ImageFolder("/data/train", transform=...)
    tsocket.MapProducer(dataset, "main", epochs=90, threads=8).serve()

What a Producer, whose loader goes one way, cannot offer, this one does, as tsocketd: loaders that come late get whole
epochs, can pause, are parked and come back, resume with tokens, on this run or the next.
"""
from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import random
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _library
from ._engine import SLICE_MS, Engine, check_whole, default_max_batch, stream_options
from ._parts import Part, parts_of
from .errors import Error, Invalid

Order = Union[str, Callable[[int], Sequence[int]]]

EPOCHS_KEPT = 4  # orders in memory: the group's epoch, the next one, and those of who is behind
FIRST_TRIES = 1000  # bad samples at the very beginning: with more, something else is wrong
INDEX = "index"
KIND = b"exception"  # of bad samples; kept by the library by its address


class MapProducer(Engine):
    """Serves dataset[i], len(dataset) samples an epoch, as the daemon `name`, stream `stream`, with the number i as the
    field "index". A sample is a tuple or dict of arrays, tensors, pictures or numbers, each time of the same shapes.

    order        "shuffle", anew for each epoch by `seed`; "sequential"; or a function of the epoch that gives a sequence
                 of indices, always the same one for an epoch, of the same length for all
    seed         of "shuffle"
    make         make(epoch, i) in place of dataset[i], for augmentations that are to differ between epochs
    identity     stands for the data and for what is done with it: a name and a version. Tokens of other ones are refused
    threads      that make samples; dataset and make are called in all of them at once
    on_bad       "fail": an exception of dataset[i] ends the run; "skip": the sample is left out, counted and logged
    side_rings   rings for loaders that are behind the group, each of four of the largest batches

    The others are Producer's. Whatever is random in a sample must be a function of epoch and index, for it may be made
    more than once, in any thread, and must be the same each time: this cannot be checked here.
    """

    def __init__(self, dataset: Any, name: str = "main", *, stream: str = "train", fields: Optional[Sequence[str]] = None,
                 order: Order = "shuffle", seed: int = 0, make: Optional[Callable[[int, int], Any]] = None,
                 identity: Optional[str] = None, threads: int = 4, on_bad: str = "fail", epochs: Optional[int] = None,
                 max_batch: Optional[int] = None, ring: Optional[int] = None, side_rings: int = 2, wait_for: int = 0,
                 join_grace: float = 5.0, max_hold: float = 30.0, exit_when_idle: bool = False,
                 device: str = "host") -> None:
        if on_bad not in _library.ON_BAD:
            raise Invalid(f"on_bad is {on_bad!r}; it must be one of {', '.join(_library.ON_BAD)}")
        self._make = make or (lambda epoch, index: dataset[index])
        self._names = fields
        check_whole("seed", seed, 0, 64)  # as tokens have it
        self._order = _Order(order, seed, len(dataset))
        self._skips = on_bad == "skip"
        check_whole("threads", threads, 1)
        self._n_threads = threads
        self._threads: List[threading.Thread] = []  # made by serve(): until then nothing but its user keeps this object
        self._closing = False
        self._error: Optional[BaseException] = None
        first = self._order.of(0)
        if len(first) == 0:
            raise Invalid("the dataset is empty")
        self._like = self._first_sample(first)
        options = stream_options(self._like, stream, epochs, len(first),
                                 default_max_batch(self._like, 1) if max_batch is None else max_batch, ring, device, dataset)
        options.on_bad = _library.ON_BAD[on_bad]
        check_whole("side_rings", side_rings, 0)
        options.side_rings = side_rings
        options.seed = seed
        options.dataset_id = _digest(identity or f"{type(dataset).__module__}.{type(dataset).__qualname__}", len(first))
        options.recipe_id = _digest(order if isinstance(order, str) else "custom", *self._like.items())
        super().__init__(name, wait_for, join_grace, max_hold, exit_when_idle)
        self._start(options)

    def serve(self) -> None:
        """Serves all epochs and returns when they have been read, or when somebody asks it to stop (tsocketctl stop).
        An error of the dataset ends the run for the loaders as well, and is raised here."""
        with self._lock:
            if not self._closing and not self._threads:
                for i in range(self._n_threads):
                    thread = threading.Thread(target=self._fill, name=f"tsocket-{i}", daemon=True)  # close() joins it
                    thread.start()
                    self._threads.append(thread)
        try:
            self.join()
        except Error:
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """As Producer.close; waits for the samples that are being made."""
        if self._pid == os.getpid():
            with self._lock:
                self._closing = True
                if self._pointer:
                    self._library.tsocket_producer_stop(self._pointer)
            for thread in self._threads:
                thread.join()
        super().close()

    # --- in each thread

    def _fill(self) -> None:
        claim = _library.Claim()
        try:
            while True:
                rc = self._library.tsocket_producer_claim(self._pointer, SLICE_MS, claim)
                if rc == _library.END:
                    return
                if rc == _library.OK:
                    self._answer(claim)
                elif rc != _library.EAGAIN:
                    raise _library.error_of(rc)
        except BaseException as error:
            self._error = self._error or error
            self._fail(f"{type(error).__name__}: {error}")

    def _answer(self, claim: _library.Claim) -> None:
        index = int(self._order.of(claim.epoch)[claim.ordinal])
        try:
            sample = self._sample(claim.epoch, index)
            self._check(sample)
        except Exception as error:
            why = f"sample {index}: {type(error).__name__}: {error}"
            self._library.tsocket_producer_reject(self._pointer, claim, KIND, why.encode())
            if self._skips:
                return
            raise
        for to, part in zip(claim.data, sample.values()):
            ctypes.memmove(to, part.address, part.sample_bytes)
        self._library.tsocket_producer_commit(self._pointer, claim)

    def _first_sample(self, order: Sequence[int]) -> Dict[str, Part]:
        """The first of the order that can be made, as the others must be."""
        first_error: Optional[Exception] = None
        tried = [int(order[i]) for i in range(min(len(order), FIRST_TRIES))]
        for index in tried:
            try:
                return self._sample(0, index)
            except Exception as error:
                if not self._skips:
                    raise
                first_error = first_error or error
        raise Invalid(f"none of the first {len(tried)} samples can be made, so that their shapes are not known; sample "
                      f"{tried[0]}: {type(first_error).__name__}: {first_error}") from first_error

    def _sample(self, epoch: int, index: int) -> Dict[str, Part]:
        """Its fields, each as a batch of one."""
        sample = self._make(epoch, index)
        if isinstance(sample, Mapping):
            batch: Any = {name: _one(value) for name, value in sample.items()}
        else:
            batch = tuple(map(_one, sample if isinstance(sample, (tuple, list)) else (sample,)))
        parts = parts_of(batch, self._names)
        if INDEX in parts:
            raise Invalid(f"a field {INDEX} is there already: the number of the sample, which a MapProducer adds; call the "
                          "dataset's own another name, or leave it out with fields=")
        return {**parts, **parts_of({INDEX: _one(index)}, None)}

    def _check(self, sample: Dict[str, Part]) -> None:
        if list(sample) != list(self._like):
            raise Invalid(f"the fields are {', '.join(sample)}, and were {', '.join(self._like)} in the first sample")
        for (name, first), part in zip(self._like.items(), sample.values()):
            if (part.dtype, part.shape) != (first.dtype, first.shape):
                raise Invalid(f"field {name} is {part.dtype} {list(part.shape)}, and was {first.dtype} {list(first.shape)} "
                              "in the first sample; samples of different shapes must be padded")


class _Order:
    """The indices of each epoch. Any thread."""

    def __init__(self, order: Order, seed: int, samples: int) -> None:
        if isinstance(order, str) and order not in ("shuffle", "sequential"):
            raise Invalid(f"order is {order!r}; it must be \"shuffle\", \"sequential\" or a function of the epoch")
        self._order = order
        self._seed = seed
        self._samples = samples
        self._length: Optional[int] = None
        self._lock = threading.Lock()
        self._kept = functools.lru_cache(maxsize=EPOCHS_KEPT)(self._make)

    def of(self, epoch: int) -> Sequence[int]:
        with self._lock:
            return self._kept(epoch)

    def _make(self, epoch: int) -> Sequence[int]:
        if callable(self._order):
            made = self._order(epoch)
            if self._length not in (None, len(made)):
                raise Invalid(f"order({epoch}) has {len(made)} indices, and that of another epoch {self._length}")
            self._length = len(made)
            return made
        if self._order == "sequential":
            return range(self._samples)
        shuffled: List[int] = list(range(self._samples))
        random.Random(f"{self._seed} {epoch}").shuffle(shuffled)
        return shuffled


def _one(value: Any) -> Any:
    """A batch of this one: a tensor, an array, a picture, a number."""
    if hasattr(value, "unsqueeze"):
        return value.unsqueeze(0)
    import numpy

    return numpy.asarray(value)[None]


def _digest(*what: Any) -> bytes:
    """16 hexadecimal digits that stand for it."""
    text = "\n".join(f"{w[0]} {w[1].dtype} {w[1].shape}" if isinstance(w, tuple) else str(w) for w in what)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest().encode()
