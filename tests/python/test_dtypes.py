# SPDX-License-Identifier: Apache-2.0
"""A daemon that serves floating point serves what tsocket_convert makes of its bytes."""
import ctypes
import unittest

import numpy
from pythontest import PythonTest
from tsocket import _library

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = ("float16", "bfloat16", "float32")


def keys(dtype, layout):
    mean, std = (",".join(map(str, values)) for values in (MEAN, STD))
    return f"{dtype}-{layout}:dtype={dtype}:layout={layout}:mean={mean}:std={std}"


def converted(image, dtype, channels_first):
    """By the library, as bytes."""
    conversion = _library.Conversion()
    _library.load().tsocket_conversion_init(conversion)
    conversion.dtype = _library.BY_NAME[dtype].number
    conversion.channels_first = channels_first
    conversion.mean[:3], conversion.std[:3] = MEAN, STD
    count, height, width, channels = image.shape
    out = numpy.empty(image.size * _library.BY_NAME[dtype].size, numpy.uint8)
    _library.check(_library.load().tsocket_convert(conversion, image.ctypes.data, count, height * width,
                                                   out.ctypes.data))
    return out.tobytes()


class DtypesTest(PythonTest):
    def test_every_view_is_the_bytes_converted(self):
        views = [word for dtype in DTYPES for layout in ("nhwc", "nchw") for word in ("--view", keys(dtype, layout))]
        self.start_daemon("synthetic:13x37x19", "--epochs", "1", "--view", "bytes", *views)
        for batch in self.loader(batch_size=5):
            image = numpy.asarray(batch["bytes"]).copy()
            for dtype in DTYPES:
                for layout in ("nhwc", "nchw"):
                    array = batch[f"{dtype}-{layout}"]
                    self.assertEqual(array.dtype, dtype)
                    self.assertEqual(bytes(array.buffer()), converted(image, dtype, layout == "nchw"))

    def test_numpy_takes_float16_and_refuses_bfloat16(self):
        self.start_daemon("synthetic:13x8x6", "--epochs", "1", "--view", "h:dtype=float16", "--view", "b:dtype=bfloat16")
        for batch in self.loader(batch_size=13):
            half = numpy.asarray(batch["h"])
            self.assertEqual((half.dtype, half.shape), (numpy.float16, (13, 8, 6, 3)))
            self.assertTrue(((half >= 0) & (half <= 1)).all())
            with self.assertRaisesRegex(TypeError, "numpy has no bfloat16"):
                batch["b"].numpy()
            bits = numpy.asarray(batch["b"].memoryview()).astype(numpy.uint32) << 16
            numpy.testing.assert_allclose(bits.view(numpy.float32), half.astype(numpy.float32), rtol=2 ** -8)


if __name__ == "__main__":
    unittest.main()
