# SPDX-License-Identifier: Apache-2.0
"""A consumer's handle of libtsocket, made safe for Python: threads, forks, signals, and memory that outlives whoever
asked for it.

A window is one batch that the library has handed out. Everything that lies in its memory keeps a reference to it, and
the window keeps the attachment, so that reference counting decides when a batch is released and when the ring is
unmapped:

    numpy array, memoryview, tensor --> Array --> Window --> _Attachment <-- Handle, until it is closed
                                     Batch ---------^

The last reference to a window may die anywhere: in another thread, in the garbage collector in the middle of a call on
this very handle, or in the main thread just when Ctrl-C arrives, whose KeyboardInterrupt a finalizer would swallow. So
a window's death runs no code at all. The handle has a list of holds, and whoever comes next (next, flush, held, release,
pause, close) releases those whose window is gone.

KeyboardInterrupt may be raised between any two steps, but not within a call of C code. Where the library's answer must
not be lost on its way, `list.extend(map(call, ...))` makes the call and stores the answer in one step; what has been
stored is looked at again by whoever comes next. A signal's handler may call, too, such as one that saves a checkpoint:
below any call of its own thread, so that each call keeps the attachment that it uses.
"""
from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from typing import Callable, Dict, List, NoReturn, Optional, Tuple

from . import _library
from ._library import EAGAIN, EFORK, ELAPPED, EREFUSED, OK
from .errors import Error, Forked, Invalid, Lost

_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


def not_copied(*_: object) -> NoReturn:
    """__reduce_ex__ of what lies in the ring."""
    raise TypeError("this lies in the ring that the loader of this process reads: it cannot be copied or pickled; copy its "
                    "numbers, with numpy.array(...) or clone()")


class Hold:
    """What a handle knows of a window: it is asked for, then live, then free."""

    __slots__ = ("batch", "answer", "freed", "stream", "window")

    def __init__(self, window: "Window", stream: Optional[int]) -> None:
        self.batch = _library.Batch()
        self.answer: List[int] = []  # of tsocket_next, until it has been dealt with
        self.freed: List[int] = []  # what came of giving it back
        self.stream = stream
        self.window: Callable[[], Optional[Window]] = weakref.ref(window)

    @property
    def live(self) -> bool:
        return self.answer == [OK] and not self.freed

    def release(self, library: ctypes.CDLL, pointer: int) -> None:
        if self.live:
            call = library.tsocket_release if self.stream is None else library.tsocket_release_after
            streams = () if self.stream is None else ((self.stream,),)
            self.freed.extend(map(call, (pointer,), (self.batch,), *streams))


def _nobody() -> None:
    return None


class Window:
    """A batch of the library's, or room for the one that is asked for; released when nobody refers to it any more: at
    once where `stream` is None, else behind the work of that stream (see _device.py)."""

    __slots__ = ("handle", "hold", "attachment", "_fixed", "_reader", "__weakref__")

    def __init__(self, handle: "Handle", attachment: "_Attachment", stream: Optional[int], fixed: bool) -> None:
        self.handle = handle
        self.attachment = attachment
        self.hold = Hold(self, stream)
        self._fixed = fixed  # the loader's owner has named it
        self._reader: Optional[int] = None  # the stream that a reader has named

    @property
    def batch(self) -> _library.Batch:
        return self.hold.batch

    def abandon(self) -> None:
        """Nobody was given it: whoever refers to it still, such as the frames of an exception, does not read it."""
        self.hold.window = _nobody

    def check(self) -> "Window":
        """Itself. Invalid: a finalizer has brought it back to life after the collector had given it up."""
        if self.hold.freed:
            raise Invalid("this batch has been released: it was part of a cycle of garbage, which a finalizer has kept")
        return self

    def read_on(self, stream: int) -> None:
        """Somebody reads this memory on that stream. Invalid: somebody does on another one."""
        if self._fixed:
            return
        if self._reader not in (None, stream):
            raise Invalid(f"this batch is read on stream {self._reader} already and now on {stream}, and can be released "
                          "behind one of them only; let one wait for the other, and name that one: Loader(..., stream=...)")
        self._reader = self.hold.stream = stream

    __reduce_ex__ = not_copied


