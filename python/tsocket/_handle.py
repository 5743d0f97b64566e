# SPDX-License-Identifier: Apache-2.0
"""A consumer's handle of libtsocket, made safe for Python: threads, forks, and memory that outlives whoever asked for it.

A window is one batch that the library has handed out. Everything that lies in its memory keeps a reference to it, and
the window keeps the handle, so that reference counting decides when a batch is released and when the ring is unmapped:

    numpy array, memoryview, tensor --> Array --> Window --> Handle
                                     Batch ---------^

The last reference may die anywhere: in another thread, or in the garbage collector in the middle of a call on this very
handle. So dying never waits for the lock; it leaves the window on a list, and whoever has the lock, or comes next,
works it off.
"""
from __future__ import annotations

import collections
import ctypes
import os
import threading
import weakref
from typing import Deque, Dict, Optional, Tuple

from . import _library
from ._library import EAGAIN, EFORK, ELAPPED, EREFUSED, OK
from .errors import Error, Forked, Invalid, Lost

_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


class Window:
    """A batch of the library's that is held; released when nobody refers to it any more: at once where `stream` is None,
    else behind the work of that stream (see _device.py)."""

    __slots__ = ("batch", "handle", "stream", "_fixed", "_reader", "_unread", "__weakref__")

    def __init__(self, handle: "Handle", batch: _library.Batch, stream: Optional[int] = None, fixed: bool = False) -> None:
        self.batch = batch
        self.handle = handle
        self.stream = stream
        self._fixed = fixed  # the loader's owner has named it
        self._reader: Optional[int] = None  # the stream that a reader has named
        self._unread = False

    def read_on(self, stream: int) -> None:
        """Somebody reads this memory on that stream. Invalid: somebody does on another one."""
        if self._fixed:
            return
        if self._reader not in (None, stream):
            raise Invalid(f"this batch is read on stream {self._reader} already and now on {stream}, and can be released "
                          "behind one of them only; let one wait for the other, and name that one: Loader(..., stream=...)")
        self._reader = self.stream = stream

    def put_back(self) -> None:
        """Unread, by whoever is the only one that refers to it: next gives it again."""
        self.handle.put_back(self.batch)
        self._unread = True

    def __del__(self) -> None:
        if not self._unread:
            self.handle.give_back(self.batch, self.stream)


