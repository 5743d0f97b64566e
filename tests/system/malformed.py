# SPDX-License-Identifier: Apache-2.0
"""Malformed pictures without end: the tricky inputs, and good ones, damaged in every way that files get damaged."""
import os
import random

import pictures
from inputs import expected, input_path

PER_CLASS = 1000
HEADER = 700  # most of what stands before the pixels: damage is more telling here


def seeds():
    """What is damaged: everything of make_inputs.py that is not large, and a few photographs."""
    paths = [input_path(case["file"]) for case in expected()["images"]]
    small = [path for path in paths if 0 < os.path.getsize(path) < 20000]
    data = [pictures.jpeg(number) for number in range(5)]
    for path in small:
        with open(path, "rb") as f:
            data.append(f.read())
    return data


def place(chance, data):
    """A place in `data`, half of the time in its header."""
    return chance.randrange(min(HEADER, len(data)) if chance.random() < 0.5 else len(data))


def flip_bits(chance, data, _):
    for _ in range(chance.choice((1, 2, 8, 40))):
        data[place(chance, data)] ^= 1 << chance.randrange(8)


def write_bytes(chance, data, _):
    for _ in range(chance.choice((1, 2, 4))):
        data[place(chance, data)] = chance.choice((0, 1, 0x7F, 0x80, 0xD8, 0xD9, 0xFF))


def cut(chance, data, _):
    del data[place(chance, data) :]


def remove(chance, data, _):
    at = place(chance, data)
    del data[at : at + chance.randrange(1, 200)]


def repeat(chance, data, _):
    at = place(chance, data)
    data[at:at] = data[at : at + chance.randrange(1, 400)]


def insert(chance, data, _):
    at = place(chance, data)
    data[at:at] = chance.randbytes(chance.randrange(1, 100))


def splice(chance, data, others):
    other = chance.choice(others)
    data[place(chance, data) :] = other[place(chance, other) :]


def resize(chance, data, _):
    """Another size in the frame header of a JPEG, which its data does not have."""
    for marker in (b"\xff\xc0", b"\xff\xc1", b"\xff\xc2", b"\xff\xc9"):
        at = data.find(marker)
        if 0 <= at < len(data) - 9:
            data[at + 5 + chance.randrange(4)] = chance.randrange(256)


DAMAGES = (flip_bits, write_bytes, cut, remove, repeat, insert, splice, resize)


def make_folder(folder, count, seed=1):
    chance, good = random.Random(seed), seeds()
    for number in range(count):
        data = bytearray(chance.choice(good))
        for _ in range(chance.choice((1, 1, 2, 3))):
            if data:
                chance.choice(DAMAGES)(chance, data, good)
        path = os.path.join(folder, f"class{number // PER_CLASS:03}")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, f"{number:06}.jpg"), "wb") as f:
            f.write(data)
