# SPDX-License-Identifier: Apache-2.0
"""Memory for results that come batch after batch in one size.

A fresh block of this size comes from the kernel page by page, which takes longer than converting a batch into it. So a
block comes back here when the last tensor in it dies, and is given out again.
"""
from __future__ import annotations

import ctypes
import mmap
from typing import Any, List

from ._array import memory_type


class Pool:
    """Blocks of `len_bytes`. Any thread."""

    def __init__(self, len_bytes: int) -> None:
        self._len_bytes = len_bytes
        self._free: List[mmap.mmap] = []

    def take(self) -> Any:
        """A ctypes array of bytes; the block comes back with its last reference."""
        try:
            block = self._free.pop()
        except IndexError:
            # not Python's default, which a forked child would share and write into
            block = mmap.mmap(-1, self._len_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory = memory_type(ctypes.c_uint8, self._len_bytes).from_buffer(block)
        memory.owner = _Return(self._free, block)
        return memory


class _Return:
    """Dies with the memory it is attached to."""

    __slots__ = ("_free", "_block")

    def __init__(self, free: List[mmap.mmap], block: mmap.mmap) -> None:
        self._free = free
        self._block = block

    def __del__(self) -> None:
        self._free.append(self._block)
