# SPDX-License-Identifier: Apache-2.0
"""Pictures in floating point are the bytes beside them, normalised and rounded, whatever else the recipe says."""
import os
import unittest

import numpy as np
from PIL import Image

import pictures
from harness import SystemTest

ROTATED = 0x0112  # EXIF's tag of the orientation
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALISED = ("mean=" + ",".join(map(str, MEAN)), "std=" + ",".join(map(str, STD)))


def view(name, *keys):
    """The same crop for all of them: eval draws nothing."""
    return "--view", ":".join((name, "size=17", "augment=eval", *keys))


VIEWS = [
    *view("bytes"),
    *view("half", "dtype=float16", *NORMALISED),
    *view("half-first", "dtype=float16", "layout=nchw", *NORMALISED),
    *view("brain", "dtype=bfloat16", *NORMALISED),
    *view("single", "dtype=float32", "layout=nchw", *NORMALISED),
    *view("plain", "dtype=float16"),
]


def normalised(image, mean=MEAN, std=STD):
    return (image.astype(np.float32) / np.float32(255) - np.float32(mean)) / np.float32(std)


class DtypesTest(SystemTest):
    def photographs(self, bad=()):
        """Upright and turned ones."""
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, 2, 4, bad)
        os.mkdir(os.path.join(folder, "class002"))
        for orientation in range(2, 9):
            exif = Image.Exif()
            exif[ROTATED] = orientation
            path = os.path.join(folder, "class002", f"{orientation}.jpg")
            pictures.photograph(orientation, 200, 150).save(path, "JPEG", exif=exif)
        return folder

    def load(self, number, folder, *options):
        """The fields of all samples, by name."""
        dump = os.path.join(self.folder, f"dump{number}")
        os.mkdir(dump)
        daemon = self.start_daemon(folder, "--epochs", "2", *options)
        batch = self.tap(daemon, 15, "--dump", dump).finish().of_kind("batch")[1]  # the second epoch is the cache's
        self.assertEqual(daemon.wait(), 0)
        prefix = f"{batch['epoch']}-{batch['first']}-"
        return {name[len(prefix):-4]: np.load(os.path.join(dump, name)) for name in os.listdir(dump)
                if name.startswith(prefix)}

    def test_halves_are_the_bytes_normalised_and_rounded(self):
        dataset = self.photographs(bad=(1,))
        without_brain = [word for pair in zip(VIEWS[::2], VIEWS[1::2]) if "bfloat16" not in pair[1] for word in pair]
        for number, options in enumerate(((), ("--cache", "8MiB"), ("--quality", "fast"), ("--no-exif",))):
            with self.subTest(options=options):
                got = self.load(number, dataset, "--on-bad", "mask", *without_brain, *options)
                image, good = got["bytes"], got["valid"] == 1
                self.assertEqual((image.dtype, image.shape, int(good.sum())), (np.uint8, (15, 17, 17, 3), 14))
                expected = {"half": normalised(image).astype(np.float16),
                            "half-first": normalised(image).astype(np.float16).transpose(0, 3, 1, 2),
                            "single": normalised(image).transpose(0, 3, 1, 2),
                            "plain": normalised(image, 0, 1).astype(np.float16)}
                for name, want in expected.items():
                    self.assertEqual((got[name].dtype, got[name].shape), (want.dtype, want.shape))
                    self.assertEqual(got[name][good].tobytes(), want[good].tobytes(), name)
                    self.assertFalse(got[name][~good].any(), "a masked sample is all zeros")

    def test_numpy_has_no_bfloat16_and_a_dump_has_its_bits(self):
        daemon = self.start_daemon("synthetic:13x8x6", "--wait-for", "2", *view("brain", "dtype=bfloat16", *NORMALISED),
                                   *view("single", "dtype=float32", *NORMALISED))
        folder = os.path.join(self.folder, "dump")
        tap = self.tap(daemon, 13, "--dump", folder, "--epochs", "1")
        other = self.tap(daemon, 13, "--epochs", "1")
        self.assertEqual(tap.finish().of_kind("batch"), other.finish().of_kind("batch"), "hashes among it")
        self.assertEqual(tap.stderr().count("field brain is bfloat16, which numpy has no type for: its bits are written"), 1)
        bits, single = (np.load(os.path.join(folder, f"0-0-{name}.npy")) for name in ("brain", "single"))
        self.assertEqual((bits.dtype, bits.shape), (np.uint16, single.shape))
        back = (bits.astype(np.uint32) << 16).view(np.float32)
        self.assertLess(np.abs(back - single).max(), np.abs(single).max() / 256)

    def test_the_dtype_is_part_of_the_recipe(self):
        for dtype in ("uint8", "float16", "bfloat16", "float32"):
            daemon = self.start_daemon("synthetic:13x8x6", "--dtype", dtype, name=dtype)
            self.assertIn(f"dtype={dtype} ", self.ctl("provenance", dtype).stdout)
            self.assertIn(f" image {dtype} 8x6x3 label", daemon.stderr())

    def test_what_float16_cannot_hold_is_refused(self):
        args = ("--dtype", "float16", "--std", "1e-5,1,1", "synthetic:13x8x6")
        done = self.run_program(os.path.join(os.environ["TSOCKET_BUILD"], "tsocketd"), *args)
        self.assertEqual(done.returncode, 64)
        self.assertIn("values up to 100000, but float16 ends at 65504; take bfloat16", done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
