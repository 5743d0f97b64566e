# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, one class for each code of libtsocket. `except tsocket.Error` catches them all."""
from __future__ import annotations


class Error(RuntimeError):
    """An error of libtsocket; `code` is its name in the C header without the prefix, such as "GONE"."""

    code = "ERROR"


class StreamEnd(Error):
    """There are no more epochs."""

    code = "END"


class Elapsed(Error):
    """This loader was detached, because the others had waited for it for too long: open again with its last state."""

    code = "ELAPPED"


class Lost(Elapsed):
    """A batch was written over while it was held, for the others had waited for too long: what was computed from it
    may be worthless. The loader goes on, and gives it again before anything else."""


class Held(Error):
    """As many batches are held as were announced by `hold`."""

    code = "EHELD"


class Gone(Error, ConnectionError):
    """The daemon has ended before the stream did."""

    code = "GONE"


class Refused(Error):
    """The daemon refuses this consumer; the text has the numbers that do not fit and what to change."""

    code = "EREFUSED"


class NotFound(Error, LookupError):
    """No such daemon, stream or field."""

    code = "ENOTFOUND"


class Invalid(Error, ValueError):
    """An argument that is not possible."""

    code = "EINVAL"


class Forked(Error):
    """The object belongs to the parent process: open one of its own in the child."""

    code = "EFORK"


class OutOfMemory(Error, MemoryError):
    """Not enough memory; the text has what is needed and what is available."""

    code = "ENOMEM"


class System(Error, OSError):
    """A system call failed."""

    code = "ESYSTEM"


class Protocol(Error):
    """The other side does not speak this protocol: another version of tsocket."""

    code = "EPROTOCOL"


class Busy(Error):
    """The name is taken by a running daemon."""

    code = "EBUSY"


class BadSample(Error):
    """Too many samples cannot be used."""

    code = "EBAD_SAMPLE"


class Device(Error):
    """A call of the GPU's driver failed; the text has its name for the error."""

    code = "EDEVICE"


class Timeout(Error, TimeoutError):
    """Nothing came within the time that was set."""

    code = "EAGAIN"


class ResumeError(Error):
    """The saved place cannot be reached from where this loader stands."""

    code = "RESUME"


class LibraryNotFound(Error, ImportError):
    """libtsocket.so is not there."""

    code = "LIBRARY"


class LibraryMismatch(Error, ImportError):
    """libtsocket.so is of another version than this package."""

    code = "LIBRARY"


BY_CODE = {error.code: error for error in (
    StreamEnd, Elapsed, Held, Gone, Refused, NotFound, Invalid, Forked, OutOfMemory, System, Protocol, Busy, BadSample,
    Device, Timeout)}
