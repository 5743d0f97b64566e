#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The usual way in Python, beside bench/decode: Pillow decodes the whole file, crops, resizes (bilinear), flips.

    pillow.py DECODE FOLDER [--files N] [--rounds N]

Rounds of all take turns, on as many files of the folder and with boxes of the same distribution; counted is CPU time.
Where torchvision is installed, its usual transforms come third: RandomResizedCrop, flip, ToTensor, Normalize, beside
images of the same kind (float32, channels first, normalised).
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import time

import numpy as np
from PIL import Image

try:
    import torch
    from torchvision import transforms
except ImportError:
    transforms = None


def files_of(folder, count):
    paths = sorted(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    return [paths[i * len(paths) // count] for i in range(min(count, len(paths)))]


def draw_box(width, height, rng):
    """RandomResizedCrop's rule, with its usual scale and ratio."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = rng.randint(0, width - w), rng.randint(0, height - h)
            return x, y, x + w, y + h
    return 0, 0, width, height


def load(path, size, rng):
    with Image.open(path) as picture:
        crop = picture.convert("RGB").crop(draw_box(*picture.size, rng))
    made = crop.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(made.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else made)


def pillow_us(paths, size, rng):
    begun = time.thread_time()
    for path in paths:
        load(path, size, rng)
    return (time.thread_time() - begun) * 1e6 / len(paths)


def torchvision_us(paths, size):
    torch.set_num_threads(1)
    transform = transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    ])
    begun = time.thread_time()
    for path in paths:
        with Image.open(path) as picture:
            transform(picture.convert("RGB"))
    return (time.thread_time() - begun) * 1e6 / len(paths)


def decode_us(decode, folder, count, variant):
    args = [decode, "--json", "--rounds", "1", "--files", str(count), "--only", variant, folder]
    variants = json.loads(subprocess.run(args, check=True, stdout=subprocess.PIPE).stdout)["variants"]
    return next(v["us"] for v in variants if v["name"] == variant)


def compare(theirs, name, ours, variant):
    ratio = statistics.median(t / o for t, o in zip(theirs, ours))
    print(f"{name} {1e6 / statistics.median(theirs):.0f} images/s, {variant} {1e6 / statistics.median(ours):.0f}: "
          f"{ratio:.2f} times as fast")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("decode")
    ap.add_argument("folder")
    ap.add_argument("--files", type=int, default=200)
    ap.add_argument("--rounds", type=int, default=5)
    a = ap.parse_args()
    paths, rng = files_of(a.folder, a.files), random.Random(0)
    pillow, exact, torchvision, float32 = [], [], [], []
    for _ in range(a.rounds):
        pillow.append(pillow_us(paths, 224, rng))
        exact.append(decode_us(a.decode, a.folder, a.files, "exact"))
        if transforms:
            torchvision.append(torchvision_us(paths, 224))
            float32.append(decode_us(a.decode, a.folder, a.files, "float32"))
    compare(pillow, "Pillow", exact, "exact")
    if transforms:
        compare(torchvision, "torchvision", float32, "float32")


if __name__ == "__main__":
    main()
