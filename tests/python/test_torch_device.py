# SPDX-License-Identifier: Apache-2.0
"""tsocket.torch.Loader over a ring in a GPU's memory, as far as a simulated GPU, which PyTorch does not know, can go:
what PyTorch would allocate there and the stream that it would name come from the test."""
import unittest
import warnings
from unittest import mock

import torch
import tsocket.torch as tt
from simulated import SAMPLES, DeviceTest

BYTES = {torch.float32: 4, torch.float16: 2, torch.bfloat16: 2}


class Result:
    """Stands for a tensor there."""

    def __init__(self, driver, address, stream, shape, dtype):
        self.driver, self.address, self.stream, self.shape, self.dtype = driver, address, stream, shape, dtype

    def data_ptr(self):
        return self.address

    def here(self, channels_last):
        count, channels, height, width = self.shape
        size = count * channels * height * width * BYTES[self.dtype]
        data = bytearray(self.driver.read(self.address, size, self.stream))
        flat = torch.frombuffer(data, dtype=self.dtype)
        if channels_last:
            return flat.view(count, height, width, channels).permute(0, 3, 1, 2)
        return flat.view(self.shape)


class TorchDeviceTest(DeviceTest):
    def setUp(self):
        super().setUp()
        self.driver.add_conversion(b"tsocket_convert_16", 16)
        self.driver.add_conversion(b"tsocket_convert_32", 32)

    def there(self, loader, address, stream):
        """The loader, with a GPU of the test's."""
        def empty(*shape):
            return Result(self.driver, address, stream, shape, loader._dtype)

        self.patch(loader, "_empty_there", empty)
        self.patch(loader, "_current_stream", lambda: stream)
        return loader

    def patch(self, owner, name, new):
        patcher = mock.patch.object(owner, name, new)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def test_pictures_are_converted_there_with_the_bits_of_the_host(self):
        address, stream = self.driver.memory(self, 10 * 192 * 4), self.driver.stream(self)
        for dtype, channels_last in ((torch.float32, False), (torch.float16, True), (torch.bfloat16, False)):
            self.start("--epochs", "1", "--wait-for", "2")
            options = dict(dtype=dtype, mean=tt.IMAGENET_MEAN, std=tt.IMAGENET_STD, channels_last=channels_last)
            here = self.loader("main", 10, kind=tt.Loader, fields=["image", "index"], **options)
            loader = self.loader("main", 10, kind=tt.Loader, device="cuda:0", fields=["image"], targets=lambda i: i, **options)
            self.assertEqual((here.loader.device, loader.loader.device), ("host", "cuda:0"))
            samples = 0
            for (there, targets), (images, index) in zip(self.there(loader, address, stream), here):
                self.assertTrue(torch.equal(there.here(channels_last), images))
                self.assertTrue(torch.equal(targets, index))
                samples += len(index)
            self.assertEqual(samples, SAMPLES)
            here.close()
            loader.close()
            self.end_daemons()

    def test_a_batch_is_released_behind_its_conversion(self):
        address, stream = self.driver.memory(self, 10 * 192 * 4), self.driver.stream(self)
        self.start()
        loader = self.loader("main", 10, kind=tt.Loader, device="cuda", fields=["image"])
        handle = loader.loader._handle
        library = self.patch(handle, "_library", mock.Mock(wraps=handle._library))
        next(iter(self.there(loader, address, stream)))
        self.assertEqual(library.tsocket_release_after.call_args[0][2], stream)


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    unittest.main()
