# SPDX-License-Identifier: Apache-2.0
"""What trainers get is what Pillow makes of the same files and boxes: whole decode, crop, antialiased resize, flip.

    TSOCKET_PHOTOS    folders of photographs, with ':' between, to be compared as well (scripts/make_photos.sh)
"""
import os
import sys
import unittest

import pictures
from harness import BUILD, SOURCE, SystemTest, repeats
from PIL import Image

sys.path.insert(0, os.path.join(SOURCE, "bench"))
import fidelity  # noqa: E402  which bench/decode.sh --fidelity runs on whole sets

IMAGES = repeats(96)
KINDS = ({"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"progressive": True}, {"quality": 96})
ROTATED = 0x0112  # EXIF's tag of the orientation


class FidelityTest(SystemTest):
    def make_folder(self):
        """Pictures of all the usual kinds, some of them to be turned, one of them a PNG."""
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, classes=2, per_class=2)
        for number, (width, height) in enumerate(((333, 251), (500, 375), (97, 640), (1000, 700), (224, 224), (31, 17))):
            picture = pictures.photograph(number, width, height)
            for kind, options in enumerate(KINDS):
                picture.save(os.path.join(folder, "class000", f"{number}_{kind}.jpg"), "JPEG", **options)
            exif = Image.Exif()
            exif[ROTATED] = number + 3
            picture.save(os.path.join(folder, "class001", f"{number}_turned.jpg"), "JPEG", exif=exif)
        picture.save(os.path.join(folder, "class001", "png.jpg"), "PNG")
        return folder

    def differences(self, folder):
        dump = os.path.join(self.folder, f"dump-{self.count()}")
        os.mkdir(dump)
        daemon = self.start_daemon("--aug", "--size", "96", "--wait-for", "1", folder)
        self.tap(daemon, 32, "--batches", str(IMAGES // 32 + 1), "--dump", dump, "--wait-ms", "20000").finish()
        daemon.terminate()
        found = list(fidelity.differences(folder, fidelity.listed(BUILD, folder), dump))
        self.assertGreaterEqual(len(found), 32)
        return found

    def test_pictures_of_every_kind_differ_by_one_at_most(self):
        found = self.differences(self.make_folder())
        self.assertLessEqual(max(int(d.max()) for d in found), 1)
        # Only where rows become columns the last rounding may differ.
        self.assertLess(sum(bool(d.any()) for d in found), len(found) // 4)

    def test_photographs_have_the_very_bits(self):
        for folder in filter(None, os.environ.get("TSOCKET_PHOTOS", "").split(":")):
            with self.subTest(folder=folder):
                self.assertFalse(any(d.any() for d in self.differences(folder)))


if __name__ == "__main__":
    unittest.main()
