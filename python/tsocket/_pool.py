# SPDX-License-Identifier: Apache-2.0
"""Memory for results that come batch after batch in one size.

A fresh block of this size comes from the kernel page by page, which takes longer than converting a batch into it. So a
block comes back here when the last tensor in it dies, and is given out again. No Python code runs then, in which a
signal's exception would be swallowed.
"""
from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any, Dict, List, Tuple

from ._array import memory_type


class Pool:
    """Blocks of `len_bytes`. Any thread."""

    def __init__(self, len_bytes: int) -> None:
        self._len_bytes = len_bytes
        self._lent: Dict[int, Tuple[weakref.ref, mmap.mmap]] = {}  # what was made in each, by the reference's id
        self._back: List[weakref.ref] = []  # of these, what is dead

    def take(self) -> Any:
        """A ctypes array of bytes; the block comes back with its last reference."""
        try:
            _, block = self._lent.pop(id(self._back.pop()))
        except LookupError:  # none is back, or one that a signal's exception kept from being noted
            # not Python's default, which a forked child would share and write into
            block = mmap.mmap(-1, self._len_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory = memory_type(ctypes.c_uint8, self._len_bytes).from_buffer(block)
        reference = weakref.ref(memory, self._back.append)
        self._lent[id(reference)] = reference, block
        return memory
