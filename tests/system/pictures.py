# SPDX-License-Identifier: Apache-2.0
"""Small folders of photographs, made from a fixed seed."""
import io
import os

import numpy as np
from PIL import Image


def photograph(number, width=64, height=48):
    """A picture that has structure and differs from every other number's."""
    rng = np.random.RandomState(number)
    coarse = rng.randint(0, 256, (6, 8, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.BICUBIC)


def jpeg(number, width=64, height=48):
    """The bytes of it as a JPEG."""
    out = io.BytesIO()
    photograph(number, width, height).save(out, "JPEG", quality=88)
    return out.getvalue()


def make_folder(folder, classes, per_class, bad=()):
    """classes x per_class pictures; those whose number (in sample order) is in `bad` are cut in half."""
    number = 0
    for label in range(classes):
        path = os.path.join(folder, f"class{label:03}")
        os.makedirs(path)
        for i in range(per_class):
            data = jpeg(number)
            with open(os.path.join(path, f"{i:05}.jpg"), "wb") as f:
                f.write(data[: len(data) // 2] if number in bad else data)
            number += 1
