# SPDX-License-Identifier: Apache-2.0
"""The consumer: iterate over a stream that a daemon of this machine serves, epoch by epoch."""
from __future__ import annotations

import contextlib
import gc
import math
import numbers
import operator
import os
import sys
import threading
import time
import warnings
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union

from . import _library
from ._batch import Batch, FieldPlace
from ._device import LEGACY_STREAM, NO_STREAM, stream_number
from ._handle import Handle, Window
from .errors import Error, Gone, Held, Invalid, Lost, ResumeError, StreamEnd, Timeout

SLICE_MS = 100  # the longest wait in one piece: a signal that comes just before it is noticed after so long
FOREVER_S = 1e9
RECONNECT_MAX_S = 2e6  # in milliseconds it is a C int
STATE_VERSION = 2
_PASSING = (_library.EAGAIN, _library.EINTR, _library.EHELD)  # answers after which the library is asked again

Shard = Union[None, str, Tuple[int, int]]
State = Union[str, Mapping[str, Any]]


class Field(NamedTuple):
    """One tensor of every sample; the batch comes before `shape`."""

    name: str
    dtype: str
    shape: Tuple[int, ...]


class EndedEpoch(NamedTuple):
    """What an epoch was that has been read to its end."""

    epoch: int  # the stream's number
    own_epoch: int  # this trainer's
    samples: int  # that it had
    received: int  # of these, real ones that this loader was given
    skipped: int  # that it left out (on_lag="skip")


