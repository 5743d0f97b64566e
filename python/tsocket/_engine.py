# SPDX-License-Identifier: Apache-2.0
"""The producer's side of libtsocket: one daemon of this process, with one stream, whoever makes its samples.

    Engine(...) --> add_stream --> start --> claims or writes --> join or close
"""
from __future__ import annotations

import atexit
import ctypes
import operator
import os
import threading
import weakref
from typing import Any, Dict, Optional

from . import _library
from ._parts import Part
from .errors import Invalid

SLICE_MS = 100  # the longest wait in one piece, so that signals are seen
LARGE_BYTES = 64 << 20  # what the default of max_batch may take
SMALL_BATCH = 64


class Engine:
    """One `struct tsocket_producer`. In a forked child it does nothing: it is its parent's."""

    def __init__(self, name: str, wait_for: int, join_grace: float, max_hold: float, exit_when_idle: bool) -> None:
        self.name = name
        self._library = _library.load()
        self._pointer = ctypes.c_void_p()
        self._pid = os.getpid()
        self._lock = threading.RLock()  # close waits for a call that is under way
        check_whole("wait_for", wait_for, 0)
        check_seconds("join_grace", join_grace)
        check_seconds("max_hold", max_hold)
        options = _library.ProducerOptions()
        self._library.tsocket_producer_options_init(options)
        options.name = name.encode()
        options.wait_for = wait_for
        options.join_grace_ms = round(join_grace * 1000)
        options.max_hold_ms = round(max_hold * 1000)
        options.exit_when_idle = exit_when_idle
        _library.check(self._library.tsocket_producer_open(options, ctypes.byref(self._pointer)))

    def _start(self, options: _library.StreamOptions) -> None:
        """Adds the stream and serves it; closes where that fails."""
        try:
            _library.check(self._library.tsocket_producer_add_stream(self._pointer, options, None))
            _library.check(self._library.tsocket_producer_start(self._pointer))
        except BaseException:
            self.close()
            raise
        _running.add(self)

    def serve(self) -> None:
        """Serves all epochs and returns when they have been read."""
        raise NotImplementedError

    def join(self) -> None:
        """Waits until all has been read, or until somebody asks it to stop, and closes."""
        try:
            while not self._wait(SLICE_MS):
                pass
        finally:
            self.close()

    def _wait(self, timeout_ms: int) -> bool:
        """Whether the run has ended, as it has for a forked child, which may have got the lock locked; raises what it has
        failed with."""
        if self._pid != os.getpid():
            return True
        with self._lock:
            if not self._pointer:
                return True
            rc = self._library.tsocket_producer_wait(self._pointer, timeout_ms)
        if rc not in (_library.EAGAIN, _library.EINTR, _library.END):
            raise _library.error_of(rc)
        return rc == _library.END

    def _fail(self, why: str) -> None:
        """Ends the run for the consumers, which learn that it has failed as soon as they have read what is ready."""
        if self._pointer:
            self._library.tsocket_producer_fail(self._pointer, 0, why.encode())

    def close(self) -> None:
        """Gives the name back; consumers that have not read everything are told that it is gone. In a forked child it does
        nothing: the producer is its parent's. In a signal's handler that has come into a call, it stops the run, so that
        serve() or join() returns and closes."""
        if self._pid != os.getpid():
            return
        in_a_call = self._lock._is_owned()  # type: ignore[attr-defined]
        with self._lock:
            if in_a_call:
                if self._pointer:
                    self._library.tsocket_producer_stop(self._pointer)
                return
            pointer, self._pointer = self._pointer, ctypes.c_void_p()
            if pointer:
                self._library.tsocket_producer_close(pointer)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()


_running: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Daemon threads may still be serving: they are stopped while there is an interpreter for them to stop in."""
    for engine in list(_running):
        engine.close()


def stream_options(parts: Dict[str, Part], stream: str, epochs: Optional[int], epoch_samples: int, max_batch: int,
                   ring: Optional[int], device: str, source: Any) -> _library.StreamOptions:
    """What both kinds of producers say of their stream, whose fields are like `parts`; Invalid, before anything is open,
    where that cannot be. `source` is what the status table shows the type of."""
    check_whole("epochs", epochs or 0, 0, 64)
    check_whole("epoch_samples", epoch_samples, 0, 64)
    check_whole("max_batch", max_batch, 1)
    check_whole("ring", 8 * max_batch if ring is None else ring, 1, 64)
    options = _library.StreamOptions()
    _library.load().tsocket_stream_options_init(options)
    options.name = stream.encode()
    options.epochs = epochs or 0
    options.epoch_samples = epoch_samples
    options.max_batch = max_batch
    options.capacity = 8 * max_batch if ring is None else ring
    options.on_bad = _library.ON_BAD["fail"]
    options.device = device.encode()
    options.source = f"{type(source).__module__}.{type(source).__qualname__}".encode()
    options.fields = _fields(parts)
    options.n_fields = len(parts)
    return options


def _fields(parts: Dict[str, Part]) -> Any:
    if len(parts) > _library.FIELDS_MAX:
        raise Invalid(f"a sample has {len(parts)} fields, and may have {_library.FIELDS_MAX}; choose with fields=, or put "
                      "some together")
    fields = (_library.Field * len(parts))()
    for field, (name, part) in zip(fields, parts.items()):
        if len(name.encode()) > _library.NAME_MAX:
            raise Invalid(f"the name of field {name:.20}... is longer than {_library.NAME_MAX} bytes")
        if len(part.shape) > _library.NDIM_MAX:
            raise Invalid(f"field {name} has {len(part.shape)} dimensions in each sample, {list(part.shape)}, and may have "
                          f"{_library.NDIM_MAX}; reshape it")
        field.name = name.encode()
        field.dtype = _library.BY_NAME[part.dtype].number
        field.ndim = len(part.shape)
        field.shape[:len(part.shape)] = part.shape
    return fields


def check_whole(what: str, value: Any, least: int, bits: int = 32) -> None:
    try:
        possible = least <= operator.index(value) < 1 << bits
    except TypeError:
        possible = False
    if not possible:
        raise Invalid(f"{what} is {value!r}; it must be a whole number from {least} on, below 2**{bits}")


def check_seconds(what: str, value: float) -> None:
    if not 0 <= value * 1000 < 1 << 32:
        raise Invalid(f"{what} is {value!r}; it must be seconds from 0 on, below {(1 << 32) // 1000}")


def default_max_batch(parts: Dict[str, Part], at_least: int) -> int:
    sample_bytes = max(1, sum(part.sample_bytes for part in parts.values()))
    return max(at_least, min(SMALL_BATCH, LARGE_BYTES // sample_bytes))
