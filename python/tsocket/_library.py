# SPDX-License-Identifier: Apache-2.0
"""libtsocket.so: where it is found, its structs and calls as the headers in include/tsocket declare them, its errors.

It is looked for at

    $TSOCKET_LIBRARY                        a file; nothing else is tried when it is set
    the loader's own way (ldconfig, LD_LIBRARY_PATH)
    lib, lib64, lib/MULTIARCH under the folder that Python is installed in, /usr/local and /usr

and is opened at the first use of this module, so that the error can say all of that. Only load() and what it returns
are used by the rest of the package, and by nobody else.
"""
from __future__ import annotations

import ctypes
import functools
import os
import sys
import sysconfig
from typing import List

from . import errors

__version__ = "0.1.0"

SONAME = "libtsocket.so.0"

# The limits and enumerations of tsocket.h.
FIELDS_MAX = 16
NDIM_MAX = 6
NAME_MAX = 64
TOKEN_MAX = 128
STAGES_MAX = 4
CHANNELS_MAX = 4

OK = 0
EAGAIN = -1
EPOCH_END = -2
END = -3
ELAPPED = -4
EHELD = -5
EREFUSED = -7
ENOTFOUND = -8
EFORK = -10
EINTR = -11

LAST = {"keep": 0, "drop": 1, "pad": 2}
JOIN = {"wait": 0, "now": 1, "catch-up": 2}
ON_LAG = {"park": 0, "skip": 1, "detach": 2}
ON_BAD = {"skip": 0, "fail": 1}
MEMORY_HOST = 0


class Dtype:
    """An element type: its number in tsocket.h, its names, and how each way out of here writes it."""

    def __init__(self, number: int, name: str, size: int, ctype: type, typestr: str) -> None:
        self.number = number
        self.name = name
        self.size = size
        self.ctype = ctype  # of the same size; half precision, which C has not, as its bits
        self.typestr = typestr  # of numpy's array interface; "" where numpy has no such type


DTYPES = {dtype.number: dtype for dtype in (
    Dtype(1, "uint8", 1, ctypes.c_uint8, "|u1"),
    Dtype(2, "int32", 4, ctypes.c_int32, "<i4"),
    Dtype(3, "int64", 8, ctypes.c_int64, "<i8"),
    Dtype(4, "float16", 2, ctypes.c_uint16, "<f2"),
    Dtype(5, "bfloat16", 2, ctypes.c_uint16, ""),
    Dtype(6, "float32", 4, ctypes.c_float, "<f4"),
    Dtype(7, "float64", 8, ctypes.c_double, "<f8"))}
BY_NAME = {dtype.name: dtype for dtype in DTYPES.values()}


class Options(ctypes.Structure):
    """struct tsocket_options"""

    _fields_ = [
        ("size", ctypes.c_size_t), ("hold", ctypes.c_uint32), ("shard_rank", ctypes.c_uint32),
        ("shard_world", ctypes.c_uint32), ("epochs", ctypes.c_uint64), ("last", ctypes.c_int), ("join", ctypes.c_int),
        ("fields", ctypes.c_char_p), ("consumer_name", ctypes.c_char_p), ("device", ctypes.c_char_p),
        ("resume", ctypes.c_char_p), ("connect_timeout_ms", ctypes.c_int), ("reconnect_ms", ctypes.c_int),
        ("on_lag", ctypes.c_int), ("max_lag", ctypes.c_uint64)]


class Field(ctypes.Structure):
    """struct tsocket_field"""

    _fields_ = [
        ("name", ctypes.c_char * (NAME_MAX + 1)), ("dtype", ctypes.c_int), ("ndim", ctypes.c_uint32),
        ("shape", ctypes.c_uint64 * NDIM_MAX), ("sample_bytes", ctypes.c_uint64)]


class Info(ctypes.Structure):
    """struct tsocket_info"""

    _fields_ = [
        ("daemon", ctypes.c_char * (NAME_MAX + 1)), ("stream", ctypes.c_char * (NAME_MAX + 1)),
        ("n_fields", ctypes.c_uint32), ("fields", Field * FIELDS_MAX), ("batch_size", ctypes.c_uint32),
        ("epoch_samples", ctypes.c_uint64), ("batches", ctypes.c_uint64), ("first_batches", ctypes.c_uint64), ("epoch", ctypes.c_uint64),
        ("position", ctypes.c_uint64), ("first", ctypes.c_uint64), ("capacity", ctypes.c_uint64),
        ("resident", ctypes.c_bool), ("catch_up", ctypes.c_bool), ("memory", ctypes.c_int), ("device", ctypes.c_int),
        ("device_uuid", ctypes.c_char * 48)]


