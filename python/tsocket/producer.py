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
import sys
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence

from . import _library
from ._batch import Batch
from ._engine import SLICE_MS, Engine, default_max_batch, stream_options
from ._parts import Part, parts_of
from .errors import Invalid


def samples_of(loader: Iterable[Any], batch_size: int) -> int:
    """Samples that an iteration over the loader gives, at most; 0: it does not say, or only guesses."""
    try:
        batches = len(loader)  # type: ignore[arg-type]
    except TypeError:
        return 0
    torch = sys.modules.get("torch")  # whoever gives DataLoaders has imported it
    if torch is None:
        return batches * batch_size
    if isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset):
        return 0  # its length is a hint: with workers it gives more where they do not divide it among them
    if not hasattr(loader, "batch_sampler"):
        return batches * batch_size
    sampler = loader.batch_sampler
    if type(sampler) is not torch.utils.data.BatchSampler:  # None, as batches come ready made; or of sizes of its own
        return 0
    return batches * batch_size if sampler.drop_last else len(sampler.sampler)


def _arrays_of(batch: Batch) -> Dict[str, Any]:
    """Its fields, which alone keep it from now on."""
    arrays = dict(batch)
    batch.release()
    return arrays


class Producer(Engine):
    """Serves `loader` as the daemon `name`, stream `stream`. Shapes and dtypes are those of its first batch, which is
    made here and now.

    fields         names of the fields of a tuple, or which of a dict; default: image, label for pairs, a dict's own keys
    epochs         iterations over the loader that are served; None or 0: for ever
    epoch_samples  samples of an epoch; None: what the loader says (0 where it does not: then consumers have no len())
    max_batch      the largest batch that a consumer may ask for; default: the loader's, and up to 64 where that is small
    ring           samples in the ring; default: eight of the largest batches
    wait_for, join_grace    as of tsocketd: consumers that the first epoch waits for; seconds it stays for late ones
    max_hold       seconds that a loader may keep the others waiting; then they go on without it; 0: no limit
    device         where the ring is, as of tsocketd: "host"; "cuda:0,host", in both

    An iteration that ends sooner than epoch_samples is a shorter epoch; one that gives more is an error. A DataLoader over
    an IterableDataset gives what it gives: its length is a hint. The loader may fork its workers at any time.
    """

    def __init__(self, loader: Iterable[Any], name: str = "main", *, stream: str = "train",
                 fields: Optional[Sequence[str]] = None, epochs: Optional[int] = None,
                 epoch_samples: Optional[int] = None, max_batch: Optional[int] = None, ring: Optional[int] = None,
                 wait_for: int = 0, join_grace: float = 5.0, max_hold: float = 30.0, exit_when_idle: bool = False,
                 device: str = "host") -> None:
        self._loader = loader
        self._names = fields
        self._epochs = epochs or None
        self._iterator: Optional[Iterator[Any]] = iter(loader)
        self._first = self._take_first()
        size = next(iter(self._first.values())).count
        self.epoch_samples = samples_of(loader, size) if epoch_samples is None else epoch_samples
        self.epoch = 0  # being served, or next
        self._served = 0  # samples of it
        options = stream_options(self._first, stream, epochs, self.epoch_samples,
                                 default_max_batch(self._first, size) if max_batch is None else max_batch, ring, device, loader)
        super().__init__(name, wait_for, join_grace, max_hold, exit_when_idle)
        self._start(options)

    def _take_first(self) -> Dict[str, Part]:
        assert self._iterator is not None
        for batch in self._iterator:
            if isinstance(batch, Batch):  # which this thread's loader would hold until its next, and another may serve
                batch = _arrays_of(batch)
            self._iterator = itertools.chain(iter([batch]), self._iterator)  # which lets it go when it is over
            parts = parts_of(batch, self._names)
            if next(iter(parts.values())).count == 0:
                raise Invalid("the loader's first batch has no sample")
            return {name: part._replace(address=0, keep=None) for name, part in parts.items()}  # what it is like
        raise Invalid("the loader is empty")

    # --- serving

    def serve(self) -> None:
        """Serves all epochs and returns when they have been read, or when somebody asks it to stop (tsocketctl stop).
        An error of the loader ends the run for the consumers as well, and is raised here."""
        while not self._wait(0) and (self._epochs is None or self.epoch < self._epochs):
            for _ in self.batches():
                pass
            self.end_epoch()
        self.join()

    def batches(self) -> Iterator[int]:
        """Serves one epoch; yields after each batch how many samples it had. It ends early when the run has ended. One that
        was left before its end is a shorter epoch."""
        self.end_epoch()
        iterator = self._iterator if self._iterator is not None else iter(self._loader)
        self._iterator = None
        self._served = 0
        try:
            for batch in iterator:
                count = self._serve_batch(batch)
                del batch  # it may be in memory that the loader needs for the next one
                if count is None:
                    return
                yield count
            if self._served == 0:
                raise Invalid(f"{self.name}: the loader was empty in epoch {self.epoch}; one that can be iterated over once "
                              "makes one epoch: epochs=1")
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            self.close()
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
        if not self._wait(0):
            _library.check(self._library.tsocket_producer_finish(self._pointer, 0))

    # --- one batch

    def _serve_batch(self, batch: Any) -> Optional[int]:
        """How many samples it had; None: the run has ended."""
        parts = parts_of(batch, self._names)
        count = self._check(parts)
        if not self._write(parts, count):
            return None
        self._served += count
        return count

    def _check(self, parts: Dict[str, Part]) -> int:
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

    def _write(self, parts: Dict[str, Part], count: int) -> bool:
        """False: the run has ended. Waits for room in slices, so that Python sees signals."""
        ordered = [parts[name] for name in self._first]
        steps = [part.sample_bytes for part in ordered]
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
        return self._library.tsocket_producer_write(self._pointer, 0, SLICE_MS, data, count, written)

    def _end_early(self) -> None:
        claim = _library.Claim()
        while True:
            with self._lock:
                if not self._pointer:
                    return
                rc = self._library.tsocket_producer_claim(self._pointer, SLICE_MS, claim)
                if rc == _library.OK:
                    _library.check(self._library.tsocket_producer_end_epoch(self._pointer, claim))
                    return
            if rc == _library.END:
                return
            if rc != _library.EAGAIN:
                raise _library.error_of(rc)
