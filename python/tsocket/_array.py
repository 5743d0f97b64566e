# SPDX-License-Identifier: Apache-2.0
"""One field of a batch, where it lies: no copy is made until somebody asks for one.

The memory is the ring that all trainers share, mapped read-only. Whatever is made here of an Array (a numpy array, a
memoryview, a tensor by DLPack) keeps the batch: its place in the ring is given back when the last of them is gone.

    Array              what all have: shape, dtype, DLPack, to_host()
      HostArray        in host memory: numpy, memoryview, tolist() too
      DeviceArray      in the memory of a GPU (_device.py)
"""
from __future__ import annotations

import functools
import math
from typing import Any, List, Optional, Tuple

from . import _dlpack
from ._handle import Window, not_copied
from ._library import Dtype


@functools.lru_cache(maxsize=256)
def memory_type(ctype: type, count: int) -> type:
    """A ctypes array whose objects can carry the owner of their memory along."""
    return type("_Memory", (ctype * count,), {})


class Array:
    """A view of one field of a batch. `shape` begins with the batch; `dtype` is a name such as "uint8".

    Takes part in DLPack: torch.from_dlpack, jax.dlpack, cupy.from_dlpack. What is in host memory, as it is unless a
    Loader asks for something else, is a numpy array (numpy.asarray) and a memoryview as well.
    """

    __slots__ = ("shape", "_dtype", "_address", "_owner", "__weakref__")

    def __init__(self, address: int, dtype: Dtype, shape: Tuple[int, ...], owner: object) -> None:
        self.shape = shape
        self._dtype = dtype
        self._address = address
        self._owner = owner  # keeps the memory

    @property
    def dtype(self) -> str:
        return self._dtype.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self._dtype.size

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<tsocket.{type(self).__name__} {self.dtype} {list(self.shape)}>"

    __reduce_ex__ = not_copied

    def to_host(self) -> "HostArray":
        """The same in host memory: itself where it is there already, else a copy, which keeps no batch."""
        raise NotImplementedError

    def _interface(self, read_only: bool, typestr: Optional[str] = None) -> dict:
        """As numpy's array interface and CUDA's have it."""
        if isinstance(self._owner, Window):
            self._owner.check()
        typestr = typestr or self._dtype.typestr
        if not typestr:
            raise TypeError(f"numpy has no {self.dtype}; .memoryview() gives its bits, DLPack the numbers")
        return {"version": 3, "typestr": typestr, "shape": self.shape, "data": (self._address, read_only)}


class HostArray(Array):
    """An Array in host memory."""

    __slots__ = ()

    def to_host(self) -> "HostArray":
        """Itself."""
        return self

    def __getitem__(self, key: Any) -> Any:
        """What numpy's array would give; needs numpy."""
        return self.numpy()[key]

    # --- without anything

    def buffer(self) -> Any:
        """The memory as a flat ctypes array, which keeps the batch. Read-only, though ctypes does not know it: a write
        through it ends the process."""
        if isinstance(self._owner, Window):
            self._owner.check()
        memory = memory_type(self._dtype.ctype, math.prod(self.shape)).from_address(self._address)
        memory.owner = self._owner
        return memory

    def memoryview(self) -> memoryview:
        """A read-only memoryview of the same shape; float16 and bfloat16 as their bits ("H")."""
        flat = memoryview(self.buffer()).toreadonly().cast("B")
        return flat.cast(self._dtype.ctype._type_, self.shape)

    def tolist(self) -> List[Any]:
        if self._dtype.name in ("float16", "bfloat16"):
            raise TypeError(f"{self.dtype}: Python has no such number; convert it with numpy or torch")
        return self.memoryview().tolist()

    # --- numpy

    @property
    def __array_interface__(self) -> dict:
        return self._interface(read_only=True)

    def numpy(self) -> Any:
        """A read-only numpy array of this memory."""
        import numpy

        return numpy.asarray(self)

    # --- DLPack

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _dlpack.CPU

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A capsule of this memory; needs numpy. `stream` is of no account: data in host memory is complete when it is
        handed out. With numpy from 2.1 on and a caller that knows DLPack 1.0 the capsule says that the memory is
        read-only; older ones cannot say it."""
        return _dlpack.capsule(self, {key: value for key, value in options.items() if value is not None})
