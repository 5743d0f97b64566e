#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/loader does, with PyTorch's DataLoader: needs torch and Pillow.

The fastest honest way there: the crop goes into Pillow's resize as a box, batches stay uint8, workers persist, and the
sampler never ends, so that no epoch's end drains the queue.

    torch_loader.py FOLDER ...              a trainer with a DataLoader of its own
    torch_loader.py --shared DAEMON ...     a trainer that reads the same from a daemon, by tsocket.torch
    torch_loader.py FOLDER --serve DAEMON   serves such a DataLoader, by tsocket.Producer
"""
import argparse
import json
import math
import os
import random
import resource
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

SIZE = 224
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
HFLIP = 0.5
LINGER_NS = 10 ** 9


def crop_box(width, height):
    """The box of a random resized crop (Szegedy et al.: "Going deeper with convolutions", CVPR 2015)."""
    for _ in range(10):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            return x, y, x + w, y + h
    side = min(width, height)
    x, y = (width - side) // 2, (height - side) // 2
    return x, y, x + side, y + side


class Photos(Dataset):
    """A folder with a folder per class."""

    def __init__(self, folder):
        classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        self.samples = [(os.path.join(folder, name, file), label) for label, name in enumerate(classes)
                        for file in sorted(os.listdir(os.path.join(folder, name)))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with Image.open(path) as file:
            image = file.convert('RGB')
        image = image.resize((SIZE, SIZE), Image.BILINEAR, box=crop_box(*image.size))
        if random.random() < HFLIP:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        return torch.from_numpy(numpy.array(image)), label


class Endless(Sampler):
    """One shuffled epoch after the other."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count).tolist()


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def make_loader(options):
    photos = Photos(options.folder)
    return DataLoader(photos, batch_size=options.batch, sampler=Endless(len(photos)), num_workers=options.workers,
                      persistent_workers=True)


def shared_batches(options):
    import tsocket.torch

    loader = tsocket.torch.Loader(options.shared, options.batch, dtype=torch.uint8, channels_last=True, connect_timeout=60)
    for _ in loader.epochs():
        yield from loader


def serve(options):
    import tsocket

    tsocket.Producer(make_loader(options), options.serve, epoch_samples=0, wait_for=options.wait_for, join_grace=0).serve()


def run(options):
    """Steps until a second after the time is over, as bench/loader does; the line of results."""
    batches = shared_batches(options) if options.shared else iter(make_loader(options))
    begin, end = options.begin, options.begin + int(options.seconds * 1e9)
    samples, waited, cpu = 0, 0, None
    now = 0
    while now < end + LINGER_NS:
        before = time.monotonic_ns()
        _, labels = next(batches)
        now = time.monotonic_ns()
        if begin <= now < end:
            cpu = cpu_seconds() if cpu is None else cpu
            waited += now - max(before, begin)
            samples += len(labels)
        time.sleep(options.step_ms / 1000)
    return {'mode': 'torch', 'samples': samples, 'seconds': options.seconds, 'rate': samples / options.seconds,
            'waited_seconds': waited / 1e9, 'cpu_seconds': cpu_seconds() - (cpu or 0),
            'peak_rss_kb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder', nargs='?')
    parser.add_argument('--shared')
    parser.add_argument('--serve')
    parser.add_argument('--wait-for', type=int, default=0)
    parser.add_argument('--batch', type=int, default=32)
    parser.add_argument('--workers', type=int, default=1)
    parser.add_argument('--step-ms', type=float, default=0)
    parser.add_argument('--from', dest='begin', type=int, default=0, help='nanoseconds of CLOCK_MONOTONIC')
    parser.add_argument('--seconds', type=float, default=5)
    torch.set_num_threads(1)
    options = parser.parse_args()
    if options.serve:
        serve(options)
    else:
        print(json.dumps(run(options)), flush=True)
    os._exit(0)  # the workers are in the middle of an endless epoch; they end with this process


if __name__ == '__main__':
    main()
