# SPDX-License-Identifier: Apache-2.0
"""Memory that outlives whoever asked for it, and everything else that ends at the wrong time."""
import gc
import multiprocessing
import os
import signal
import threading
import time
import unittest
import warnings

import numpy
import tsocket
from harness import patient, repeats, wait_until
from pythontest import PythonTest


def resident_kib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


class KeepingTest(PythonTest):
    def test_a_batch_is_released_when_the_next_is_asked_for(self):
        self.start_daemon("synthetic:101x8x8")
        loader = self.loader()
        batches = iter(loader)
        first = next(batches)
        first["image"]
        self.assertEqual(loader.held, 1)
        next(batches)
        self.assertEqual(loader.held, 1)
        with self.assertRaisesRegex(tsocket.Invalid, "released"):
            first["image"]

    def test_an_array_keeps_its_batch_and_its_numbers(self):
        self.start_daemon("synthetic:101x8x8", "--ring", "16")
        loader = self.loader(batch_size=4, hold=2)
        batches = iter(loader)
        kept = numpy.asarray(next(batches)["image"])
        before = kept.copy()
        next(batches)
        self.assertEqual(loader.held, 2)
        with self.assertRaisesRegex(tsocket.Held, "hold"):
            next(batches)
        numpy.testing.assert_array_equal(kept, before)
        del kept
        next(batches)
        self.assertEqual(loader.held, 1)

    def test_everything_that_is_made_of_an_array_keeps_it(self):
        self.start_daemon("synthetic:101x8x8")
        loader = self.loader(hold=8)
        for make in (numpy.asarray, numpy.from_dlpack, lambda a: a.memoryview(), lambda a: a.numpy()[1:, 2],
                     lambda a: a.__dlpack__(), lambda a: a):
            kept = make(next(iter(loader))["image"])
            loader.flush()
            self.assertEqual(loader.held, 1)
            del kept
            self.assertEqual(loader.held, 0)

    def test_keep_holds_a_batch_until_it_is_released(self):
        self.start_daemon("synthetic:101x8x8")
        loader = self.loader(hold=3)
        batches = iter(loader)
        kept = next(batches).keep()
        indices = kept.index.tolist()
        next(batches)
        self.assertEqual((loader.held, kept.index.tolist()), (2, indices))
        kept.release()
        self.assertEqual(loader.held, 1)

    def test_what_only_garbage_holds_is_not_held(self):
        self.start_daemon("synthetic:101x8x8")
        loader = self.loader(hold=2)
        gc.disable()
        try:
            for batch in loader:
                cycle = [numpy.asarray(batch["image"])]
                cycle.append(cycle)
            del cycle
        finally:
            gc.enable()
            gc.collect()

    def test_what_a_finalizer_keeps_of_garbage_says_that_it_was_released(self):
        self.start_daemon("synthetic:101x8x8")
        loader = self.loader()
        saved = []

        class Saver:
            def __init__(self, batch):
                self.me, self.batch = self, batch.keep()

            def __del__(self):
                saved.extend((self.batch, self.batch["image"]))

        Saver(next(iter(loader)))
        loader._pass_current()
        gc.collect()
        loader.flush()
        self.assertEqual(loader.held, 0)
        for use in (lambda: saved[0]["image"], lambda: saved[1].memoryview(), lambda: numpy.asarray(saved[1])):
            with self.assertRaisesRegex(tsocket.Invalid, "released"):
                use()

    def test_an_exception_on_its_way_is_not_lost_with_what_it_drops(self):
        self.start_daemon("synthetic:101x8x8")
        batch = next(iter(self.loader()))
        for make in (numpy.from_dlpack, lambda a: a.__dlpack__(), numpy.asarray):
            with self.assertRaises(ZeroDivisionError):
                (make(batch["image"]), 1 / 0)

    def test_arrays_are_read_only(self):
        self.start_daemon("synthetic:101x8x8")
        batch = next(iter(self.loader()))
        with self.assertRaises(ValueError):
            numpy.asarray(batch["image"])[0] = 1
        with self.assertRaises(TypeError):
            batch["label"].memoryview()[0] = 1

    def test_closing_waits_for_the_last_array(self):
        daemon = self.start_daemon("synthetic:101x8x8")
        loader = tsocket.Loader("main", 5)
        kept = numpy.asarray(next(iter(loader))["image"])
        before = kept.copy()
        with self.assertWarns(ResourceWarning):
            loader.close()
        self.assertEqual(len(daemon.status()["streams"][0]["consumers"]), 1)
        numpy.testing.assert_array_equal(kept, before)
        with self.assertRaises(tsocket.Invalid):
            next(iter(loader))
        del kept
        wait_until(lambda: not daemon.status()["streams"][0]["consumers"], what="the consumer's end")

    def test_a_loader_that_is_dropped_is_closed(self):
        daemon = self.start_daemon("synthetic:101x8x8")
        for batch in tsocket.Loader("main", 5):
            break
        del batch
        gc.collect()
        wait_until(lambda: not daemon.status()["streams"][0]["consumers"], what="the consumer's end")

    def test_opening_and_closing_does_not_grow(self):
        self.start_daemon("synthetic:13x8x8")
        cycles = repeats(10000)
        limit_kib = 4096
        for cycle in range(cycles + 200):
            if cycle == 200:
                gc.collect()
                before, descriptors = resident_kib(), len(os.listdir("/proc/self/fd"))
            with tsocket.Loader("main", 5) as loader:
                if cycle % 10 == 0:
                    next(iter(loader))["image"].numpy()
        gc.collect()
        self.assertLess(resident_kib() - before, limit_kib)
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)

    seconds = 400


