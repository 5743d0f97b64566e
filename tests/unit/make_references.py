#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What Pillow makes of pictures, for the tests to compare with, written into a folder.

    make_references.py DIR

    DIR/NAME.jpg, DIR/NAME.rgb   pictures in every common layout, and their pixels
    DIR/large/NAME.jpg           two pictures that are larger than what is made of them
    DIR/png/NAME.png, NAME.rgb   PNG files, some interlaced
    DIR/resizes.bin              resizes, one behind the other, little-endian: u32 source width, source height, filter
                                 (0 bilinear, 1 bicubic), clip (1 the box is cut out first), width, height; f64 box x,
                                 y, width, height; the pixels of the source and of the result
"""
import io
import os
import shutil
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image

FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


def picture(width, height, seed):
    """Soft shapes in strong colours, with edges and noise: every pixel differs from its neighbours."""
    rs = np.random.RandomState(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / rs.uniform(3, 40) + rs.uniform(0, 6)) * np.cos(y / rs.uniform(3, 40)) for _ in range(3)]
    a = 128 + 110 * np.dstack(waves) + rs.uniform(-20, 20, (height, width, 3))
    a[height // 3: height // 2, width // 4: width // 2] = (250, 10, 30)
    return Image.fromarray(a.clip(0, 255).astype(np.uint8))


def put(path, data):
    """A JPEG and what Pillow decodes it to."""
    with open(path + ".jpg", "wb") as f:
        f.write(data)
    with Image.open(io.BytesIO(data)) as im, open(path + ".rgb", "wb") as f:
        f.write(im.convert("RGB").tobytes())


def by_cjpeg(im, *options):
    """What Pillow does not write."""
    ppm = b"P6\n%d %d\n255\n" % im.size + im.tobytes()
    return subprocess.run(["cjpeg", *options], input=ppm, stdout=subprocess.PIPE, check=True).stdout


def jpegs(folder):
    layouts = {
        "444": dict(subsampling=0), "422": dict(subsampling=1), "420": dict(subsampling=2),
        "progressive444": dict(subsampling=0, progressive=True), "progressive420": dict(subsampling=2, progressive=True),
        "grey": dict(mode="L"), "progressive_grey": dict(mode="L", progressive=True), "cmyk": dict(mode="CMYK"),
        "low_quality420": dict(subsampling=2, quality=10),
    }
    sizes = ((333, 251), (64, 48), (17, 130))
    for number, (name, options) in enumerate(layouts.items()):
        for width, height in sizes:
            kw = {"quality": 88, **options}
            data = io.BytesIO()
            picture(width, height, number).convert(kw.pop("mode", "RGB")).save(data, "JPEG", **kw)
            put(os.path.join(folder, "%s_%dx%d" % (name, width, height)), data.getvalue())
    if not shutil.which("cjpeg"):
        return
    for name, options in (("440", ("-sample", "1x2")), ("411", ("-sample", "4x1")), ("restart420", ("-restart", "3B")),
                          ("arithmetic420", ("-arithmetic",)), ("rgb", ("-rgb",))):
        for width, height in sizes:
            put(os.path.join(folder, "%s_%dx%d" % (name, width, height)), by_cjpeg(picture(width, height, 3), *options))


def photo(width, height):
    """As a camera sees it: soft, with some edges, and little noise."""
    rs = np.random.RandomState(5)
    small = Image.fromarray(rs.randint(0, 256, (height // 24, width // 24, 3)).astype(np.uint8))
    a = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(float)
    a[height // 3: height // 2, width // 4: width // 2] = (240, 20, 40)
    return Image.fromarray((a + rs.normal(0, 2, a.shape)).clip(0, 255).astype(np.uint8))


def large(folder):
    os.makedirs(folder)
    for name, subsampling in (("444", 0), ("420", 2)):
        photo(1203, 905).save(os.path.join(folder, name + ".jpg"), quality=95, subsampling=subsampling)


def interlaced(im):
    """A PNG in the seven passes of Adam7, which Pillow does not write."""
    a, rows = np.asarray(im), []
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = a[y::dy, x::dx]
        rows += [b"\0" + row.tobytes() for row in part if part.shape[1]]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", im.size[0], im.size[1], 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows))) + \
        chunk(b"IEND", b"")


def pngs(folder):
    os.makedirs(folder)
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(40, 30, 1).save(os.path.join(folder, "turned.png"), exif=exif)
    for width, height in ((333, 251), (17, 130), (1, 1)):
        for mode in ("RGB", "L", "P", "RGBA", "LA", "1", "interlaced"):
            im = picture(width, height, 7)
            path = os.path.join(folder, "%s_%dx%d" % (mode, width, height))
            data = io.BytesIO()
            if mode == "interlaced":
                data.write(interlaced(im))
            else:
                im = im.convert(mode)
                im.save(data, "PNG")
            for name, content in ((".png", data.getvalue()), (".rgb", im.convert("RGB").tobytes())):
                with open(path + name, "wb") as f:
                    f.write(content)


def resizes(folder):
    rs = np.random.RandomState(1)
    with open(os.path.join(folder, "resizes.bin"), "wb") as f:
        for n in range(320):
            width, height = int(rs.randint(1, 300)), int(rs.randint(1, 300))
            out = (int(rs.randint(1, 120)), int(rs.randint(1, 120)))
            if n % 4 == 0:
                box = (0.0, 0.0, float(width), float(height))
            else:
                x, y = rs.uniform(0, width * 0.7), rs.uniform(0, height * 0.7)
                box = (x, y, rs.uniform(0.1, 1) * (width - x), rs.uniform(0.1, 1) * (height - y))
                if n % 4 in (1, 2):
                    box = tuple(float(int(v)) for v in box[:2]) + tuple(max(1.0, float(int(v))) for v in box[2:])
                if n % 8 == 5:
                    out = (int(box[2]), int(box[3]))
            im = picture(width, height, n) if n % 3 else Image.fromarray(
                rs.choice(np.array([0, 255], np.uint8), (height, width, 3)))
            x, y, w, h = box
            corners, kind, clip = (x, y, x + w, y + h), n // 4 % 2, n % 4 == 2
            made = im.crop(corners).resize(out, FILTERS[kind]) if clip else im.resize(out, FILTERS[kind], box=corners)
            f.write(struct.pack("<6I4d", width, height, kind, clip, *out, *box) + im.tobytes() + made.tobytes())


if __name__ == "__main__":
    jpegs(sys.argv[1])
    large(os.path.join(sys.argv[1], "large"))
    pngs(os.path.join(sys.argv[1], "png"))
    resizes(sys.argv[1])
