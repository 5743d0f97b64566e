#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How far what trainers get is from what Pillow makes of the same boxes: decode, crop, antialiased resize, flip.

    fidelity.py BUILD FOLDER [--images N] [--quality exact|fast]

Serves the folder with tsocketd, takes images and their boxes (--aug) with tsocketctl tap, and makes them once more.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageOps

BATCH = 32
NAME = "fidelity"


def by_pillow(path, size, box, flip):
    with Image.open(path) as picture:
        upright = ImageOps.exif_transpose(picture).convert("RGB")
    x, y, width, height = box
    made = np.asarray(upright.crop((x, y, x + width, y + height)).resize((size, size), Image.Resampling.BILINEAR))
    return (made[:, ::-1] if flip else made).astype(int)


def listed(build, folder):
    done = subprocess.run([f"{build}/tsocketd", "--list", folder], check=True, stdout=subprocess.PIPE)
    return [json.loads(line)["key"] for line in done.stdout.splitlines()]


def take(build, folder, quality, batches, to):
    daemon = subprocess.Popen([f"{build}/tsocketd", "-q", "--name", NAME, "--aug", "--quality", quality, "--wait-for", "1",
                               "--max-batch", str(BATCH), folder])
    try:
        subprocess.run([f"{build}/tsocketctl", "tap", NAME, "--batch", str(BATCH), "--batches", str(batches), "--dump", to,
                        "--wait-ms", "20000"], check=True, stdout=subprocess.DEVNULL)
    finally:
        daemon.terminate()
        daemon.wait()


def differences(folder, keys, dump):
    for path in sorted(glob.glob(f"{dump}/*-image.npy")):
        stem = path[: -len("image.npy")]
        fields = (np.load(f"{stem}{field}.npy") for field in ("image", "image.aug", "index"))
        for image, (*box, flip), index in zip(*fields):
            wanted = by_pillow(os.path.join(folder, keys[index]), image.shape[0], box, flip)
            yield np.abs(wanted - image)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build")
    ap.add_argument("folder")
    ap.add_argument("--images", type=int, default=256)
    ap.add_argument("--quality", default="exact", choices=("exact", "fast"))
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TSOCKET_DIR"] = os.path.join(scratch, "run")
        os.mkdir(os.path.join(scratch, "dump"))
        take(a.build, a.folder, a.quality, -(-a.images // BATCH), os.path.join(scratch, "dump"))
        found = list(differences(a.folder, listed(a.build, a.folder), os.path.join(scratch, "dump")))
    square = float(np.mean([np.mean(d.astype(float) ** 2) for d in found]))
    psnr = f"{10 * np.log10(255 ** 2 / square):.1f} dB" if square else "the same bits"
    print(f"{len(found)} images by Pillow: {psnr}, largest difference {max(int(d.max()) for d in found)}, "
          f"{sum(bool(d.any()) for d in found)} differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
