#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes JPEG data sets, shaped like the well-known ones, from a few dozen large photographs.

usage: make_photos.py small|full SOURCES LIST OUT

LIST names the photographs, one path below SOURCES a line. Deterministic: the same photographs give the same pixels.
scripts/make_photos.sh fetches the photographs and calls this.

small   OUT/train (500 files) and OUT/val (100), 10 class folders: class k holds crops of photograph k, so that there
        is something to learn
full    OUT/inet     2000 files, about 500x375: sizes, qualities and chroma subsampling as in 1000 ImageNet files
        OUT/inet420  the same crops, nearly all 4:2:0
        OUT/coco     300 files, 640x480
        OUT/large    100 files, 2 to 3 megapixels
"""
import io
import math
import os
import random
import sys

from PIL import Image

Image.MAX_IMAGE_PIXELS = None  # the photographs are trusted, and some are large

N_CLASSES = 10
GREY = -1  # in the tables of chroma subsampling; the other numbers are Pillow's: 0 4:4:4, 1 4:2:2, 2 4:2:0

# (value, weight), as counted in real files.
INET_SIZES = [((500, 375), 44), ((375, 500), 14), ((500, 333), 9), ((333, 500), 3), ((500, 334), 2), ((500, 400), 2),
              ((640, 480), 3), ((480, 640), 1), ((400, 300), 3), ((300, 400), 2), ((300, 300), 3), ((320, 240), 2),
              ((256, 256), 1), ((400, 400), 2), ((500, 500), 2), ((500, 281), 1), ((600, 400), 1), ((350, 263), 2),
              ((640, 426), 2), ((1024, 768), 1), ((1600, 1200), 1)]
INET_QUALITIES = [(96, 66), (95, 4), (93, 4), (90, 6), (85, 5), (80, 7), (75, 5), (99, 3)]
INET_SUBSAMPLINGS = [(0, 76), (2, 21), (1, 1), (GREY, 2)]
INET420_SUBSAMPLINGS = [(2, 88), (0, 12)]
COCO_SIZES = [((640, 480), 40), ((480, 640), 12), ((640, 427), 30), ((640, 426), 10), ((427, 640), 8)]
COCO_QUALITIES = [(90, 2), (95, 5), (96, 3)]
LARGE_SIZES = [((1920, 1080), 3), ((2048, 1536), 4), ((2000, 1333), 3), ((1536, 2048), 1)]
LARGEST_INET = max(size for size, _ in INET_SIZES)


def pick(rng, table):
    """A value of the table, drawn by its weight."""
    rest = rng.uniform(0, sum(weight for _, weight in table))
    for value, weight in table:
        rest -= weight
        if rest <= 0:
            return value
    return table[-1][0]


def inet_size(rng):
    width, height = pick(rng, INET_SIZES)
    if rng.random() < 0.25 and max(width, height) <= 640:
        width = max(200, int(width * rng.uniform(0.8, 1.15)))
        height = max(200, int(height * rng.uniform(0.8, 1.15)))
    return width, height


def is_flat(image, bytes_per_pixel):
    """A sky or a wall: it would be cheaper to decode than photographs are."""
    encoded = io.BytesIO()
    image.save(encoded, 'JPEG', quality=85)
    return encoded.tell() < image.width * image.height * bytes_per_pixel


def crop(rng, photos, width, height, zoom=(2.2, 6.5), flat=0.095):
    """width x height pixels, reduced by a factor within `zoom` from a random place of a random photograph."""
    for _ in range(200):
        photo = rng.choice(photos)
        room = min(photo.width / width, photo.height / height)
        if room < 1.0:
            continue
        factor = math.exp(rng.uniform(math.log(min(zoom[0], room)), math.log(min(zoom[1], room))))
        w, h = int(width * factor), int(height * factor)
        x = rng.randint(0, photo.width - w)
        y = rng.randint(0, photo.height - h)
        image = photo.crop((x, y, x + w, y + h)).resize((width, height), Image.LANCZOS)
        if rng.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        if not is_flat(image, flat):
            return image
    raise SystemExit(f'make_photos.py: no photograph has {width}x{height} pixels with enough detail in them')


def save(image, folder, label, number, quality, subsampling):
    folder = os.path.join(folder, f'class{label}')
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f'im{number:05d}.jpg')
    if subsampling == GREY:
        image.convert('L').save(path, 'JPEG', quality=quality)
    else:
        image.save(path, 'JPEG', quality=quality, subsampling=subsampling)


def make_inet(rng, photos, out):
    for i in range(2000):
        image = crop(rng, photos, *inet_size(rng))
        save(image, f'{out}/inet/train', i % N_CLASSES, i, pick(rng, INET_QUALITIES), pick(rng, INET_SUBSAMPLINGS))
        save(image, f'{out}/inet420/train', i % N_CLASSES, i, rng.randint(85, 96), pick(rng, INET420_SUBSAMPLINGS))


def make_coco(rng, photos, out):
    for i in range(300):
        image = crop(rng, photos, *pick(rng, COCO_SIZES))
        save(image, f'{out}/coco/train', 0, i, pick(rng, COCO_QUALITIES), 2)


def make_large(rng, photos, out):
    for i in range(100):
        image = crop(rng, photos, *pick(rng, LARGE_SIZES), zoom=(1.0, 2.0), flat=0.05)
        save(image, f'{out}/large/train', 0, i, rng.randint(85, 95), 2)


def make_small(rng, photos, out):
    large = [p for p in photos if p.width >= LARGEST_INET[0] and p.height >= LARGEST_INET[1]]
    if len(large) < N_CLASSES:
        raise SystemExit(f'make_photos.py: {N_CLASSES} photographs of {LARGEST_INET} pixels are needed')
    for part, count in (('train', 500), ('val', 100)):
        for i in range(count):
            label = i % N_CLASSES
            image = crop(rng, [large[label]], *inet_size(rng), flat=0)
            save(image, f'{out}/{part}', label, i, pick(rng, INET_QUALITIES), pick(rng, INET_SUBSAMPLINGS))


def main():
    if len(sys.argv) != 5 or sys.argv[1] not in ('small', 'full'):
        raise SystemExit('usage: make_photos.py small|full SOURCES LIST OUT')
    kind, sources, names, out = sys.argv[1:]
    rng = random.Random(20240607)
    with open(names, encoding='utf-8') as lines:
        photos = [Image.open(os.path.join(sources, line.strip())).convert('RGB') for line in lines]
    if kind == 'small':
        make_small(rng, photos, out)
    else:
        make_inet(rng, photos, out)
        make_coco(rng, photos, out)
        make_large(rng, photos, out)


if __name__ == '__main__':
    main()