class Loader:
    """Attaches to `name` ("DAEMON" or "DAEMON/STREAM") and reads it in batches of `batch_size` samples.

    Each `for` runs to the end of an epoch; one that was left early goes on where it stopped. A `for` that begins after
    the last epoch raises StreamEnd; `for _ in loader.epochs()` ends with the stream instead.

    hold             batches that may be held at once, counted from the oldest; more: Held is raised
    last             what to do with samples that do not fill a batch: "keep" a smaller one, "drop", or "pad"
    join             where to begin when the epoch under way has left the ring: "catch-up", in the middle, and what lies
                     before comes behind the epoch's end; "wait" for the next; or "now", with a first epoch that is partial
    shard            (rank, world): this rank of a data-parallel job; "auto" takes it from torchrun or Slurm
    epochs           ends after so many; None: as many as come
    fields           names wanted; None: all
    timeout          seconds to wait for a batch before Timeout is raised; None: no limit
    connect_timeout  seconds to look for the daemon; None: until it is there
    reconnect        seconds to wait for a daemon that has gone, to go on where it was when it is back; 0: Gone is raised
                     at once; None: no limit
    on_lag, max_lag  what becomes of it when the others have waited for it for the daemon's --max-hold: "park", it goes on
                     where it was when it comes back; "skip", also, and when it is more than max_lag samples behind the
                     newest it leaves samples out; "detach", Elapsed is raised
    resume           a state_dict(), or a token: goes on where that was taken
    device           where the data is wanted: "host"; "cuda", "cuda:N", "cuda:GPU-UUID", on a GPU; None: on a GPU where the
                     daemon has it on one. What it came to is `loader.device`
    stream           the stream of that GPU on which batches are read, and behind whose work they are released: an int, or a
                     stream of torch or CuPy; None: the one that DLPack's consumer names, or the default one
    consumer_name    what `tsocketctl status` shows; None: the script's name

    From here on the daemon and all other trainers wait for this one, so close it when it is no longer needed: close(),
    a `with` block, or its end. Threads may share a loader; each has its own current batch, and `hold` counts them all.
    A child process must open its own.
    """

    def __init__(self, name: str = "main", batch_size: int = 64, *, hold: int = 2, last: str = "keep",
                 join: str = "catch-up", shard: Shard = None, epochs: Optional[int] = None,
                 fields: Optional[Sequence[str]] = None, timeout: Optional[float] = None,
                 connect_timeout: Optional[float] = 0.0, reconnect: Optional[float] = 0.0, on_lag: str = "park",
                 max_lag: int = 0, resume: Optional[State] = None, device: Optional[str] = "host", stream: Any = None,
                 consumer_name: Optional[str] = None) -> None:
        self.name = name
        self.batch_size = _positive("batch_size", batch_size)
        self.rank, self.world = resolve_shard(shard)
        self._last = last
        self._timeout = _seconds("timeout", timeout)
        self._connect_timeout = _seconds("connect_timeout", connect_timeout)
        _seconds("reconnect", reconnect, RECONNECT_MAX_S)
        self._epochs = epochs
        self._options = _options(hold, last, join, (self.rank, self.world), epochs, fields, consumer_name)
        self._options.reconnect_ms = -1 if reconnect is None else round(reconnect * 1000)
        self._options.on_lag = _choice("on_lag", on_lag, _library.ON_LAG)
        self._options.max_lag = _integer("max_lag", max_lag, 0, 2 ** 64 - 1)
        self._options.device = str(device).encode() if device is not None else None
        self._stream = stream_number(stream) if stream is not None else None
        state = _state_of(resume) if resume is not None else {"token": None, "own_epoch": 0}
        self._begin(self._attach(state), state)
        if "sample" in state:
            self._leave_out(state)

    def _attach(self, state: Mapping[str, Any]) -> Handle:
        """A handle that begins behind the token, if there is one."""
        token, left = state["token"], self._epochs or 0
        if token is not None:
            left = max(left - state["own_epoch"], 0)
        self._options.epochs = left
        self._options.resume = token.encode() if token is not None else None
        return _connect(self.name, self.batch_size, self._options, self._connect_timeout)

    def _begin(self, handle: Handle, state: Mapping[str, Any]) -> None:
        self._handle = handle
        self._by_name = _fields_of(handle.info)
        self._device: Optional[int] = handle.info.device if handle.info.memory != _library.MEMORY_HOST else None
        self._epoch_samples: int = handle.info.epoch_samples
        epoch, first = handle.position()
        self._first_place = self._place = (epoch, first - self.rank * self.batch_size)  # of the next batch
        self._first_own_epoch: int = state["own_epoch"]  # the number that the first epoch has for this trainer
        self._over = self._epochs is not None and state["own_epoch"] >= self._epochs
        self._target: Optional[Dict[str, Any]] = None  # a place that is to be reached, and is not yet
        self._local = threading.local()

    # --- what is there

    @property
    def fields(self) -> List[Field]:
        """The fields of a batch, in order."""
        return [Field(name, dtype.name, shape) for name, (_, dtype, shape) in self._by_name.items()]

    @property
    def samples(self) -> int:
        """Samples of an epoch in which all are good."""
        if self._epoch_samples == 0:
            raise TypeError(f"{self.name}: its producer does not know how long an epoch is")
        return self._epoch_samples

    def __len__(self) -> int:
        """Batches of the epoch that is read or comes next, if all its samples are good: of one that begins in its middle,
        those that this loader gets of it. TypeError where the producer does not know."""
        stride, epoch = self.batch_size * self.world, self._place[0]
        if self._target is not None:  # what lies before it is received, but not handed out
            epoch, sample = self._target["epoch"], self._target["sample"]
            begin = self._first_place[1] if epoch == self._first_place[0] else 0
            return max(0, self._batches_in(self.samples - begin) - (sample - begin) // stride)
        if epoch == self._first_place[0]:
            self.samples  # or a TypeError
            return self._handle.info.first_batches
        return self._batches_in(self.samples)

    def _batches_in(self, samples: int) -> int:
        stride = self.batch_size * self.world
        return samples // stride if self._last == "drop" else -(-samples // stride)

    @property
    def epoch(self) -> int:
        """The stream's epoch that is read or comes next."""
        return self._place[0]

    @property
    def ended_epoch(self) -> Optional[EndedEpoch]:
        """The epoch that was read to its end last; None before the first."""
        ended = self._handle.ended_epoch()
        if ended is None:
            return None
        return EndedEpoch(ended.epoch, ended.own_epoch + self._first_own_epoch, ended.samples, ended.received,
                          ended.skipped)

    @property
    def device(self) -> str:
        """Where the batches are: "host", or "cuda:N" with the GPU's ordinal in this process."""
        return "host" if self._device is None else f"cuda:{self._device}"

    @property
    def resident(self) -> bool:
        """Whether the whole stream stays in the ring: each epoch is a pass over it, and nobody waits for anybody."""
        return self._handle.info.resident

    @property
    def held(self) -> int:
        """Batches that this loader holds in the ring now. Others wait for their room when it runs short."""
        return self._handle.held

    @property
    def lost(self) -> int:
        """Batches that were written over while they were held, and came again: see Lost."""
        return self._handle.lost

    # --- iteration

    def __iter__(self) -> Iterator[Batch]:
        return _Epoch(self)

    def epochs(self) -> Iterator[int]:
        """Numbers of this trainer's epochs, until the stream ends: for epoch in loader.epochs(): for batch in loader: ...
        """
        return _Epochs(self)

    def _look(self) -> Optional[int]:
        """This trainer's number of the epoch whose batch comes next, which is not taken; None at an epoch's end."""
        self._pass_current()
        batch = self._next_batch()
        if batch is None:
            return None
        own_epoch = batch.own_epoch
        self._take_back()
        return own_epoch

    def _next_batch(self) -> Optional[Batch]:
        """The next batch, which comes again until _Epoch has handed it out; None at the epoch's end."""
        self._pass_current()
        if self._target is not None:
            return self._go_to_target()
        window = self._receive()
        return self._batch(window, 0) if window is not None else None

    def _take_back(self) -> None:
        """What the library has given and this loader has not, as when a signal's exception came between, comes again."""
        coming: Optional[Window] = getattr(self._local, "coming", None)
        if coming is not None and coming.hold.live:
            self._handle.put_back(coming)

    def _unreleased(self) -> Optional[Batch]:
        """The batch that this thread was given last, if it has not been released."""
        current: Optional[Batch] = getattr(self._local, "batch", None)
        return current if current is not None and current._window is not None else None

    def _pass_current(self) -> None:
        """The batch that this thread was given last is not read any more."""
        current: Optional[Batch] = getattr(self._local, "batch", None)
        if current is not None:
            current._pass()
            self._local.batch = None

    def _batch(self, window: Window, skip: int) -> Batch:
        return Batch(self._by_name, window, skip, window.batch.own_epoch + self._first_own_epoch, self._device)

    def _end_of(self, raw: _library.Batch) -> int:
        """Where the group of ranks goes on after the round that this batch belongs to."""
        return raw.first + (self.world - self.rank) * self.batch_size

    def _receive(self) -> Optional[Window]:
        """The next window of the library's, which comes again until it has been handed out (`coming` is None), put back or
        passed over, for a signal's exception may come between; None at an epoch's end."""
        if self._over:
            raise StreamEnd(f"{self.name}: {self._epochs} epochs had been read when the state was taken")
        window: Optional[Window] = getattr(self._local, "coming", None)
        if window is None or window.hold.freed:
            self._local.coming = None
            self._local.coming = window = self._window()
        rc = self._wait_for(window)
        if rc == _library.OK:
            return window
        if rc == _library.EPOCH_END:
            self._place, self._local.coming = (self._place[0] + 1, 0), None
            return None
        failure = self._failure(rc)
        try:
            self._local.coming = window = None
            raise failure
        finally:
            del failure  # or it would keep itself alive, by its traceback

    def _wait_for(self, window: Window) -> int:
        """The library's answer. Signals are handled while it waits."""
        answer = window.hold.answer
        if answer and answer[0] not in _PASSING:  # to a call that was cut short
            return answer[0]
        deadline = time.monotonic() + (FOREVER_S if self._timeout is None else self._timeout)
        collected = False
        timeout_ms = 0  # first without the clock: most of the time it is there
        while True:
            answer.clear()
            rc = self._handle.next(timeout_ms, window)
            if rc not in _PASSING or (rc == _library.EHELD and collected):
                return rc
            if rc == _library.EHELD:
                gc.collect()  # what is held by dead cycles alone is not held
                collected = True
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                raise Timeout(f"{self.name}: no batch came within {self._timeout:g} s")
            timeout_ms = min(SLICE_MS, math.ceil(left_ms))

    def _window(self) -> Window:
        if self._stream is not None:
            return self._handle.window(self._stream if self._stream != NO_STREAM else None, fixed=True)
        return self._handle.window(LEGACY_STREAM if self._device is not None else None)

    def _failure(self, rc: int) -> Error:
        if rc == _library.ELAPPED and self._options.on_lag != _library.ON_LAG["detach"]:
            self._handle.lost += 1  # before the work that was queued with it had been done
            return Lost(str(_library.error_of(rc)))
        if rc != _library.EHELD:
            return _library.error_of(rc)
        return Held(f"{self.name}: {self.held} batches are held, by arrays or tensors that were made of them or by keep(), "
                    "and with the next one there would be more than `hold` says, which counts from the oldest of them, and with "
                    "it those after it that were released; copy what is to be kept, or open the loader with a larger hold=")

    # --- pause

    def pause(self) -> None:
        """For a time without batches, such as a validation: the others do not wait for this loader until it asks for the
        next one, and then it goes on exactly where it was. Releases the current batch; Held: others are kept. Refused: the
        stream has no side ring."""
        self._pass_current()
        self._take_back()
        rc = self._handle.pause()
        if rc == _library.EHELD:
            gc.collect()  # what is held by dead cycles alone is not held
            rc = self._handle.pause()
        while rc == _library.EHELD and self._handle.held == 0:  # but by work on a stream
            time.sleep(0.001)
            rc = self._handle.pause()
        _library.check(rc)

    def resume(self) -> None:
        """Lets the daemon know that a batch will be asked for soon, so that it is there by then; not needed."""
        _library.check(self._handle.resume())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """with loader.paused(): validate()"""
        self.pause()
        try:
            yield
        finally:
            with contextlib.suppress(Gone, Timeout):  # the next batch will say so
                self.resume()

    # --- resume

    def state_dict(self, batch: Optional[Batch] = None) -> Dict[str, Any]:
        """The place after the last batch that was handed out, for load_state_dict; plain numbers and strings. After
        `batch`, which is not released yet, where batches are fetched ahead of what is trained on."""
        if batch is None and self._target is not None:
            return dict(self._target)
        if batch is None:
            self._take_back()
        window = batch._held() if batch is not None else None
        if window is not None and window.handle is not self._handle:
            raise Invalid(f"{self.name}: state_dict is asked for the place after a batch of another loader, or of this one "
                          "before load_state_dict; ask the loader that it came from")
        raw = window.batch if window is not None else None
        epoch, sample = (raw.epoch, self._end_of(raw)) if raw is not None else self._place
        token = self._handle.token(raw)
        if token is None:
            return {"version": STATE_VERSION, "token": None, "own_epoch": self._own_epoch(epoch), "epoch": epoch,
                    "sample": sample, "world": self.world, "batch_size": self.batch_size}
        if raw is None:
            epoch, _ = self._handle.position()
        return {"version": STATE_VERSION, "token": token, "own_epoch": self._own_epoch(epoch)}

    def _own_epoch(self, epoch: int) -> int:
        return epoch - self._first_place[0] + self._first_own_epoch

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken, with any batch size: attaches once more, at that place. Where several trainers
        go on together, or ranks, give it to each of them at once, as `resume`: they count from when they attach.

        Refused: the daemon serves something else, or cannot go there; the loader stays where it is. ResumeError: a stream
        that has no tokens (a Python producer's) is past that place. There, what lies before is received and left unread,
        and whether it is the same data in the same order is not checked.
        """
        if self._handle.closed:
            raise Invalid("this loader is closed; open one with resume=state")
        state = _state_of(state)
        if state["token"] is None:
            self._leave_out(state)
            return
        handle = self._attach(state)
        self._let_go()
        self._handle.close()  # only now: a daemon may end with its last consumer
        self._begin(handle, state)

    def _leave_out(self, state: Mapping[str, Any]) -> None:
        """Has everything before that place received and left unread."""
        if self._place != self._first_place:
            raise ResumeError("load_state_dict comes too late: the loader has handed out batches already")
        place = (int(state["epoch"]), int(state["sample"]))
        if place < self._place:
            raise ResumeError(f"{self.name} is at epoch {self._place[0]}, sample {self._place[1]}, and the state is of "
                              f"epoch {place[0]}, sample {place[1]}: it cannot go back; start the daemon again, with the "
                              "same data, options and seed")
        self._first_own_epoch = int(state["own_epoch"]) - (place[0] - self._place[0])
        self._target = dict(state)

    def _go_to_target(self) -> Optional[Batch]:
        """Leaves out everything before the target; its first batch, or None where its epoch has nothing more."""
        assert self._target is not None
        epoch, sample = self._target["epoch"], self._target["sample"]
        while True:
            window = self._receive()
            if window is None:
                if self._place[0] <= epoch:
                    continue
                self._target = None
                return None
            raw = window.batch
            if (raw.epoch, self._end_of(raw)) <= (epoch, sample):
                self._local.coming = None
                continue
            round_begin = raw.first - self.rank * self.batch_size
            skip = sample - round_begin if raw.epoch == epoch else 0
            if skip < 0 or raw.epoch > epoch or (skip > 0 and self.world > 1):
                raise ResumeError(f"{self.name}: the state is of epoch {epoch}, sample {sample}, where no batch of this "
                                  f"loader begins (the next is at epoch {raw.epoch}, sample {raw.first}); resume ranks "
                                  "with the batch size and the number of ranks that were saved")
            if skip >= raw.count:
                self._local.coming = None
                continue
            return self._batch(window, skip)

    # --- the end

    def flush(self) -> None:
        """Tells the daemon of all releases at once; worth it before a long time without the loader."""
        self._pass_current()
        self._handle.flush()

    def _let_go(self) -> None:
        batch = getattr(self._local, "batch", None)
        if batch is not None:
            batch._let_go()
        coming: Optional[Window] = getattr(self._local, "coming", None)
        if coming is not None:
            coming.abandon()
        self._local = threading.local()

    def close(self) -> None:
        """Detaches. Where arrays or tensors of its batches are still alive, with the last of them: until then their
        memory stays as it is, and the others wait for it."""
        if self._handle.closed:
            return
        self._let_go()
        self._handle.close()
        if self._handle.held > 0:
            warnings.warn(f"{self.name}: closed while arrays or tensors of {self._handle.held} batches are alive; it stays "
                          "attached until they are gone", ResourceWarning, stacklevel=2)
        if self._handle.unsaid > 0:
            warnings.warn(f"{self.name}: closed after {self._handle.unsaid} batches were written over while they were held; "
                          "what was computed from them is worthless", RuntimeWarning, stacklevel=2)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a loader is attached to its daemon by this process: it cannot be copied or pickled; open another one, "
                        "with resume=loader.state_dict() where it is to go on from here")

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Epoch:
    """The rest of an epoch. No generator, which an error such as Timeout would end; so below."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Optional[Loader] = loader

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        while loader is not None:
            batch = loader._next_batch()
            if batch is None:
                break
            window = batch._window
            assert window is not None
            place = (window.batch.epoch, loader._end_of(window.batch))
            if window.hold.freed:  # a signal's handler has asked for the state, or paused
                continue
            # Handed out. Nothing is called from here on, so that no signal comes between this and the caller.
            loader._local.batch, loader._local.coming, loader._place, loader._target = batch, None, place, None
            return batch
        self._loader = None
        raise StopIteration


class _Epochs:
    """The numbers of the epochs that are left."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        own_epoch = None
        while own_epoch is None:  # an epoch that a resumed run had finished already
            try:
                own_epoch = self._loader._look()
            except StreamEnd:
                raise StopIteration from None
        return own_epoch


def _integer(what: str, value: Any, first: int, last: int) -> int:
    """Of anything that is a whole number, NumPy's too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = first - 1
    if not first <= number <= last:
        raise Invalid(f"{what} is {value!r}; it must be a whole number from {first} to {last}")
    return number


def _positive(what: str, value: int) -> int:
    return _integer(what, value, 1, 2 ** 32 - 1)


def _seconds(what: str, value: Optional[float], limit_s: float = FOREVER_S) -> Optional[float]:
    if value is not None and not (isinstance(value, numbers.Real) and 0 <= value <= limit_s):
        raise Invalid(f"{what} is {value!r}; it must be from 0 to {limit_s:g} seconds, or None: no limit")
    return value


def _choice(what: str, value: str, choices: Mapping[str, int]) -> int:
    if value not in choices:
        raise Invalid(f"{what} is {value!r}; it must be one of {', '.join(choices)}")
    return choices[value]


def _state_of(state: State) -> Mapping[str, Any]:
    """A state_dict, or what stands for one: a token alone."""
    if isinstance(state, str):
        return {"token": state, "own_epoch": 0}
    if state.get("version") != STATE_VERSION:
        raise ResumeError(f"a state of version {state.get('version')}; this version of tsocket knows {STATE_VERSION}")
    return state


def resolve_shard(shard: Shard) -> Tuple[int, int]:
    """(rank, world) of "auto", of None (alone), or of itself."""
    if shard is None:
        return 0, 1
    if shard != "auto":
        if not isinstance(shard, (tuple, list)) or len(shard) != 2:
            raise Invalid(f"shard is {shard!r}; it must be (rank, world), \"auto\" or None")
        world = _positive("shard's world", shard[1])
        return _integer("shard's rank", shard[0], 0, world - 1), world
    for rank_name, world_name in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if rank_name in os.environ and world_name in os.environ:
            return resolve_shard((int(os.environ[rank_name]), int(os.environ[world_name])))
    return 0, 1


def _options(hold: int, last: str, join: str, shard: Tuple[int, int], epochs: Optional[int],
             fields: Optional[Sequence[str]], consumer_name: Optional[str]) -> _library.Options:
    options = _library.Options()
    _library.load().tsocket_options_init(options)
    options.hold = _positive("hold", hold)
    options.last = _choice("last", last, _library.LAST)
    options.join = _choice("join", join, _library.JOIN)
    options.shard_rank, options.shard_world = shard
    options.epochs = _positive("epochs", epochs) if epochs is not None else 0
    if isinstance(fields, str):
        raise Invalid(f"fields is the string {fields!r}; it must be a list of names")
    options.fields = ",".join(fields).encode() if fields is not None else None
    options.consumer_name = (consumer_name or os.path.basename(sys.argv[0]) or "python").encode()
    return options


def _connect(name: str, batch_size: int, options: _library.Options, timeout: Optional[float]) -> Handle:
    """Looks for the daemon in slices, so that a signal is never waited out."""
    deadline = time.monotonic() + (FOREVER_S if timeout is None else timeout)
    while True:
        left_ms = max(0, math.ceil((deadline - time.monotonic()) * 1000))
        options.connect_timeout_ms = min(SLICE_MS, left_ms)
        try:
            return Handle(name, batch_size, options)
        except Error as error:
            interrupted = error.code == "EINTR"
            waiting = error.code == "ENOTFOUND" and left_ms > SLICE_MS
            if not interrupted and not waiting:
                raise


def _fields_of(info: _library.Info) -> Dict[str, FieldPlace]:
    found = {}
    for number in range(info.n_fields):
        field = info.fields[number]
        found[field.name.decode()] = (number, _library.DTYPES[field.dtype], tuple(field.shape[:field.ndim]))
    return found
