# SPDX-License-Identifier: Apache-2.0
"""Batches in the memory of a GPU: the simulated one, whose addresses the interpreter cannot follow either."""
import ctypes
import gc
import unittest
import warnings
from unittest import mock

import numpy
import tsocket
from simulated import SAMPLES, DeviceTest
from tsocket import _library

CUDA, IPC, VMM = 2, 1, 2  # kDLCUDA; enum tsocket_memory

api = ctypes.pythonapi
name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", api))
USED = b"used_dltensor"


class ManagedTensor(ctypes.Structure):
    """struct DLManagedTensor, as dlpack.h has it."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def tensor_of(capsule):
    return ManagedTensor.from_address(pointer_of(capsule, name_of(capsule)))


class ArrayTest(DeviceTest):
    def test_where_it_is_and_that_it_is_what_c_says(self):
        for share, memory in (("vmm", VMM), ("ipc", IPC)):
            self.start("--share", share)
            loader = self.on_device()
            batch = next(iter(loader))
            image = batch["image"]
            self.assertEqual((loader.device, loader._handle.info.memory), ("cuda:0", memory))
            self.assertIsInstance(image, tsocket.DeviceArray)
            self.assertEqual((image.dtype, image.shape, image.nbytes), ("uint8", (5, 8, 8, 3), 5 * 192))
            self.assertEqual(image.__dlpack_device__(), (CUDA, 0))
            address = batch._window.batch.data[0]
            interface = image.__cuda_array_interface__
            self.assertEqual((interface["data"], interface["version"], interface["shape"], interface["typestr"],
                              interface["stream"]), ((address, True), 3, (5, 8, 8, 3), "|u1", None))
            capsule = image.__dlpack__(stream=-1)
            tensor = tensor_of(capsule)
            self.assertEqual((name_of(capsule), tensor.data, tensor.byte_offset), (b"dltensor", address, 0))
            self.assertEqual((tensor.device_type, tensor.device_id, tensor.code, tensor.bits, tensor.lanes),
                             (CUDA, 0, 1, 8, 1))
            self.assertEqual(tensor.shape[:tensor.ndim], [5, 8, 8, 3])
            self.assertEqual(self.driver.read(address, image.nbytes), bytes(image.to_host().memoryview()))
            del batch, image, capsule, tensor
            loader.close()
            self.end_daemons()

    def test_another_device_has_another_number_and_the_same_numbers(self):
        self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--device", "cuda:0,cuda:1,host", "--wait-for", "3")
        loaders = [self.on_device(device=device) for device in ("host", "cuda:0", "cuda:1")]
        self.assertEqual([loader.device for loader in loaders], ["host", "cuda:0", "cuda:1"])
        for host, first, second in zip(*loaders):
            self.assertEqual(second["image"].__dlpack_device__(), (CUDA, 1))
            for field in host:
                numbers = host[field].tolist()
                self.assertEqual(first[field].to_host().tolist(), numbers)
                self.assertEqual(second[field].to_host().tolist(), numbers)

    def test_without_being_asked_it_is_host_memory(self):
        self.start()
        self.assertIsInstance(next(iter(self.loader()))["image"], tsocket.HostArray)
        self.assertEqual(self.loader(device=None).device, "cuda:0")

    def test_who_gets_no_gpu_is_told_by_its_batches(self):
        self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--device", "host")
        loader = self.on_device()
        self.assertEqual(loader.device, "host")
        self.assertEqual(next(iter(loader))["index"].to_host().shape, (5,))

    def test_what_only_host_memory_can_do_says_the_way_out(self):
        self.start()
        array = next(iter(self.on_device()))["image"]
        for use in (numpy.asarray, lambda a: a.numpy(), lambda a: a[0], list, lambda a: a.tolist(),
                    lambda a: a.memoryview()):
            with self.assertRaisesRegex(TypeError, "to_host"):
                use(array)
        self.assertFalse(hasattr(array.to_host(), "__cuda_array_interface__"))

    def test_streams_as_dlpack_numbers_them(self):
        self.start()
        array = next(iter(self.on_device()))["image"]
        for stream in (0, -2, "default"):
            with self.assertRaisesRegex(tsocket.Invalid, "stream"):
                array.__dlpack__(stream=stream)
        for stream in (-1, None, 1, -1):
            array.__dlpack__(stream=stream)
        for options in ({"copy": True}, {"dl_device": (1, 0)}):
            with self.assertRaisesRegex(BufferError, "to_host"):
                array.__dlpack__(**options)
        array.__dlpack__(copy=False, dl_device=(CUDA, 0), max_version=(1, 0))

    def test_bfloat16_goes_by_dlpack_alone(self):
        self.start()
        image = next(iter(self.on_device()))["image"]
        array = tsocket.DeviceArray(image._address, _library.BY_NAME["bfloat16"], (5, 8, 8, 1), image._owner, 0, 0)
        tensor = tensor_of(array.__dlpack__())
        self.assertEqual((tensor.code, tensor.bits, tensor.device_type), (4, 16, CUDA))
        self.assertFalse(hasattr(array, "__cuda_array_interface__"))


class LifetimeTest(DeviceTest):
    def test_everything_that_is_made_of_an_array_keeps_it(self):
        self.start()
        loader = self.on_device(hold=4)
        for make in (lambda a: a, lambda a: a.__dlpack__()):
            kept = make(next(iter(loader))["image"])
            loader.flush()
            self.assertEqual(loader.held, 1)
            del kept
            self.assertEqual(loader.held, 0)
        copy = next(iter(loader))["index"].to_host()
        numbers = copy.tolist()
        next(iter(loader))
        self.assertEqual((loader.held, copy.tolist()), (1, numbers))

    def test_a_capsule_that_was_taken_is_kept_until_its_deleter_runs(self):
        self.start()
        loader = self.on_device(hold=4)
        capsule = next(iter(loader))["image"].__dlpack__()
        taken = tensor_of(capsule)
        rename(capsule, USED)
        del capsule
        loader.flush()
        self.assertEqual(loader.held, 1)
        with self.assertRaises(ZeroDivisionError):
            try:
                1 / 0
            finally:
                taken.deleter(ctypes.addressof(taken))
        self.assertEqual(loader.held, 0)

    def test_what_is_kept_stays_as_it_is(self):
        self.start()
        loader = self.on_device(batch_size=10, hold=2)
        batches = iter(loader)
        kept = next(batches)["image"]
        before = kept.to_host().tolist()
        next(batches)
        with self.assertRaises(tsocket.Held):
            next(batches)
        self.assertEqual(kept.to_host().tolist(), before)
        with self.assertWarns(ResourceWarning):
            loader.close()
        self.assertEqual(kept.to_host().tolist(), before)

    def test_nothing_is_left_on_the_device(self):
        self.start()
        before = self.driver.library.simcuda_live()
        with tsocket.Loader("main", 5, device="cuda") as loader:
            for batch in loader:
                batch["image"].__dlpack__()
            del batch
        gc.collect()
        self.assertEqual(self.driver.library.simcuda_live(), before)


class ReleaseTest(DeviceTest):
    def behind(self, use, **options):
        """Whether batches that are used like this are released only when work on the streams is done."""
        loader = self.on_device(batch_size=10, hold=2, timeout=0.3, **options)
        batches = iter(loader)
        self.driver.hold(True)
        try:
            use(next(batches))
            use(next(batches))
            loader._pass_current()
            rc = _library.load().tsocket_flush(loader._handle._pointer)
        finally:
            self.driver.hold(False)
        self.assertEqual(sum(batch.count for batch in batches), SAMPLES - 20)
        loader.close()
        return rc == _library.EAGAIN

    def test_a_batch_is_released_behind_the_work_on_its_stream(self):
        stream = self.driver.stream(self)
        for use, options, expected in (
                (lambda b: None, {}, True),  # the default stream
                (lambda b: b["image"].__dlpack__(stream=stream), {}, True),
                (lambda b: b.release(stream=stream), {}, True),
                (lambda b: b.release(stream=-1), {}, False),
                (lambda b: None, {"stream": stream}, True),
                (lambda b: None, {"stream": -1}, False)):
            self.start()
            before = self.driver.events()
            self.assertEqual(self.behind(use, **options), expected)
            self.assertEqual(self.driver.events() > before, options != {"stream": -1})
            self.end_daemons()

    def test_the_stream_is_the_one_that_was_named(self):
        self.start()
        one, two = self.driver.stream(self), self.driver.stream(self)
        for options, use, expected in (
                ({}, lambda b: None, 1), ({}, lambda b: b["image"].__dlpack__(), 1),
                ({}, lambda b: b["image"].__dlpack__(stream=2), 2), ({}, lambda b: b["image"].__dlpack__(stream=one), one),
                ({"stream": two}, lambda b: b["image"].__dlpack__(stream=one), two), ({"stream": 0}, lambda b: None, 1),
                ({"stream": Torchs(one)}, lambda b: None, one), ({"stream": CuPys(one)}, lambda b: None, one),
                ({"stream": Anybodys(one)}, lambda b: None, one)):
            loader = self.on_device(**options)
            batch = next(iter(loader))
            use(batch)
            with mock.patch.object(loader._handle, "_library", wraps=loader._handle._library) as library:
                batch.release()
            self.assertEqual(library.tsocket_release_after.call_args[0][2], expected)
            loader.close()
        with self.assertRaisesRegex(tsocket.Invalid, "no stream"):
            self.on_device(stream="mine")

    def test_two_readers_on_two_streams_are_one_too_many(self):
        self.start()
        batch = next(iter(self.on_device()))
        one, two = self.driver.stream(self), self.driver.stream(self)
        batch["image"].__dlpack__(stream=one)
        batch["label"].__dlpack__(stream=one)
        with self.assertRaisesRegex(tsocket.Invalid, "stream="):
            batch["image"].__dlpack__(stream=two)

    def test_a_driver_that_refuses_is_said_and_the_loader_can_be_closed(self):
        self.start()
        loader = self.on_device()
        batch = next(iter(loader))
        self.driver.library.simcuda_fail(b"cuEventRecord", ctypes.c_ulong(1), 400)
        with self.assertRaisesRegex(tsocket.Device, "400"):
            batch.release()
        self.driver.library.simcuda_fail(b"cuEventRecord", ctypes.c_ulong(1), 400)
        batches = iter(loader)
        next(batches)
        with self.assertRaisesRegex(tsocket.Device, "400"):
            next(batches)

    def test_a_pause_waits_for_the_work(self):
        self.start()
        loader = self.on_device()
        next(iter(loader))
        with loader.paused():
            self.assertEqual(loader.held, 0)
        self.assertEqual(next(iter(loader)).first, 5)

    def test_what_was_written_over_before_the_release_was_seen_comes_again(self):
        self.start("--max-hold", "50ms", "--wait-for", "2")
        loader, other = self.on_device(batch_size=10), self.loader(batch_size=10)
        batches = iter(loader)
        self.driver.hold(True)
        next(batches).release()
        for _ in range(2):
            self.assertEqual(sum(batch.count for batch in other), SAMPLES)
        self.driver.hold(False)
        with self.assertRaisesRegex(tsocket.Lost, "again"):
            next(batches)
        self.assertEqual((loader.lost, next(batches).first), (1, 0))


class Torchs:
    def __init__(self, number):
        self.cuda_stream = number


class CuPys:
    def __init__(self, number):
        self.ptr = number


class Anybodys:
    def __init__(self, number):
        self.number = number

    def __cuda_stream__(self):
        return 0, self.number


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    unittest.main()