class Handle:
    """One `struct tsocket`. Any thread may call; one at a time is let through."""

    def __init__(self, name: str, batch_size: int, options: _library.Options) -> None:
        self._library = library = _library.load()
        pointer = ctypes.c_void_p()
        _library.check(library.tsocket_open(name.encode(), batch_size, options, ctypes.byref(pointer)))
        self._next = library.tsocket_next
        self._release = library.tsocket_release
        self._release_after = library.tsocket_release_after
        self._flush = library.tsocket_flush
        self._close = library.tsocket_close
        self._pointer = pointer
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._returned: Deque[Tuple[_library.Batch, Optional[int]]] = collections.deque()  # given back, not released yet
        self._held = 0  # handed out, not released yet
        self.lost = 0  # batches that were written over while they were held
        self._unsaid: Dict[int, Error] = {}  # by the ids of batches, what nobody has been told of their release
        self._closing = False
        self.info = _library.Info()
        _library.check(library.tsocket_describe(pointer, ctypes.byref(self.info)))
        _handles.add(self)

    def next(self, timeout_ms: int, batch: _library.Batch) -> int:
        """tsocket_next. With OK the batch must be given back. Raises Lost, once for each batch that was, and what has gone
        wrong with a release."""
        with self._lock:
            rc = self._take(timeout_ms, batch)
        if self._returned:
            self._work_off()
        return rc

    def look(self, timeout_ms: int, batch: _library.Batch) -> int:
        """The same, but the batch is only described: next gives it."""
        with self._lock:
            rc = self._take(timeout_ms, batch)
            if rc == OK:
                self._put_back(batch)
        if self._returned:
            self._work_off()
        return rc

    def put_back(self, batch: _library.Batch) -> None:
        """tsocket_put_back."""
        with self._lock:
            self._check_open()
            self._put_back(batch)

    def give_back(self, batch: _library.Batch, stream: Optional[int]) -> None:
        """Nobody reads the batch any more, but for what is queued on the stream. Never waits."""
        self._returned.append((batch, stream))
        self._work_off()

    def say(self, number: int) -> None:
        """Raises what came of the release of the batch of that id (Lost), as far as is known, if nobody has been told."""
        error = self._unsaid.pop(number, None)
        if error is not None:
            raise error

    @property
    def unsaid(self) -> int:
        """Batches that were lost without anybody having been told."""
        return sum(isinstance(error, Lost) for error in self._unsaid.values())

    @property
    def held(self) -> int:
        """Batches handed out and not released."""
        return self._held

    @property
    def closed(self) -> bool:
        return self._closing

    def flush(self) -> None:
        """tsocket_flush."""
        with self._lock:
            self._check_open()
            self._release_returned()
            self._flush(self._pointer)

    def pause(self) -> int:
        """tsocket_pause."""
        with self._lock:
            self._check_open()
            self._release_returned()
            return self._library.tsocket_pause(self._pointer)

    def resume(self) -> int:
        """tsocket_resume."""
        with self._lock:
            self._check_open()
            return self._library.tsocket_resume(self._pointer)

    def position(self) -> Tuple[int, int]:
        """tsocket_position: epoch and sample."""
        epoch, first = ctypes.c_uint64(), ctypes.c_uint64()
        with self._lock:
            self._check_open()
            _library.check(self._library.tsocket_position(self._pointer, epoch, first))
        return epoch.value, first.value

    def ended_epoch(self) -> Optional[_library.Epoch]:
        """tsocket_ended_epoch; None before the first."""
        ended = _library.Epoch()
        with self._lock:
            self._check_open()
            rc = self._library.tsocket_ended_epoch(self._pointer, ended)
            if rc == EAGAIN:
                return None
            _library.check(rc)
        return ended

    def token(self, batch: Optional[_library.Batch]) -> Optional[str]:
        """tsocket_token; None where the stream has none."""
        text = ctypes.create_string_buffer(_library.TOKEN_MAX + 1)
        with self._lock:
            self._check_open()
            rc = self._library.tsocket_token(self._pointer, batch, text)
            if rc == EREFUSED:
                return None
            _library.check(rc)
        return text.value.decode()

    def copy(self, batch: _library.Batch, field: int, memory: "ctypes.Array") -> None:
        """tsocket_copy."""
        with self._lock:
            self._check_process()  # one that is closed stays as long as something is held
            _library.check(self._library.tsocket_copy(self._pointer, batch, field, memory))

    def convert_on(self, conversion: _library.Conversion, address: int, images: int, pixels: int, to: int,
                   stream: int) -> None:
        """tsocket_convert_on, of everything."""
        with self._lock:
            self._check_process()  # one that is closed stays as long as something is held
            _library.check(self._library.tsocket_convert_on(self._pointer, conversion, None, address, images, pixels, to, stream))

    def close(self) -> None:
        """Closes now, or as soon as the last batch has been given back: until then its memory must stay as it is."""
        with self._lock:
            self._closing = True
            self._release_returned()
            self._close_if_over()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self._close(self._pointer)

    # --- with the lock held

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise Forked("this loader was opened before a fork and belongs to the parent process; open one in the "
                         "child (with workers that fork, open it in the worker)")

    def _check_open(self) -> None:
        self._check_process()
        if self._closing:
            raise Invalid("this loader is closed")

    def _take(self, timeout_ms: int, batch: _library.Batch) -> int:
        self._check_open()
        if self._returned:
            self._release_returned()
        if self._unsaid:
            raise self._unsaid.pop(next(iter(self._unsaid)))
        rc = self._next(self._pointer, timeout_ms, batch)
        if rc == OK:
            self._held += 1
        return rc

    def _put_back(self, batch: _library.Batch) -> None:
        _library.check(self._library.tsocket_put_back(self._pointer, batch))
        self._held -= 1

    def _release_returned(self) -> None:
        while self._returned:
            self._release_one(*self._returned.popleft())

    def _release_one(self, batch: _library.Batch, stream: Optional[int]) -> None:
        """What the driver refuses stays held, in the library alone, until it is closed: work may still read it."""
        rc = self._release(self._pointer, batch) if stream is None else self._release_after(self._pointer, batch, stream)
        self._held -= 1
        if rc == ELAPPED:
            self.lost += 1
            self._unsaid[batch.id] = Lost(str(_library.error_of(rc)))
        elif rc not in (OK, EFORK):  # of a fork next says so as well
            self._unsaid[batch.id] = _library.error_of(rc)

    def _close_if_over(self) -> None:
        if self._closing and self._held == 0 and self._pointer:
            self._close(self._pointer)
            self._pointer = ctypes.c_void_p()

    # --- without it

    def _work_off(self) -> None:
        # Who finds the lock taken may go: its owner looks here once more after it has let go.
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._release_returned()
                self._close_if_over()
            finally:
                self._lock.release()


def _renew_locks() -> None:
    """In the child of a fork: a thread that is not here may have held them."""
    for handle in list(_handles):
        handle._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)