class Batch(ctypes.Structure):
    """struct tsocket_batch"""

    _fields_ = [
        ("epoch", ctypes.c_uint64), ("own_epoch", ctypes.c_uint64), ("first", ctypes.c_uint64),
        ("position", ctypes.c_uint64), ("count", ctypes.c_uint32), ("valid", ctypes.c_uint32),
        ("skipped", ctypes.c_uint64), ("data", ctypes.c_void_p * FIELDS_MAX), ("id", ctypes.c_uint64)]


class Epoch(ctypes.Structure):
    """struct tsocket_epoch"""

    _fields_ = [("epoch", ctypes.c_uint64), ("own_epoch", ctypes.c_uint64), ("samples", ctypes.c_uint64),
                ("received", ctypes.c_uint64), ("skipped", ctypes.c_uint64)]


class Conversion(ctypes.Structure):
    """struct tsocket_conversion"""

    _fields_ = [
        ("size", ctypes.c_size_t), ("dtype", ctypes.c_int), ("channels_first", ctypes.c_bool),
        ("channels", ctypes.c_uint32), ("mean", ctypes.c_float * CHANNELS_MAX), ("std", ctypes.c_float * CHANNELS_MAX)]


class Claim(ctypes.Structure):
    """struct tsocket_claim"""

    _fields_ = [
        ("stream", ctypes.c_uint32), ("epoch", ctypes.c_uint64), ("ordinal", ctypes.c_uint64),
        ("position", ctypes.c_uint64), ("ring", ctypes.c_uint32), ("data", ctypes.c_void_p * FIELDS_MAX),
        ("stage_ns", ctypes.c_uint64 * STAGES_MAX), ("begun_ns", ctypes.c_uint64)]


