# SPDX-License-Identifier: Apache-2.0
"""One field of a batch, where it lies: no copy is made until somebody asks for one.

The memory is the ring that all trainers share, mapped read-only. Whatever is made here of an Array (a numpy array, a
memoryview, a tensor by DLPack) keeps the batch: its place in the ring is given back when the last of them is gone.
"""
from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, List, Optional, Tuple

from ._library import BY_NAME, Dtype

_KDL_BFLOAT = 4  # DLDataTypeCode
_CPU = (1, 0)  # DLDevice: kDLCPU, 0

# Where DLDataType.code lies in the struct behind a capsule of each name: after data, device, ndim of its DLTensor,
# before which a versioned one has version, manager_ctx, deleter and flags.
_DTYPE_CODE_OFFSET = {b"dltensor": 20, b"dltensor_versioned": 32 + 20}


@functools.lru_cache(maxsize=256)
def memory_type(ctype: type, count: int) -> type:
    """A ctypes array whose objects can carry the owner of their memory along."""
    return type("_Memory", (ctype * count,), {})


class Array:
    """A view of one field of a batch. `shape` begins with the batch; `dtype` is a name such as "uint8".

    Takes part in DLPack (torch.from_dlpack, jax.dlpack, cupy.from_dlpack, numpy.from_dlpack) and in numpy's array
    interface (numpy.asarray); memoryview() and tolist() need neither.
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
        return f"<tsocket.Array {self.dtype} {list(self.shape)}>"

    def __getitem__(self, key: Any) -> Any:
        """What numpy's array would give; needs numpy."""
        return self.numpy()[key]

    # --- without anything

    def buffer(self) -> Any:
        """The memory as a flat ctypes array, which keeps the batch. Read-only, though ctypes does not know it: a write
        through it ends the process."""
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

    def _interface(self, read_only: bool, typestr: Optional[str] = None) -> dict:
        typestr = typestr or self._dtype.typestr
        if not typestr:
            raise TypeError(f"numpy has no {self.dtype}; memoryview() gives its bits, DLPack the numbers")
        return {"version": 3, "typestr": typestr, "shape": self.shape, "data": (self._address, read_only)}

    def numpy(self) -> Any:
        """A read-only numpy array of this memory."""
        import numpy

        return numpy.asarray(self)

    # --- DLPack

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _CPU

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A capsule of this memory. `stream` is of no account: data in host memory is complete when it is handed out.

        numpy makes it. The deleter runs wherever the last tensor dies, in threads that Python does not know and while
        exceptions are on their way, which only a deleter written in C survives. With numpy from 2.1 on and a caller
        that knows DLPack 1.0 the capsule says that the memory is read-only; older ones cannot say it.
        """
        import numpy

        bits = BY_NAME["bfloat16"] is self._dtype
        read_only = options.get("max_version") is not None and hasattr(numpy, "__array_namespace_info__")
        array = numpy.asarray(_Interface(self, self._interface(read_only, "<u2" if bits else None)))
        capsule = array.__dlpack__(**{k: v for k, v in options.items() if v is not None})
        if bits:
            _set_dtype_code(capsule, _KDL_BFLOAT)
        return capsule


class _Interface:
    """What numpy takes an Array for while a capsule is made; numpy keeps it, and so the Array."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: Array, interface: dict) -> None:
        self.__array_interface__ = interface
        self._array = array


def _set_dtype_code(capsule: Any, code: int) -> None:
    """In a capsule that nobody else has seen yet: numpy, which has no bfloat16, was told that it holds uint16."""
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = name_of(capsule)
    ctypes.c_uint8.from_address(pointer_of(capsule, name) + _DTYPE_CODE_OFFSET[name]).value = code
