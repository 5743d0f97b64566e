# SPDX-License-Identifier: Apache-2.0
"""Fields in the memory of a GPU, and the streams that read them.

What a loader hands out is complete: nobody has to wait for anything before reading it. The other way round the room
must not be used again before the work that reads it is done, and that is queued, not finished, when the batch is given
back. So a batch in device memory is released behind the work of a stream:

    1. the one that release(stream=...) names
    2. else the loader's: Loader(..., stream=...)
    3. else the one that DLPack's consumer has named when it took a field
    4. else the legacy default stream, which waits for all streams but those that were made not to be waited for
"""
from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Tuple

from . import _dlpack
from ._array import Array, HostArray
from ._library import Conversion, Dtype
from .errors import Invalid

if TYPE_CHECKING:
    from ._handle import Window

# Streams as DLPack and the driver's API number them (2 is the per-thread default); all others are handles.
NO_STREAM = -1
LEGACY_STREAM = 1


def stream_number(stream: Any) -> int:
    """The number of a stream to release behind: of an int (0, too, is the default one), of an object of torch or CuPy, or
    of whatever has __cuda_stream__; None is the default one, -1 none at all."""
    if stream is None:
        return LEGACY_STREAM
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    stream = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    if not isinstance(stream, int) or stream < NO_STREAM:
        raise Invalid(f"{stream!r} is no stream: an int, or a stream of torch or CuPy, is needed")
    return stream or LEGACY_STREAM


def _dlpack_stream(stream: Any) -> int:
    """The same of what __dlpack__ is given, where 0 has no meaning."""
    if stream is None:
        return LEGACY_STREAM
    if not isinstance(stream, int) or stream < NO_STREAM or stream == 0:
        raise Invalid(f"__dlpack__: stream is {stream!r}; on CUDA it is None or 1 (legacy default), 2 (per-thread "
                      "default), -1 (none), or a stream's handle; 0 could be either default")
    return stream


class DeviceArray(Array):
    """An Array in the memory of a GPU: __dlpack__ and __cuda_array_interface__ give it without a copy, to_host() copies
    it. On no account write to it: where the daemon shares by IPC (tsocketd --share) all trainers would read that."""

    __slots__ = ("_device", "_field")
    _owner: "Window"

    def __init__(self, address: int, dtype: Dtype, shape: Tuple[int, ...], owner: "Window", device: int, field: int) -> None:
        super().__init__(address, dtype, shape, owner)
        self._device = device  # its ordinal in this process
        self._field = field  # its number

    def to_host(self) -> HostArray:
        """A copy in host memory; waits for it. The batch is not kept by it."""
        window = self._owner.check()
        samples = window.batch.count
        memory = (ctypes.c_uint8 * max(1, samples * math.prod(self.shape[1:]) * self._dtype.size))()
        window.handle.copy(window, self._field, memory)
        skipped_bytes = self._address - (window.batch.data[self._field] or 0)
        return HostArray(ctypes.addressof(memory) + skipped_bytes, self._dtype, self.shape, memory)

    def convert(self, conversion: Conversion, to: int, stream: int) -> None:
        """Queues on `stream` tsocket_convert_on of these pictures [count, height, width, channels] to the address `to`."""
        self._owner.read_on(stream)
        count, height, width, _ = self.shape
        self._owner.handle.convert_on(self._owner.check(), conversion, self._address, count, height * width, to, stream)

    # --- DLPack and CUDA's array interface

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _dlpack.KDL_CUDA, self._device

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule of this memory; needs numpy. Nobody has to wait on `stream`, for the data is complete; the batch is
        released behind the work that is queued there by then. BufferError: a copy or another device is asked for."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("this memory is given as it is, where it is: to_host() copies it to host memory")
        number = _dlpack_stream(stream)
        options = {"max_version": max_version} if max_version is not None and _dlpack.says_read_only() else {}
        made = _dlpack.capsule(self, options)
        if number != NO_STREAM:
            self._owner.read_on(number)
        return made

    @property
    def __cuda_array_interface__(self) -> dict:
        """Version 3, read-only; without a stream, for the data is complete."""
        if not self._dtype.typestr:
            raise AttributeError(f"the CUDA array interface has no {self.dtype}; DLPack has")
        return dict(self._interface(read_only=True), strides=None, stream=None)

    # --- what only host memory can do

    def _not_here(self, *_: Any, **__: Any) -> "NoReturn":
        raise TypeError(f"this array is in the memory of cuda:{self._device}, which NumPy and the interpreter cannot read: "
                        "to_host() copies it, and Loader(..., device=\"host\") has the data there to begin with")

    __array__ = __getitem__ = __iter__ = numpy = memoryview = buffer = tolist = _not_here