class ProducerOptions(ctypes.Structure):
    """struct tsocket_producer_options"""

    _fields_ = [
        ("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("wait_for", ctypes.c_uint32),
        ("join_grace_ms", ctypes.c_uint32), ("max_hold_ms", ctypes.c_uint32), ("side_share", ctypes.c_uint32),
        ("max_crashes", ctypes.c_uint32), ("exit_when_idle", ctypes.c_bool), ("ledger", ctypes.c_char_p),
        ("libraries", ctypes.c_char_p),
        ("stage_names", ctypes.c_char_p * STAGES_MAX), ("allow_uids", ctypes.POINTER(ctypes.c_uint32)),
        ("n_allow_uids", ctypes.c_uint32), ("allow_gids", ctypes.POINTER(ctypes.c_uint32)),
        ("n_allow_gids", ctypes.c_uint32)]


class StreamOptions(ctypes.Structure):
    """struct tsocket_stream_options"""

    _fields_ = [
        ("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("fields", ctypes.POINTER(Field)),
        ("n_fields", ctypes.c_uint32), ("epoch_samples", ctypes.c_uint64), ("epochs", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64), ("max_batch", ctypes.c_uint32), ("on_bad", ctypes.c_int),
        ("max_bad", ctypes.c_uint64), ("null", ctypes.c_bool), ("resident", ctypes.c_bool),
        ("first_epoch", ctypes.c_uint64), ("dataset_id", ctypes.c_char_p), ("recipe_id", ctypes.c_char_p),
        ("seed", ctypes.c_uint64), ("recipe", ctypes.c_char_p), ("side_rings", ctypes.c_uint32),
        ("side_capacity", ctypes.c_uint64),
        ("source", ctypes.c_char_p), ("device", ctypes.c_char_p), ("share", ctypes.c_int)]


# By the name of the C struct: what tests/python/test_layout.py compares with the headers.
STRUCTS = {f"tsocket_{name}": struct for name, struct in (
    ("options", Options), ("field", Field), ("info", Info), ("batch", Batch), ("epoch", Epoch),
    ("conversion", Conversion), ("claim", Claim), ("producer_options", ProducerOptions),
    ("stream_options", StreamOptions))}


def _declare(library: ctypes.CDLL) -> None:
    handle, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    out = ctypes.POINTER

    def call(name: str, result: object, *arguments: object) -> None:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments

    call("tsocket_version", text)
    call("tsocket_errname", text, integer)
    call("tsocket_strerror", text, integer)
    call("tsocket_last_error", text)
    call("tsocket_options_init", None, out(Options))
    call("tsocket_open", integer, text, ctypes.c_uint32, out(Options), out(handle))
    call("tsocket_describe", integer, handle, out(Info))
    call("tsocket_next", integer, handle, integer, out(Batch))
    call("tsocket_release", integer, handle, out(Batch))
    call("tsocket_put_back", integer, handle, out(Batch))
    call("tsocket_release_after", integer, handle, out(Batch), handle)
    call("tsocket_copy", integer, handle, out(Batch), ctypes.c_uint32, handle)
    call("tsocket_flush", integer, handle)
    call("tsocket_position", integer, handle, out(ctypes.c_uint64), out(ctypes.c_uint64))
    call("tsocket_ended_epoch", integer, handle, out(Epoch))
    call("tsocket_token", integer, handle, out(Batch), text)
    call("tsocket_pause", integer, handle)
    call("tsocket_resume", integer, handle)
    call("tsocket_close", None, handle)
    call("tsocket_conversion_init", None, out(Conversion))
    call("tsocket_convert", integer, out(Conversion), handle, ctypes.c_uint64, ctypes.c_uint64, handle)
    call("tsocket_convert_on", integer, handle, out(Conversion), handle, handle, ctypes.c_uint64, ctypes.c_uint64, handle,
         handle)
    call("tsocket_producer_options_init", None, out(ProducerOptions))
    call("tsocket_stream_options_init", None, out(StreamOptions))
    call("tsocket_producer_open", integer, out(ProducerOptions), out(handle))
    call("tsocket_producer_add_stream", integer, handle, out(StreamOptions), out(ctypes.c_uint32))
    call("tsocket_producer_start", integer, handle)
    call("tsocket_producer_claim", integer, handle, integer, out(Claim))
    call("tsocket_producer_commit", None, handle, out(Claim))
    call("tsocket_producer_reject", None, handle, out(Claim), text, text)
    call("tsocket_producer_end_epoch", integer, handle, out(Claim))
    call("tsocket_producer_write", integer, handle, ctypes.c_uint32, integer, out(handle), ctypes.c_uint64,
         out(ctypes.c_uint64))
    call("tsocket_producer_finish", integer, handle, ctypes.c_uint32)
    call("tsocket_producer_fail", None, handle, integer, text)
    call("tsocket_producer_wait", integer, handle, integer)
    call("tsocket_producer_stop", None, handle)
    call("tsocket_producer_close", None, handle)


def _candidates() -> List[str]:
    chosen = os.environ.get("TSOCKET_LIBRARY")
    if chosen:
        return [chosen]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    folders = [os.path.join(root, lib) for root in dict.fromkeys((sys.prefix, sys.base_prefix, "/usr/local", "/usr"))
               for lib in ("lib", "lib64", os.path.join("lib", multiarch))]
    return [SONAME] + [os.path.join(folder, SONAME) for folder in dict.fromkeys(folders)]


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, with its calls declared. LibraryNotFound lists what was tried, LibraryMismatch both versions."""
    tried = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            tried.append(f"  {path}: {error}" if os.path.exists(path) else f"  {path}")
    else:
        raise errors.LibraryNotFound(
            "libtsocket is not found; install tsocket (cmake --install), or set TSOCKET_LIBRARY to the path of "
            "libtsocket.so. Tried were:\n" + "\n".join(tried))
    try:
        library.tsocket_version.restype = ctypes.c_char_p
    except AttributeError:
        raise errors.LibraryMismatch(f"{path} is some other library: it has no tsocket_version") from None
    found = library.tsocket_version().decode()
    if found.split(".")[:2] != __version__.split(".")[:2]:
        raise errors.LibraryMismatch(
            f"{path} is libtsocket {found}, this package ({os.path.dirname(__file__)}) is for {__version__}; "
            "install both from the same source")
    _declare(library)
    return library


def library_path() -> str:
    """The path of the library that is in use."""
    return load()._name


def error_of(rc: int) -> errors.Error:
    """The exception for a call that has just failed in this thread."""
    library = load()
    text = library.tsocket_last_error().decode(errors="replace") or library.tsocket_strerror(rc).decode()
    code = library.tsocket_errname(rc).decode()
    error = errors.BY_CODE.get(code, errors.Error)(text)
    error.code = code
    return error


def check(rc: int) -> None:
    """Raises where a call has failed."""
    if rc != OK:
        raise error_of(rc)
