# SPDX-License-Identifier: Apache-2.0
"""What a Python source gives, as the fields of a stream: dense memory of a known type, batch by batch."""
from __future__ import annotations

import math
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _library
from ._array import Array
from .errors import Invalid


class Part(NamedTuple):
    """One field of a batch as it came: dense memory, and what keeps it."""

    dtype: str
    shape: Tuple[int, ...]  # of one sample
    count: int
    address: int
    keep: Any

    @property
    def sample_bytes(self) -> int:
        return _library.BY_NAME[self.dtype].size * math.prod(self.shape)


def _part_of_torch(name: str, tensor: Any) -> Part:
    tensor = tensor.detach().cpu().contiguous()
    dtype = _checked(name, str(tensor.dtype).rpartition(".")[2])
    return Part(dtype, tuple(tensor.shape[1:]), len(tensor), tensor.data_ptr(), tensor)


def _part_of_ours(array: Array) -> Part:
    """As it is: numpy does not know all of its types."""
    array = array.to_host()
    return Part(array.dtype, array.shape[1:], len(array), array._address, array)


def _part_of_others(name: str, value: Any) -> Part:
    import numpy

    array = numpy.asarray(value)
    dtype = _checked(name, array.dtype.name)  # of either byte order
    array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return Part(dtype, array.shape[1:], len(array), array.ctypes.data, array)


def _checked(name: str, dtype: str) -> str:
    if dtype not in _library.BY_NAME:
        hint = "; use uint8 for it" if dtype == "bool" else ""
        raise Invalid(f"field {name} is of {dtype}; possible are {', '.join(_library.BY_NAME)}{hint}")
    return dtype


def _part(name: str, value: Any) -> Part:
    torch = sys.modules.get("torch")  # whoever gives tensors has imported it
    dimensions = getattr(value, "ndim", None)
    if dimensions == 0 or isinstance(value, (int, float, str, bytes)):
        raise Invalid(f"field {name} is one value, {value!r:.60}, where one per sample is needed")
    if isinstance(value, Array):
        return _part_of_ours(value)
    return _part_of_torch(name, value) if torch is not None and isinstance(value, torch.Tensor) \
        else _part_of_others(name, value)


def parts_of(batch: Any, names: Optional[Sequence[str]]) -> Dict[str, Part]:
    """The fields of one batch: a mapping, a tuple or list, or a single array."""
    if isinstance(names, str):
        raise Invalid(f"fields is the string {names!r}; it must be a list of names")
    if isinstance(batch, Mapping):
        missing = [name for name in (names or ()) if name not in batch]
        if missing:
            raise Invalid(f"a batch has no field {missing[0]!r}; there are {', '.join(map(str, batch))}")
        values = {name: batch[name] for name in (names or batch)}
    else:
        listed = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        names = list(names) if names is not None else _default_names(len(listed))
        if len(names) != len(listed):
            raise Invalid(f"a batch has {len(listed)} fields, and there are {len(names)} names: {', '.join(names)}")
        if len(set(names)) != len(names):
            raise Invalid(f"two fields have the same name: {', '.join(names)}")
        values = dict(zip(names, listed))
    if not values:
        raise Invalid("a batch has no fields")
    for name in values:
        if not isinstance(name, str):
            raise Invalid(f"the name of a field is {name!r}; it must be a string")
    parts = {name: _part(name, value) for name, value in values.items()}
    if len({part.count for part in parts.values()}) != 1:
        raise Invalid("the fields of a batch have different lengths: "
                      + ", ".join(f"{name} {part.count}" for name, part in parts.items()))
    return parts


def _default_names(count: int) -> List[str]:
    return ["image", "label"] if count == 2 else [f"field{i}" for i in range(count)]
