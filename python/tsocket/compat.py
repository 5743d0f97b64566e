# SPDX-License-Identifier: Apache-2.0
"""For scripts that were written for TensorSocket: only the import changes.

    from tsocket.compat import TensorProducer          from tsocket.compat import TensorConsumer

    producer = TensorProducer(loader, "5556", "5557")  consumer = TensorConsumer("5556", "5557", batch_size=16)
    for epoch in range(10):                            for index, (images, labels) in consumer:
        for _ in producer:                                 ...
            pass
    producer.join()

The arguments are TensorSocket's, and mean this here:

    port                      picks the name, "port-5556"; a string and a number are the same. Nothing listens on it
    batch_size                the consumer's own, 64 by default; of any size up to the loader's, or 64 where that is less
    unpack_fn, pack_fn        called with the tuple of tensors of a batch
    rubber_band_pct           of no account: who comes late begins with the next epoch, and loses nothing of it
    ack_port, heart_ports, consumer_max_buffer_size, producer_batch_size
                              of no account: there are no such sockets, and one ring for all

Where TensorSocket goes wrong this does not: an epoch ends for the consumer, too (StopIteration), the next `for` reads the
next one, the last samples of an epoch come, nobody is dropped for being slow, and len() is the number of batches. After
the last epoch a `for` ends at once, and `consumer.finished` is true.
"""
from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Tuple, Union

import torch

from ._batch import Batch
from .errors import Lost, StreamEnd
from .loader import Loader
from .producer import Producer
from .torch import view

Port = Union[int, str]


def _same(data: Any) -> Any:
    return data


def _name(port: Port) -> str:
    return f"port-{int(port)}"


class _Packed:
    """A loader whose batches go through pack_fn."""

    def __init__(self, loader: Iterable[Any], pack: Callable[[Any], Any]) -> None:
        self._loader = loader
        self._pack = pack
        for name in ("dataset", "batch_sampler"):  # what samples_of asks for
            if hasattr(loader, name):
                setattr(self, name, getattr(loader, name))

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        if batches is self._loader:  # it may never end: an epoch is len() of it, and the next one goes on behind
            batches = itertools.islice(batches, len(self))
        return map(self._pack, batches)


class TensorProducer:
    """Serves a data loader to TensorConsumers of this machine: iterate over it, once per epoch, then join()."""

    def __init__(self, data_loader: Iterable[Any], port: Port = 5555, ack_port: Port = 5556,
                 heart_ports: Tuple[Port, Port] = (4444, 4445), rubber_band_pct: float = 0.005,
                 pack_fn: Callable[[Any], Any] = _same, consumer_max_buffer_size: int = 10,
                 producer_batch_size: int = 8) -> None:
        self.port = port
        self.data_loader = data_loader
        self.data_loader_len = len(data_loader)  # type: ignore[arg-type]
        self._producer = Producer(_Packed(data_loader, pack_fn), _name(port))
        self._batches: Optional[Iterator[int]] = None

    @property
    def epoch(self) -> int:
        """Epochs that have been served."""
        return self._producer.epoch

    def __len__(self) -> int:
        return self.data_loader_len

    def __iter__(self) -> "TensorProducer":
        self._producer.end_epoch()
        self._batches = self._producer.batches()
        return self

    def __next__(self) -> None:
        if self._batches is None:
            iter(self)
        assert self._batches is not None
        next(self._batches)

    def join(self) -> None:
        """Ends the consumers' streams with the epochs that were served, waits until they have read them, and closes."""
        self._producer.finish()
        self._producer.join()


class TensorConsumer:
    """Takes a data loader's place; gives (index of the batch in its epoch, tuple of tensors)."""

    def __init__(self, port: Port = 5555, ack_port: Port = 5556, heart_ports: Tuple[Port, Port] = (4444, 4445),
                 unpack_fn: Callable[[Any], Any] = _same, batch_size: int = 64) -> None:
        self.unpack_fn = unpack_fn
        self._loader = Loader(_name(port), batch_size, connect_timeout=None)
        self.batch_size = batch_size
        self.batch_count = 0  # of this epoch, handed out
        self.epoch = 0
        self.finished = False
        self._batches: Optional[Iterator[Batch]] = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> "TensorConsumer":
        return self

    def __next__(self) -> Tuple[int, Any]:
        if self._batches is None:
            self._batches = iter(self._loader)
        try:
            tensors = _tensors(next(self._batches))
        except StreamEnd:
            self.finished = True
            raise StopIteration from None
        except StopIteration:
            self._batches = None
            self.batch_count = 0
            self.epoch += 1
            raise
        except Lost:  # while it was copied: it comes again
            return next(self)
        index = self.batch_count
        self.batch_count += 1
        return index, self.unpack_fn(tensors)

    def close(self) -> None:
        self._loader.close()


def _tensors(batch: Batch) -> Sequence[torch.Tensor]:
    """Private copies: TensorSocket's users write in place."""
    tensors = tuple(view(batch[name]).clone() for name in batch)
    batch.release()
    return tensors


__all__ = ["TensorConsumer", "TensorProducer"]
