# SPDX-License-Identifier: Apache-2.0
"""A batch as a trainer sees it: the fields of a window that is held."""
from __future__ import annotations

import math
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from . import _library
from ._array import Array, HostArray
from ._device import NO_STREAM, DeviceArray, stream_number
from ._handle import Window, not_copied
from .errors import Invalid

FieldPlace = Tuple[int, _library.Dtype, Tuple[int, ...]]  # number, dtype, shape of a sample


class Batch(Mapping):
    """Samples of one epoch, field by field: batch["image"] is an Array, dict(batch) all of them: HostArrays, or
    DeviceArrays where the loader reads in a GPU.

    It is released when the loader is asked for the next one, except what is kept of it: an array or tensor that was
    made of a field, or the batch itself by keep(). What is kept takes up room in the ring, and one of `hold`.
    """

    __slots__ = ("epoch", "own_epoch", "first", "count", "valid", "skipped", "_fields", "_window", "_skip", "_kept",
                 "_device")

    def __init__(self, fields: Dict[str, FieldPlace], window: Window, skip: int, own_epoch: int,
                 device: Optional[int] = None) -> None:
        batch = window.batch
        self.epoch: int = batch.epoch  # the stream's
        self.own_epoch: int = own_epoch  # of this trainer: 0 in its first
        self.first: int = batch.first + skip  # place of the first sample in the epoch's order
        self.count: int = batch.count - skip  # samples
        self.valid: int = max(batch.valid - skip, 0)  # of these, real ones; the others repeat them
        self.skipped: int = batch.skipped  # samples left out just before it (on_lag="skip")
        self._fields = fields
        self._window: Optional[Window] = window
        self._skip = skip  # samples at its beginning that are none of ours
        self._kept = False
        self._device = device  # the GPU's ordinal; None: host memory

    def __getitem__(self, name: str) -> Array:
        number, dtype, shape = self._fields[name]
        window = self._held()
        address = window.batch.data[number] + self._skip * math.prod(shape) * dtype.size
        if self._device is None:
            return HostArray(address, dtype, (self.count, *shape), window)
        return DeviceArray(address, dtype, (self.count, *shape), window, self._device, number)

    __reduce_ex__ = not_copied

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"<tsocket.Batch epoch {self.epoch}, samples {self.first} to {self.first + self.count}>"

    @property
    def index(self) -> Array:
        """Field "index": the place of each sample in the dataset."""
        return self["index"]

    def _held(self) -> Window:
        if self._window is None:
            raise Invalid("this batch has been released, for the next one was asked for; keep() it before, or keep the "
                          "arrays that are needed")
        return self._window.check()

    def keep(self) -> "Batch":
        """Holds the batch until release(), or until it and all that was made of it are gone."""
        self._kept = True
        return self

    def release(self, stream: Any = None) -> None:
        """Gives the batch back now; what was made of its fields stays valid and keeps it for as long. Raises Lost where
        it was written over before: what was read of it is worthless, and it will come again.

        stream   a stream of the GPU (an int, one of torch's or CuPy's): the room is used again behind what is queued there
                 now; -1: at once, for whoever has waited. None: the loader's, or the one that DLPack's consumer named. Raises
                 Device where the driver refuses it; the batch then stays held until the loader is closed.
        """
        window, self._window = self._window, None
        if window is not None:
            if stream is not None:
                number = stream_number(stream)
                window.hold.stream = None if number == NO_STREAM else number
            handle, number = window.handle, window.batch.id
            del window
            handle.say(number)

    def _let_go(self) -> None:
        self._window = None

    def _pass(self) -> None:
        if not self._kept:
            self._let_go()
