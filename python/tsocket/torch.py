# SPDX-License-Identifier: Apache-2.0
"""A loader for PyTorch that takes a DataLoader's place in a training loop that stays as it is.

    from tsocket.torch import Loader

    loader = Loader("main/train", batch_size=64, dtype=torch.float32, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    for epoch in range(90):
        loader.set_epoch(epoch)
        for images, targets in loader:
            ...
"""
from __future__ import annotations

import ctypes
import math
import threading
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from . import _library, loader
from ._array import Array, HostArray
from ._batch import Batch
from ._device import DeviceArray, stream_number
from ._pool import Pool
from .errors import Invalid, Lost

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Targets = Union[None, Callable[[torch.Tensor], Any], Sequence[Any], torch.Tensor]

_FLOATS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def view(array: HostArray) -> torch.Tensor:
    """A tensor of the ring's own memory, which it keeps. Read it only: a write ends the process.

    Not by way of DLPack, so that it needs no numpy.
    """
    if array.nbytes == 0:
        return torch.empty(array.shape, dtype=getattr(torch, array.dtype))
    return torch.frombuffer(array.buffer(), dtype=getattr(torch, array.dtype)).reshape(array.shape)


class Loader:
    """Tuples of tensors, batch by batch: (images, targets) of a stream of photographs.

    The tensors are private copies, so that a training loop may change them in place. Pictures (uint8, [height, width,
    channels] with at most four channels) are converted on the way, in one pass over the memory, to

        (pixel / 255 - mean) / std       of `dtype`, as [batch, channels, height, width]

    which is what ToTensor and Normalize do, bit by bit. dtype=torch.uint8 leaves their numbers alone. Everything else is
    copied as it is.

    dtype          torch.float32 (default), float16, bfloat16 or uint8
    mean, std      one number per channel, or one for all; default 0 and 1
    channels_last  the same shape and numbers, in torch.channels_last memory
    device         where the tensors are wanted; default: the CPU. Where the daemon has its ring on that GPU, they are made
                   from there, on the current stream, behind which the batch is released; else they are copied there
    targets        what to give beside the pictures instead of `label`: a function of the tensor of indices, or a
                   sequence or tensor that is looked up by index
    fields         what a tuple holds; default: image and label where the stream has them, else all but `index`
    zero_copy      views of the ring instead, as they lie there: nothing is converted, nothing may be written, and a
                   tensor that is kept holds its batch (see tsocket.Loader)

    The other options are tsocket.Loader's. With last="pad" or a shard, padded samples repeat real ones.
    """

    def __init__(self, name: str = "main", batch_size: int = 64, *, dtype: torch.dtype = torch.float32,
                 mean: Union[None, float, Sequence[float]] = None, std: Union[None, float, Sequence[float]] = None,
                 channels_last: bool = False, device: Union[None, str, torch.device] = None, targets: Targets = None,
                 fields: Optional[Sequence[str]] = None, zero_copy: bool = False, **options: Any) -> None:
        if dtype not in _FLOATS and dtype is not torch.uint8:
            raise Invalid(f"dtype is {dtype}; float32, float16, bfloat16 and uint8 are possible")
        if zero_copy and (mean is not None or std is not None or channels_last):
            raise Invalid("zero_copy gives the pictures as they lie in the ring: without mean, std and channels_last")
        self._dtype = dtype
        self._mean, self._std = mean, std
        self._channels_last = channels_last
        self._device = torch.device(device if device is not None else "cpu")
        self._targets = targets
        self._zero_copy = zero_copy
        self._pools: Dict[int, Pool] = {}
        self._ready = threading.local()  # what is converted and not handed out yet, and the place before it
        options.setdefault("device", str(self._device) if self._device.type == "cuda" else "host")
        self.loader = loader.Loader(name, batch_size, **options)
        try:
            self._names = self._choose(fields)
            self._conversions = {name: self._conversion(shape[-1]) for name, kind, shape in self.loader.fields
                                 if name in self._names and _is_picture(kind, shape)}
        except BaseException:
            self.loader.close()
            raise

    def _choose(self, fields: Optional[Sequence[str]]) -> List[str]:
        there = [field.name for field in self.loader.fields]
        if fields is None:
            both = "image" in there and "label" in there
            fields = ["image", "label"] if both else [name for name in there if name != "index"]
            if self._targets is not None:
                fields = fields[:1]
        for name in fields:
            if name not in there:
                raise Invalid(f"{self.loader.name} has no field {name!r}; there are {', '.join(there)}")
        if self._targets is not None and "index" not in there:
            raise Invalid(f"targets are looked up by the field \"index\", which {self.loader.name} has not")
        return list(fields)

    def _conversion(self, channels: int) -> Optional[_library.Conversion]:
        if self._dtype is torch.uint8:
            return None
        conversion = _library.Conversion()
        _library.load().tsocket_conversion_init(conversion)
        conversion.dtype = _library.BY_NAME[_FLOATS[self._dtype]].number
        conversion.channels_first = not self._channels_last
        conversion.channels = channels
        for target, values in ((conversion.mean, self._mean), (conversion.std, self._std)):
            target[:channels] = _per_channel(values, target[:channels])
        return conversion

    # --- what a DataLoader has

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def batch_size(self) -> int:
        return self.loader.batch_size

    @property
    def dataset(self) -> "range":
        """Something as long as the dataset."""
        return range(self.loader.samples)

    @property
    def sampler(self) -> "Loader":
        """For loops that call loader.sampler.set_epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """The daemon gives each epoch an order of its own, the same for all ranks: there is nothing to be set."""

    def state_dict(self) -> Dict[str, Any]:
        """The place after the last batch that was handed out."""
        if getattr(self._ready, "tensors", None) is not None or self.loader._unreleased() is not None:
            return self._ready.before  # a signal's exception has kept it from being handed out
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As tsocket.Loader.load_state_dict; `resume` does the same at once, as ranks need it."""
        self.loader.load_state_dict(state)
        self._ready = threading.local()

    def __iter__(self) -> Iterator[Tuple[torch.Tensor, ...]]:
        return _Epoch(self, iter(self.loader))

    def _tensors_of(self, batch: Batch) -> Tuple[Any, ...]:
        tensors = [self._tensor(name, batch[name]) for name in self._names]
        if self._targets is not None:
            tensors.append(self._targets_of(view(batch["index"].to_host()).clone()))
        return tuple(tensors)

    def pause(self) -> None:
        """As tsocket.Loader.pause."""
        self.loader.pause()

    def resume(self) -> None:
        """As tsocket.Loader.resume."""
        self.loader.resume()

    def paused(self) -> ContextManager[None]:
        """with loader.paused(): validate()"""
        return self.loader.paused()

    def epochs(self) -> Iterator[int]:
        """As tsocket.Loader.epochs."""
        return self.loader.epochs()

    def close(self) -> None:
        self._ready = threading.local()
        self.loader.close()

    __reduce_ex__ = loader.Loader.__reduce_ex__

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- making tensors

    def _tensor(self, name: str, array: Array) -> torch.Tensor:
        if isinstance(array, DeviceArray):
            return self._tensor_of_device(name, array)
        assert isinstance(array, HostArray)
        if self._zero_copy:
            return view(array).to(self._device)
        if name not in self._conversions:
            return self._copy(view(array))
        if self._device.type == "cpu":
            return self._convert_here(self._conversions[name], array)
        return self._convert_there(self._conversions[name], view(array).to(self._device))

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone() if self._device.type == "cpu" else tensor.to(self._device)

    # --- from a ring in the GPU's memory

    def _tensor_of_device(self, name: str, array: DeviceArray) -> torch.Tensor:
        conversion = self._conversions.get(name)
        if conversion is not None and not self._zero_copy:
            return self._convert_in_place(conversion, array)
        tensor = torch.from_dlpack(array)
        if self._zero_copy:
            return tensor
        return tensor.permute(0, 3, 1, 2).clone(memory_format=self._layout()) if name in self._conversions \
            else tensor.clone()

    def _convert_in_place(self, conversion: _library.Conversion, array: DeviceArray) -> torch.Tensor:
        """Converted by the library, on the current stream."""
        count, height, width, channels = array.shape
        result = self._empty_there(count, channels, height, width)
        array.convert(conversion, result.data_ptr(), stream_number(self._current_stream()))
        return result

    def _empty_there(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device, memory_format=self._layout())

    def _current_stream(self) -> Any:
        return torch.cuda.current_stream(self._device)

    # --- from a ring in host memory

    def _convert_here(self, conversion: Optional[_library.Conversion], array: HostArray) -> torch.Tensor:
        count, height, width, channels = array.shape
        result = self._result(count, height, width, channels)
        if conversion is None:
            return result.copy_(view(array).permute(0, 3, 1, 2))
        _library.check(_library.load().tsocket_convert(conversion, ctypes.addressof(array.buffer()), count, height * width,
                                                       result.data_ptr()))
        return result

    def _result(self, count: int, height: int, width: int, channels: int) -> torch.Tensor:
        """An empty tensor for so many pictures, of shape [count, channels, height, width] in the layout wanted."""
        elements = height * width * channels
        full_bytes = self.batch_size * elements * torch.empty(0, dtype=self._dtype).element_size()
        pool = self._pools.setdefault(full_bytes, Pool(full_bytes))
        flat = torch.frombuffer(pool.take(), dtype=self._dtype)[:count * elements]
        if self._channels_last:
            return flat.view(count, height, width, channels).permute(0, 3, 1, 2)
        return flat.view(count, channels, height, width)

    def _convert_there(self, conversion: Optional[_library.Conversion], bytes_there: torch.Tensor) -> torch.Tensor:
        """On another device: the bytes, a quarter of the numbers, have been copied there, and are converted there."""
        layout = self._layout()
        pictures = bytes_there.permute(0, 3, 1, 2)
        if conversion is None:
            return pictures.contiguous(memory_format=layout)
        channels = pictures.shape[1]
        mean = torch.tensor(conversion.mean[:channels], device=self._device).view(-1, 1, 1)
        std = torch.tensor(conversion.std[:channels], device=self._device).view(-1, 1, 1)
        return pictures.to(torch.float32).div_(255).sub_(mean).div_(std).to(self._dtype).contiguous(memory_format=layout)

    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self._channels_last else torch.contiguous_format

    def _targets_of(self, index: torch.Tensor) -> Any:
        targets = self._targets
        if callable(targets):
            return targets(index)
        if not isinstance(targets, torch.Tensor):
            targets = self._targets = torch.as_tensor(targets)
        return targets[index].to(self._device)


