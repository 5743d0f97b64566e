# SPDX-License-Identifier: Apache-2.0
"""Any iterable of arrays as the source: a DataLoader, a generator, a model that computes embeddings.

    loader = torch.utils.data.DataLoader(dataset, batch_size=128, num_workers=8, shuffle=True, persistent_workers=True)
    tsocket.Producer(loader, name="main", fields=["image", "label"], epochs=90).serve()

Each iteration over it is an epoch. Its batches are copied into the ring as they come; each consumer cuts batches of its
own size from it, and gets every sample once, in the order of the loader.
"""
from __future__ import annotations

import ctypes
import itertools
import math
import os
import sys
import threading
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _library
from .errors import Invalid

SLICE_MS = 100  # the longest wait in one piece, so that signals are seen
LARGE_BYTES = 64 << 20  # what the default of max_batch may take
SMALL_BATCH = 64


class _Part(NamedTuple):
    """One field of a batch as it came: dense memory, and what keeps it."""

    dtype: str
    shape: Tuple[int, ...]  # of one sample
    count: int
    address: int
    keep: Any


def _part_of_torch(name: str, tensor: Any) -> _Part:
    tensor = tensor.detach().cpu().contiguous()
    dtype = _checked(name, str(tensor.dtype).rpartition(".")[2])
    return _Part(dtype, tuple(tensor.shape[1:]), len(tensor), tensor.data_ptr(), tensor)


def _part_of_others(name: str, value: Any) -> _Part:
    import numpy

    array = numpy.ascontiguousarray(value)
    dtype = _checked(name, array.dtype.name if array.dtype.isnative else str(array.dtype))
    return _Part(dtype, array.shape[1:], len(array), array.ctypes.data, array)


def _checked(name: str, dtype: str) -> str:
    if dtype not in _library.BY_NAME:
        raise Invalid(f"field {name} is of {dtype}; possible are {', '.join(_library.BY_NAME)}")
    return dtype


def _part(name: str, value: Any) -> _Part:
    torch = sys.modules.get("torch")  # whoever gives tensors has imported it
    dimensions = getattr(value, "ndim", None)
    if dimensions == 0 or isinstance(value, (int, float, str, bytes)):
        raise Invalid(f"field {name} is one value, {value!r:.60}, where one per sample is needed")
    return _part_of_torch(name, value) if torch is not None and isinstance(value, torch.Tensor) \
        else _part_of_others(name, value)


def parts_of(batch: Any, names: Optional[Sequence[str]]) -> Dict[str, _Part]:
    """The fields of one batch: a mapping, a tuple or list, or a single array."""
    if isinstance(batch, Mapping):
        values = {name: batch[name] for name in (names or batch)}
    else:
        listed = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        names = list(names) if names is not None else _default_names(len(listed))
        if len(names) != len(listed):
            raise Invalid(f"a batch has {len(listed)} fields, and there are {len(names)} names: {', '.join(names)}")
        values = dict(zip(names, listed))
    parts = {name: _part(name, value) for name, value in values.items()}
    if len({part.count for part in parts.values()}) != 1:
        raise Invalid("the fields of a batch have different lengths: "
                      + ", ".join(f"{name} {part.count}" for name, part in parts.items()))
    return parts


def _default_names(count: int) -> List[str]:
    return ["image", "label"] if count == 2 else [f"field{i}" for i in range(count)]


def samples_of(loader: Iterable[Any], batch_size: int) -> int:
    """Samples that an iteration over the loader gives, at most; 0: it does not say."""
    try:
        batches = len(loader)  # type: ignore[arg-type]
    except TypeError:
        return 0
    sampler, drop_last = getattr(loader, "sampler", None), getattr(loader, "drop_last", None)
    if sampler is not None and drop_last is False:  # a DataLoader, whose last batch may be smaller
        try:
            return len(sampler)
        except TypeError:
            return 0
    return batches * batch_size


