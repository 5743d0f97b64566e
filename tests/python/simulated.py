# SPDX-License-Identifier: Apache-2.0
"""A simulated GPU (tests/simcuda) in this process and in the daemons: import it before anything looks for the driver."""
import ctypes
import math
import os

import numpy
from harness import BUILD
from pythontest import PythonTest

SAMPLES = 103
SIMCUDA = os.path.join(BUILD, "simcuda", "libcuda.so.1")
# The driver is loaded once in a process, and so are its settings.
SETTINGS = {"TSOCKET_LIBCUDA": SIMCUDA, "SIMCUDA_DEVICES": "2", "SIMCUDA_DELAY_US": "200", "SIMCUDA_STRICT": "1"}
os.environ.update(SETTINGS)


class Launch(ctypes.Structure):
    """The beginning of struct simcuda_launch."""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("params", ctypes.c_void_p * 16)]


Kernel = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch))


class Driver:
    """The simulated driver in this process, on the context that the library uses."""

    kept = []  # what the driver keeps the addresses of

    def __init__(self, device=0):
        self.library = ctypes.CDLL(SIMCUDA)
        self.context = ctypes.c_void_p()
        self.device = device
        self.library.simcuda_at.restype = ctypes.c_void_p
        self.library.cuInit(0)
        self.check(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.check(self.library.cuCtxPushCurrent_v2(self.context))

    @staticmethod
    def check(result):
        if result != 0:
            raise AssertionError(f"the driver answers {result}")

    def close(self):
        self.library.simcuda_hold(False)
        self.check(self.library.cuCtxPopCurrent_v2(ctypes.byref(self.context)))
        self.check(self.library.cuDevicePrimaryCtxRelease_v2(self.device))

    def hold(self, held):
        """While held, streams begin no work."""
        self.library.simcuda_hold(held)

    def stream(self, test):
        stream = ctypes.c_void_p()
        self.check(self.library.cuStreamCreate(ctypes.byref(stream), 1))
        test.addCleanup(self.library.cuStreamDestroy_v2, stream)
        return stream.value

    def memory(self, test, size):
        address = ctypes.c_uint64()
        self.check(self.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        test.addCleanup(self.library.cuMemFree_v2, address)
        return address.value

    def read(self, address, size, stream=None):
        """Behind what is queued on that stream."""
        data, stream = (ctypes.c_uint8 * size)(), ctypes.c_void_p(stream)
        self.check(self.library.cuMemcpyDtoHAsync_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size), stream))
        self.check(self.library.cuStreamSynchronize(stream))
        return bytes(data)

    def add_conversion(self, name, bits):
        """tsocket_convert_on's kernel of that name: a look-up of each byte in its channel's table."""
        sizes = (ctypes.c_size_t * 10)(8, 8, 8, 8, 8, 4, 4, 4, 4, 4)
        self.kept += [ctypes.c_char_p(name), Kernel(lambda launch: self.convert(launch, bits))]
        self.library.simcuda_register(*self.kept[-2:], 10, sizes)

    def convert(self, launch, bits):
        params = launch.contents.params
        source, target, table, _, _ = (ctypes.c_uint64.from_address(at).value for at in params[:5])
        images, pixels, _, channels, channels_first = (ctypes.c_uint32.from_address(at).value for at in params[5:10])

        def memory(address, ctype, *shape, write=False):
            size = ctypes.c_size_t(ctypes.sizeof(ctype) * math.prod(shape))
            at = self.library.simcuda_at(launch, ctypes.c_uint64(address), size, write)
            return numpy.ctypeslib.as_array((ctype * math.prod(shape)).from_address(at)).reshape(shape)

        numbers = memory(source, ctypes.c_uint8, images, pixels, channels)
        values = memory(table, ctypes.c_uint32, channels, 256)[numpy.arange(channels), numbers]
        order = (0, 2, 1) if channels_first else (0, 1, 2)
        result = memory(target, ctypes.c_uint16 if bits == 16 else ctypes.c_uint32, images * pixels * channels, write=True)
        result[:] = values.transpose(order).ravel()  # the low bits

    def events(self):
        return self.library.simcuda_calls(b"cuEventRecord")


class DeviceTest(PythonTest):
    def setUp(self):
        super().setUp()
        self.environment.update(SETTINGS)
        self.driver = Driver()
        self.addCleanup(self.driver.close)  # behind tearDown, which closes the loaders

    def start(self, *options, data=f"synthetic:{SAMPLES}x8x8"):
        return self.start_daemon(data, "--ring", "40", "--max-batch", "10", "--device", "cuda,host", *options)

    def on_device(self, batch_size=5, device="cuda", **options):
        return self.loader(batch_size=batch_size, device=device, **options)
