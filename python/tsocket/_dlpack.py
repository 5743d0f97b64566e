# SPDX-License-Identifier: Apache-2.0
"""DLPack: capsules of memory that an Array keeps, on any device.

numpy makes them, because their deleters run wherever the last tensor dies, in threads that Python does not know and
while exceptions are on their way, which only a deleter written in C survives. What numpy cannot know, that the numbers
are bfloat16 or that the address is a GPU's, is put right in the capsule before anybody else has seen it; numpy itself
does not look at the memory.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from ._array import Array

CPU = (1, 0)  # DLDevice: kDLCPU, 0
KDL_CUDA = 2
_KDL_BFLOAT = 4  # DLDataTypeCode


class _Tensor(ctypes.Structure):
    """The beginning of struct DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("dtype_code", ctypes.c_uint8)]


# Where it lies in the struct behind a capsule of each name: a versioned one has version, manager_ctx, deleter and flags
# before it.
_TENSOR_OFFSET = {b"dltensor": 0, b"dltensor_versioned": 32}


class _Interface:
    """What numpy takes an Array for while a capsule is made; numpy keeps it, and so the Array."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: "Array", interface: dict) -> None:
        self.__array_interface__ = interface
        self._array = array


def capsule(array: "Array", options: Dict[str, Any]) -> Any:
    """A capsule that keeps the array. `options` are those of numpy's __dlpack__ that the caller has given."""
    import numpy

    bits = array.dtype == "bfloat16"
    read_only = "max_version" in options and says_read_only()
    made = numpy.asarray(_Interface(array, array._interface(read_only, "<u2" if bits else None))).__dlpack__(**options)
    tensor = _tensor_of(made)
    if bits:
        tensor.dtype_code = _KDL_BFLOAT
    tensor.device_type, tensor.device_id = array.__dlpack_device__()
    return made


def says_read_only() -> bool:
    """Whether this numpy knows DLPack 1.0, whose capsules can say that memory is read-only."""
    import numpy

    return hasattr(numpy, "__array_namespace_info__")


def _tensor_of(made: Any) -> _Tensor:
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = name_of(made)
    return _Tensor.from_address(pointer_of(made, name) + _TENSOR_OFFSET[name])