class Producer:
    """Serves `loader` as the daemon `name`, stream `stream`. Shapes and dtypes are those of its first batch, which is
    made here and now.

    fields         names of the fields of a tuple, or which of a dict; default: image, label for pairs, a dict's own keys
    epochs         iterations over the loader that are served; None: for ever
    epoch_samples  samples of an epoch; None: what the loader says (0 where it does not: then consumers have no len())
    max_batch      the largest batch that a consumer may ask for; default: the loader's, and up to 64 where that is small
    ring           samples in the ring; default: eight of the largest batches
    wait_for, join_grace    as of tsocketd: consumers that the first epoch waits for; seconds it stays for late ones

    An iteration that ends sooner than epoch_samples is a shorter epoch; one that gives more is an error. The loader may
    fork its workers at any time.
    """

    def __init__(self, loader: Iterable[Any], name: str = "main", *, stream: str = "train",
                 fields: Optional[Sequence[str]] = None, epochs: Optional[int] = None,
                 epoch_samples: Optional[int] = None, max_batch: Optional[int] = None, ring: Optional[int] = None,
                 wait_for: int = 0, join_grace: float = 5.0, exit_when_idle: bool = False) -> None:
        self.name = name
        self._loader = loader
        self._names = fields
        self._epochs = epochs
        self._iterator: Optional[Iterator[Any]] = iter(loader)
        self._first = self._take_first()
        size = next(iter(self._first.values())).count
        self.epoch_samples = samples_of(loader, size) if epoch_samples is None else epoch_samples
        self._batches = self._count_batches()
        self.epoch = 0  # being served, or next
        self._served = 0  # samples of it
        self._library = _library.load()
        self._pointer = ctypes.c_void_p()
        self._pid = os.getpid()
        self._lock = threading.Lock()  # close waits for a call that is under way
        self._open(wait_for, join_grace, exit_when_idle)
        try:
            max_batch = max_batch or max(size, min(SMALL_BATCH, LARGE_BYTES // self._sample_bytes()))
            self._add_stream(stream, max_batch, ring or 8 * max_batch)
            _library.check(self._library.tsocket_producer_start(self._pointer))
        except BaseException:
            self.close()
            raise

    def _take_first(self) -> Dict[str, _Part]:
        assert self._iterator is not None
        for batch in self._iterator:
            self._iterator = itertools.chain([batch], self._iterator)
            parts = parts_of(batch, self._names)
            if next(iter(parts.values())).count == 0:
                raise Invalid("the loader's first batch has no sample")
            return parts
        raise Invalid("the loader is empty")

    def _count_batches(self) -> Optional[int]:
        try:
            return len(self._loader)  # type: ignore[arg-type]
        except TypeError:
            return None

    def _sample_bytes(self) -> int:
        return max(1, sum(_sample_bytes(part) for part in self._first.values()))

    def _open(self, wait_for: int, join_grace: float, exit_when_idle: bool) -> None:
        options = _library.ProducerOptions()
        self._library.tsocket_producer_options_init(options)
        options.name = self.name.encode()
        options.wait_for = wait_for
        options.join_grace_ms = round(join_grace * 1000)
        options.exit_when_idle = exit_when_idle
        _library.check(self._library.tsocket_producer_open(options, ctypes.byref(self._pointer)))

    def _add_stream(self, stream: str, max_batch: int, ring: int) -> None:
        fields = (_library.Field * len(self._first))()
        for field, (name, part) in zip(fields, self._first.items()):
            field.name = name.encode()
            field.dtype = _library.BY_NAME[part.dtype].number
            field.ndim = len(part.shape)
            field.shape[:len(part.shape)] = part.shape
        options = _library.StreamOptions()
        self._library.tsocket_stream_options_init(options)
        options.name = stream.encode()
        options.fields = fields
        options.n_fields = len(fields)
        options.epoch_samples = self.epoch_samples
        options.epochs = self._epochs or 0
        options.capacity = ring
        options.max_batch = max_batch
        options.on_bad = _library.ON_BAD_FAIL
        options.source = f"{type(self._loader).__module__}.{type(self._loader).__qualname__}".encode()
        _library.check(self._library.tsocket_producer_add_stream(self._pointer, options, None))

    # --- serving

    def serve(self) -> None:
        """Serves all epochs and returns when they have been read, or when somebody asks it to stop (tsocketctl stop).
        An error of the loader ends the run for the consumers as well, and is raised here."""
        while not self._ended() and (self._epochs is None or self.epoch < self._epochs):
            for _ in self.batches():
                pass
            self.end_epoch()
        self.join()

    def batches(self) -> Iterator[int]:
        """Serves one epoch; yields after each batch how many samples it had. It ends early when the run has ended."""
        iterator = self._iterator if self._iterator is not None else iter(self._loader)
        self._iterator = None
        self._served = 0
        try:
            for batch in itertools.islice(iterator, self._batches):
                parts = parts_of(batch, self._names)
                count = self._check(parts)
                if not self._write(parts, count):
                    return
                self._served += count
                yield count
            if self._served == 0:
                raise Invalid(f"{self.name}: the loader was empty in epoch {self.epoch}; one that can be iterated over once "
                              "makes one epoch: epochs=1")
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            raise

    def end_epoch(self) -> None:
        """The epoch that was served is whole. Known lengths end by themselves."""
        served, self._served = self._served, 0
        if served == 0:
            return
        if self.epoch_samples == 0 or served < self.epoch_samples:
            self._end_early()
        self.epoch += 1

    def finish(self) -> None:
        """No more epochs: the consumers' streams end with what was served."""
        self._served = 0
        if not self._ended():
            _library.check(self._library.tsocket_producer_finish(self._pointer, 0))

    def join(self) -> None:
        """Waits until all has been read, or until somebody asks it to stop, and closes."""
        try:
            while True:
                rc = self._library.tsocket_producer_wait(self._pointer, SLICE_MS)
                if rc == _library.END:
                    return
                if rc not in (_library.EAGAIN, _library.EINTR):
                    raise _library.error_of(rc)
        finally:
            self.close()

    def _fail(self, why: str) -> None:
        """Ends the run for the consumers, which learn that it has failed as soon as they have read what is ready."""
        if self._pointer:
            self._library.tsocket_producer_fail(self._pointer, 0, why.encode())
        self.close()

    def close(self) -> None:
        """Gives the name back; consumers that have not read everything are told that it is gone. In a forked child it does
        nothing: the producer is its parent's."""
        if self._pid != os.getpid():
            return
        with self._lock:
            pointer, self._pointer = self._pointer, ctypes.c_void_p()
            if pointer:
                self._library.tsocket_producer_close(pointer)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()

    # --- one batch

    def _check(self, parts: Dict[str, _Part]) -> int:
        """How many samples it has; Invalid where they do not fit in."""
        for name, first in self._first.items():
            part = parts.get(name)
            if part is None or (part.dtype, part.shape) != (first.dtype, first.shape):
                found = f"{part.dtype} {list(part.shape)}" if part is not None else "missing"
                raise Invalid(f"field {name} was {first.dtype} {list(first.shape)} in the first batch and is {found} in a "
                              "later one; samples of different shapes must be padded by the loader")
        count = next(iter(parts.values())).count
        if self.epoch_samples and self._served + count > self.epoch_samples:
            raise Invalid(f"{self.name}: an epoch of {self.epoch_samples} samples was announced, and the loader gives more; "
                          "say how many with epoch_samples=, or 0 where nobody knows")
        return count

    def _write(self, parts: Dict[str, _Part], count: int) -> bool:
        """False: the run has ended. Waits for room in slices, so that Python sees signals."""
        ordered = [parts[name] for name in self._first]
        steps = [_sample_bytes(part) for part in ordered]
        data = (ctypes.c_void_p * len(ordered))()
        written = ctypes.c_uint64()
        done = 0
        while done < count:
            data[:] = [part.address + done * step for part, step in zip(ordered, steps)]
            with self._lock:
                rc = self._call_write(data, count - done, written)
            done += written.value
            if rc == _library.END:
                return False
            if rc not in (_library.OK, _library.EAGAIN):
                raise _library.error_of(rc)
        return True

    def _call_write(self, data: Any, count: int, written: ctypes.c_uint64) -> int:
        if not self._pointer:
            written.value = 0
            return _library.END
        return self._library.tsocket_producer_write(self._pointer, 0, SLICE_MS, data, count, ctypes.byref(written))

    def _end_early(self) -> None:
        claim = _library.Claim()
        while True:
            rc = self._library.tsocket_producer_claim(self._pointer, SLICE_MS, claim)
            if rc == _library.OK:
                _library.check(self._library.tsocket_producer_end_epoch(self._pointer, claim))
                return
            if rc == _library.END:
                return
            if rc != _library.EAGAIN:
                raise _library.error_of(rc)

    def _ended(self) -> bool:
        if not self._pointer:
            return True
        rc = self._library.tsocket_producer_wait(self._pointer, 0)
        if rc not in (_library.EAGAIN, _library.END):
            raise _library.error_of(rc)
        return rc == _library.END


def _sample_bytes(part: _Part) -> int:
    return _library.BY_NAME[part.dtype].size * math.prod(part.shape)
