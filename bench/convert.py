#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What Python adds to tsocket_convert: tsocket.torch.Loader's conversion of a batch beside the C function's.

    tsocketd null:100000x224x224 --ring 512 &
    PYTHONPATH=python TSOCKET_LIBRARY=build/libtsocket.so bench/convert.py [--rounds N] [--batch N] [NAME]

CPU time of the one thread, medians of rounds in which both take turns.
"""
import argparse
import ctypes
import statistics
import time

import torch
import tsocket.torch as tt
from tsocket import _library


def cpu_ms(function):
    begun = time.thread_time()
    function()
    return (time.thread_time() - begun) * 1e3


def measure(options, dtype):
    """(ms of the loader, ms of the C function) of each round."""
    with tt.Loader(options.name, options.batch, dtype=dtype, mean=tt.IMAGENET_MEAN, std=tt.IMAGENET_STD) as loader:
        array = next(iter(loader.loader))["image"]
        count, height, width, channels = array.shape
        conversion, convert = loader._conversions["image"], _library.load().tsocket_convert
        out = torch.zeros(count * height * width * channels, dtype=dtype)

        def in_c():
            convert(conversion, ctypes.addressof(array.buffer()), count, height * width, out.data_ptr())

        def in_python():
            loader._tensor("image", array)

        rounds = [(cpu_ms(in_python), cpu_ms(in_c)) for _ in range(options.rounds)]
        del array
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("name", nargs="?", default="main")
    options = parser.parse_args()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rounds = measure(options, dtype)
        python, c = (statistics.median(column) for column in zip(*rounds))
        print(f"{dtype}: Python {python:.2f} ms, C {c:.2f} ms, {python / c:.3f} times")


if __name__ == "__main__":
    main()
