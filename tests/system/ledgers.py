# SPDX-License-Identifier: Apache-2.0
"""Ledgers made by hand, record by record, as src/ipc/record.h describes them."""
import struct
import zlib

RUN, TIME, TEXT, STREAM, EPOCH, ATTACH, PLACE, RELEASED, SKIPPED, OWED, AGAIN, PARKED, LEFT, LOST, END = range(1, 16)
TO_THE_END = (1 << 64) - 1
HEAD = b"tsledger" + struct.pack("<I", 3) + bytes(28)


def record(kind, detail=0, stream=0, consumer=0, a=0, b=0, c=0, text=None):
    body = struct.pack("<4Q", consumer, a, b, c) if text is None else text.encode().ljust(32, b"\0")
    return struct.pack("<BBHI", kind, detail, stream if text is None else len(text.encode()), 0) + body


def seal(*records):
    """The head and these records as they stand in a file: the check of each goes on from the one before it."""
    parts, check = [HEAD], struct.unpack_from("<I", HEAD, 4)[0]
    records = b"".join(records)
    for at in range(0, len(records), 40):
        front, body = records[at:at + 4], records[at + 8:at + 40]
        check = zlib.crc32(front + body, check)
        parts.append(front + struct.pack("<I", check) + body)
    return b"".join(parts)


def stream(name, epochs, samples):
    """What a daemon writes when it starts and has a stream, all of whose epochs have their length."""
    lengths = [record(EPOCH, a=epoch, b=samples) for epoch in range(epochs)]
    return b"".join([record(RUN, a=1, b=4711), record(TEXT, 1, text=name), record(STREAM, a=7, b=samples), *lengths])


def reader(number, name, *releases, batch=5):
    """One that begins with epoch 0, releases up to each (epoch, index), and leaves."""
    parts = [record(TEXT, 1, text=name), record(ATTACH, consumer=number, a=100 + number | batch << 32, b=1 << 32),
             record(PLACE, consumer=number, c=TO_THE_END)]
    parts += [record(RELEASED, consumer=number, a=epoch, b=index) for epoch, index in releases]
    return b"".join([*parts, record(LEFT, 1, consumer=number)])