class _Attached:
    """What is to be done when an attachment is over."""

    def __init__(self, library: ctypes.CDLL, pointer: int, holds: Dict[Hold, None]) -> None:
        self.library = library
        self.pointer = pointer
        self.holds = holds

    def end(self) -> None:
        for hold in self.holds:
            hold.release(self.library, self.pointer)  # behind its stream: close waits for that
        self.library.tsocket_close(self.pointer)


_attached: Dict[int, _Attached] = {}
_serial = itertools.count()


class _Attachment(int):
    """The key of an _Attached, which ends when this dies, if it has not before.

    A number without attributes, which the collector of cycles does not look at: in a cycle that is garbage it dies after
    everybody else's finalizers, which may still read the memory.
    """

    __slots__ = ()

    def end(self, attached: Dict[int, _Attached] = _attached) -> None:  # at the exit the module's names may be gone
        what = attached.pop(int(self), None)
        if what is not None:
            what.end()

    __del__ = end


class Handle:
    """One `struct tsocket`. Any thread may call; one at a time is let through, and a signal's handler below its own."""

    def __init__(self, name: str, batch_size: int, options: _library.Options) -> None:
        self._library = library = _library.load()
        self._next = library.tsocket_next
        self._holds: Dict[Hold, None] = {}  # asked for, or not released yet, in this order
        pointer = ctypes.c_void_p()
        _library.check(library.tsocket_open(name.encode(), batch_size, options, ctypes.byref(pointer)))
        self._pointer: int = pointer.value or 0
        self._attachment: Optional[_Attachment] = _Attachment(next(_serial))  # None: closed
        _attached[int(self._attachment)] = _Attached(library, self._pointer, self._holds)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self.lost = 0  # batches that were written over while they were held
        self._unsaid: Dict[int, Error] = {}  # by the ids of batches, what nobody has been told of their release
        self.info = _library.Info()
        _library.check(library.tsocket_describe(self._pointer, ctypes.byref(self.info)))
        _handles.add(self)

    def window(self, stream: Optional[int] = None, fixed: bool = False) -> Window:
        """Room for a batch, for next."""
        with self._lock:
            window = Window(self, self._opened(), stream, fixed)
            self._holds[window.hold] = None
        return window

    def next(self, timeout_ms: int, window: Window) -> int:
        """tsocket_next into a window that has no answer yet; the answer stays in its hold. Raises Lost, once for each batch
        that was, and what has gone wrong with a release."""
        with self._lock:
            _kept = self._opened()
            self._release_dropped()
            if self._unsaid:
                raise self._unsaid.pop(next(iter(self._unsaid)))
            window.hold.answer.extend(map(self._next, (self._pointer,), (timeout_ms,), (window.hold.batch,)))
        return window.hold.answer[0]

    def put_back(self, window: Window) -> bool:
        """tsocket_put_back. False: another thread was given a later one meanwhile, and this one stays."""
        hold = window.hold
        with self._lock:
            _kept = self._opened()
            answers = map(self._library.tsocket_put_back, (self._pointer,), (hold.batch,))
            hold.freed.extend(filter(OK.__eq__, answers))
        return bool(hold.freed)

    def release_dropped(self) -> None:
        """Releases what nobody refers to any more; who finds another thread's call under way leaves it to the next one."""
        if self._lock.acquire(blocking=False):
            try:
                _kept = self._attachment
                if _kept is not None:
                    self._release_dropped()
            finally:
                self._lock.release()

    def say(self, number: int) -> None:
        """Raises what came of the release of the batch of that id (Lost), as far as is known, if nobody has been told."""
        self.release_dropped()
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
        self.release_dropped()
        return sum(hold.live and hold.window() is not None for hold in list(self._holds))

    @property
    def closed(self) -> bool:
        return self._attachment is None

    def flush(self) -> None:
        """tsocket_flush."""
        with self._lock:
            _kept = self._opened()
            self._release_dropped()
            self._library.tsocket_flush(self._pointer)

    def pause(self) -> int:
        """tsocket_pause."""
        with self._lock:
            _kept = self._opened()
            self._release_dropped()
            return self._library.tsocket_pause(self._pointer)

    def resume(self) -> int:
        """tsocket_resume."""
        with self._lock:
            _kept = self._opened()
            return self._library.tsocket_resume(self._pointer)

    def position(self) -> Tuple[int, int]:
        """tsocket_position: epoch and sample."""
        epoch, first = ctypes.c_uint64(), ctypes.c_uint64()
        with self._lock:
            _kept = self._opened()
            _library.check(self._library.tsocket_position(self._pointer, epoch, first))
        return epoch.value, first.value

    def ended_epoch(self) -> Optional[_library.Epoch]:
        """tsocket_ended_epoch; None before the first."""
        ended = _library.Epoch()
        with self._lock:
            _kept = self._opened()
            rc = self._library.tsocket_ended_epoch(self._pointer, ended)
            if rc == EAGAIN:
                return None
            _library.check(rc)
        return ended

    def token(self, batch: Optional[_library.Batch]) -> Optional[str]:
        """tsocket_token; None where the stream has none."""
        text = ctypes.create_string_buffer(_library.TOKEN_MAX + 1)
        with self._lock:
            _kept = self._opened()
            rc = self._library.tsocket_token(self._pointer, batch, text)
            if rc == EREFUSED:
                return None
            _library.check(rc)
        return text.value.decode()

    def copy(self, window: Window, field: int, memory: "ctypes.Array") -> None:
        """tsocket_copy. With a handle that is closed, too: the window keeps the attachment."""
        with self._lock:
            self._check_process()
            _library.check(self._library.tsocket_copy(self._pointer, window.batch, field, memory))

    def convert_on(self, window: Window, conversion: _library.Conversion, address: int, images: int, pixels: int, to: int,
                   stream: int) -> None:
        """tsocket_convert_on, of everything. With a handle that is closed, too."""
        with self._lock:
            self._check_process()
            _library.check(self._library.tsocket_convert_on(self._pointer, conversion, None, address, images, pixels, to,
                                                            stream))

    def close(self) -> None:
        """Closes now, or as soon as the last batch is gone: until then its memory must stay as it is. In a signal's handler
        also behind the call that it has come into."""
        in_a_call = self._lock._is_owned()  # type: ignore[attr-defined]
        with self._lock:
            attachment = self._attachment
            if attachment is None:
                return
            self._release_dropped()
            self._attachment = None
            if not in_a_call and not any(hold.live for hold in list(self._holds)):
                attachment.end()

    # --- with the lock held

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise Forked("this loader was opened before a fork and belongs to the parent process; open one in the "
                         "child (with workers that fork, open it in the worker)")

    def _opened(self) -> _Attachment:
        """The attachment, which lasts for as long as the caller keeps it."""
        self._check_process()
        if self._attachment is None:
            raise Invalid("this loader is closed")
        return self._attachment

    def _release_dropped(self) -> None:
        for hold in list(self._holds):
            if hold.window() is None or hold.freed:
                hold.release(self._library, self._pointer)
                self._note_release(hold)
                self._holds.pop(hold, None)  # a signal's handler may have been here as well

    def _note_release(self, hold: Hold) -> None:
        """What the driver refuses stays held, in the library alone, until it is closed: work may still read it."""
        rc = hold.freed[0] if hold.freed else OK  # else it was never handed out
        number = hold.batch.id
        if rc == ELAPPED and number not in self._unsaid:
            self._unsaid[number] = Lost(str(_library.error_of(rc)))
            self.lost += 1
        elif rc not in (OK, ELAPPED, EFORK):  # of a fork next says so as well
            self._unsaid[number] = _library.error_of(rc)


def _renew_locks() -> None:
    """In the child of a fork: a thread that is not here may have held them."""
    for handle in list(_handles):
        handle._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)
