# SPDX-License-Identifier: Apache-2.0
"""Training data that one process of this machine prepares, and any number of trainers read, without a copy.

    import tsocket

    for batch in tsocket.Loader("main/train", batch_size=64):
        train(batch["image"], batch["label"])

    Loader, Batch, Array    the consumer: batches in place, by DLPack, as numpy arrays or memoryviews
    tsocket.torch.Loader    (images, targets) of private torch tensors: takes a DataLoader's place
    Producer                serves any iterable of arrays through the same ring
    MapProducer             serves a dataset of which any sample can be made again: loaders may pause, come late, resume
    tsocket.compat          TensorProducer and TensorConsumer, for scripts that were written for TensorSocket

It is Python alone, over libtsocket.so by ctypes. Neither numpy nor torch is imported before it is used.
"""
from ._array import Array, HostArray
from ._device import DeviceArray
from ._library import __version__, library_path
from .errors import (BadSample, Busy, Device, Elapsed, Error, Forked, Gone, Held, Invalid, LibraryMismatch,
                     LibraryNotFound, Lost, NotFound, OutOfMemory, Protocol, Refused, ResumeError, StreamEnd, System, Timeout)
from .loader import Batch, EndedEpoch, Field, Loader
from .map_producer import MapProducer
from .producer import Producer

__all__ = [
    "Array", "Batch", "DeviceArray", "EndedEpoch", "Field", "HostArray", "Loader", "MapProducer", "Producer",
    "library_path", "__version__", "BadSample", "Busy", "Device", "Elapsed", "Error", "Forked", "Gone", "Held", "Invalid",
    "LibraryMismatch", "LibraryNotFound", "Lost", "NotFound", "OutOfMemory", "Protocol", "Refused", "ResumeError",
    "StreamEnd", "System", "Timeout",
]