class _Epoch:
    """The rest of an epoch. No generator, which an error such as Timeout would end."""

    def __init__(self, loader: Loader, batches: Iterator[Batch]) -> None:
        self._loader = loader
        self._batches = batches

    def __iter__(self) -> Iterator[Tuple[torch.Tensor, ...]]:
        return self

    def __next__(self) -> Tuple[Any, ...]:
        ready = self._loader._ready
        while True:
            if getattr(ready, "tensors", None) is None:
                ready.batch = self._loader.loader._unreleased()
                if ready.batch is None:  # else a signal's exception kept it from being converted
                    ready.before = self._loader.loader.state_dict()
                    ready.batch = next(self._batches)
                ready.tensors = self._loader._tensors_of(ready.batch)
            try:
                ready.batch.release()
            except Lost:  # while it was copied: the copy is thrown away, and the batch comes again
                ready.tensors = None
                continue
            tensors, ready.tensors, ready.batch = ready.tensors, None, None
            return tensors


def _is_picture(dtype: str, shape: Tuple[int, ...]) -> bool:
    return dtype == "uint8" and len(shape) == 3 and shape[2] <= _library.CHANNELS_MAX and math.prod(shape) > 0


def _per_channel(values: Union[None, float, Sequence[float]], default: Sequence[float]) -> Sequence[float]:
    if values is None:
        return default
    numbers = [float(values)] * len(default) if isinstance(values, (int, float)) else [float(v) for v in values]
    if len(numbers) != len(default):
        raise Invalid(f"mean or std has {len(numbers)} numbers, the pictures have {len(default)} channels")
    return numbers