class ProcessesTest(PythonTest):
    def test_a_forked_child_is_told_and_the_parent_goes_on(self):
        self.start_daemon("synthetic:13x8x8")
        loader = self.loader(batch_size=5, epochs=1)
        batches = iter(loader)
        batch = next(batches)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                next(batches)
            except tsocket.Forked:
                status = 0
            finally:
                del batch, batches
                loader.close()
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        indices = batch.index.tolist() + [i for b in batches for i in b.index.tolist()]
        self.assertEqual(sorted(indices), list(range(13)))

    def test_workers_of_multiprocessing_can_open_their_own(self):
        self.start_daemon("synthetic:13x8x8", "--wait-for", "2", "--epochs", "1")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            got = pool.map(count_samples, ["main", "main"], chunksize=1)
        self.assertEqual(got, [13, 13])

    def test_threads_share_a_loader(self):
        self.start_daemon("synthetic:1009x8x8", "--epochs", "1")
        loader = self.loader(batch_size=7, hold=5)
        lists = [[] for _ in range(4)]

        def read(indices):
            for batch in loader:
                numpy.asarray(batch["image"]).sum()
                indices += batch.index.tolist()

        threads = [threading.Thread(target=self.until_the_end, args=(read, indices)) for indices in lists]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patient(30))
            self.assertFalse(thread.is_alive())
        self.assertEqual(sorted(sum(lists, [])), list(range(1009)))

    def test_a_batch_looked_at_comes_though_another_thread_has_had_the_next(self):
        self.start_daemon("synthetic:103x8x8", "--epochs", "1")
        loader = self.loader(batch_size=5, hold=3)
        put_back, firsts = loader._handle.put_back, []

        def too_late(window):
            thread = threading.Thread(target=lambda: firsts.append(next(iter(loader)).first))
            thread.start()
            thread.join()
            return put_back(window)

        loader._handle.put_back = too_late
        next(loader.epochs())
        loader._handle.put_back = put_back
        firsts += [batch.first for batch in loader]
        self.assertEqual(firsts, [5, 0, *range(10, 103, 5)])

    @staticmethod
    def until_the_end(read, indices):
        try:
            read(indices)
        except tsocket.StreamEnd:
            pass

    def test_arrays_may_die_in_other_threads(self):
        self.start_daemon("synthetic:1009x8x8", "--epochs", "1", "--ring", "256")
        loader = self.loader(batch_size=5, hold=16)
        waiting = []

        def drop():
            while waiting is not None:
                try:
                    waiting.pop(0)
                except IndexError:
                    time.sleep(0)
                if stop.is_set() and not waiting:
                    return

        stop = threading.Event()
        dropper = threading.Thread(target=drop)
        dropper.start()
        total = 0
        for batch in loader:
            while len(waiting) > 8:
                time.sleep(0)
            waiting.append(numpy.asarray(batch["image"]))
            total += batch.count
        stop.set()
        dropper.join(patient(30))
        loader.flush()
        self.assertEqual((total, loader.held), (1009, 0))

    def test_another_thread_can_close_a_loader_that_waits(self):
        self.start_daemon("synthetic:13x8x8", "--wait-for", "2")
        loader = self.loader()
        errors = []

        def wait():
            try:
                next(iter(loader))
            except tsocket.Error as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        loader.close()
        thread.join(patient(10))
        self.assertIsInstance(errors[0], tsocket.Invalid)

    def test_ctrl_c_works_while_it_waits(self):
        self.start_daemon("synthetic:13x8x8", "--wait-for", "2")
        child = self.python("""
import tsocket
loader = tsocket.Loader("main", 5)
try:
    print("waiting")
    next(iter(loader))
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertEqual(child.line(), "waiting")
        begun = time.monotonic()
        child.signal(signal.SIGINT)
        self.assertEqual(child.finish(), "interrupted\n")
        self.assertLess(time.monotonic() - begun, patient(2))

    def test_ctrl_c_works_while_it_looks_for_a_daemon(self):
        child = self.python("""
import tsocket
try:
    print("waiting")
    tsocket.Loader("main", 5, connect_timeout=None)
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertEqual(child.line(), "waiting")
        child.signal(signal.SIGINT)
        self.assertEqual(child.finish(), "interrupted\n")

    def test_the_death_of_the_daemon_is_an_error_after_what_was_ready(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64")
        loader = self.loader(batch_size=8, hold=8)
        batches = iter(loader)
        kept = numpy.asarray(next(batches)["image"])
        before = kept.copy()
        daemon.kill()
        with self.assertRaises(tsocket.Gone):
            for _ in range(1009):
                next(batches)
        numpy.testing.assert_array_equal(kept, before)


def count_samples(name):
    with tsocket.Loader(name, 5) as loader:
        return sum(batch.count for batch in loader)


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    unittest.main()
