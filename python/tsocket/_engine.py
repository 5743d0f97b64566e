# SPDX-License-Identifier: Apache-2.0
"""The producer's side of libtsocket: one daemon of this process, with one stream, whoever makes its samples.

    Engine(...) --> add_stream --> start --> claims or writes --> join or close
"""
from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, Optional

from . import _library
from ._parts import Part

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
        self._lock = threading.Lock()  # close waits for a call that is under way
        options = _library.ProducerOptions()
        self._library.tsocket_producer_options_init(options)
        options.name = name.encode()
        options.wait_for = wait_for
        options.join_grace_ms = round(join_grace * 1000)
        options.max_hold_ms = round(max_hold * 1000)
        options.exit_when_idle = exit_when_idle
        _library.check(self._library.tsocket_producer_open(options, ctypes.byref(self._pointer)))

    def _start(self, parts: Dict[str, Part], options: _library.StreamOptions) -> None:
        """Adds the stream, whose fields are like these, and serves it; closes where that fails."""
        fields = (_library.Field * len(parts))()
        for field, (name, part) in zip(fields, parts.items()):
            field.name = name.encode()
            field.dtype = _library.BY_NAME[part.dtype].number
            field.ndim = len(part.shape)
            field.shape[:len(part.shape)] = part.shape
        options.fields = fields
        options.n_fields = len(fields)
        try:
            _library.check(self._library.tsocket_producer_add_stream(self._pointer, options, None))
            _library.check(self._library.tsocket_producer_start(self._pointer))
        except BaseException:
            self.close()
            raise

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
        """Whether the run has ended; raises what it has failed with."""
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
        nothing: the producer is its parent's."""
        if self._pid != os.getpid():
            return
        with self._lock:
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


def stream_options(stream: str, epochs: Optional[int], epoch_samples: int, max_batch: int, ring: Optional[int],
                   device: str, source: Any) -> _library.StreamOptions:
    """What both kinds of producers say of their stream. `source` is what the status table shows the type of."""
    options = _library.StreamOptions()
    _library.load().tsocket_stream_options_init(options)
    options.name = stream.encode()
    options.epochs = epochs or 0
    options.epoch_samples = epoch_samples
    options.max_batch = max_batch
    options.capacity = ring or 8 * max_batch
    options.on_bad = _library.ON_BAD["fail"]
    options.device = device.encode()
    options.source = f"{type(source).__module__}.{type(source).__qualname__}".encode()
    return options


def default_max_batch(parts: Dict[str, Part], at_least: int) -> int:
    sample_bytes = max(1, sum(part.sample_bytes for part in parts.values()))
    return max(at_least, min(SMALL_BATCH, LARGE_BYTES // sample_bytes))
