# SPDX-License-Identifier: Apache-2.0
"""Python loaders as the source: what they give comes out, once, in their order, in batches of any size."""
import os
import signal
import threading
import unittest
import warnings

import numpy
import torch
import tsocket
from harness import patient, wait_until
from pythontest import PythonTest


def collect(loader, field="index"):
    """One epoch of it."""
    return [x for batch in loader for x in batch[field].tolist()]


class Numbers(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.full((3, 4), float(i)), i


class Stream(torch.utils.data.IterableDataset):
    """Each worker gives all of it, though len() says once."""

    def __len__(self):
        return 6

    def __iter__(self):
        return iter(range(6))


class Longer:
    """Gives more batches than it says."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([numpy.arange(4)] * 5)


class ProducerTest(PythonTest):
    def serve(self, loader, **options):
        """In a thread, as the consumers are here; its error ends up in self.errors."""
        producer = tsocket.Producer(loader, **{"join_grace": 0.0, **options})
        self.errors = []

        def serve():
            try:
                producer.serve()
            except Exception as error:
                self.errors.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(producer.close)
        self.addCleanup(thread.join, patient(20))
        return thread

    def end(self, thread):
        thread.join(patient(20))
        self.assertFalse(thread.is_alive())
        self.assertEqual(self.errors, [])

    def test_a_data_loader_comes_out_in_its_order(self):
        data = torch.utils.data.DataLoader(Numbers(13), batch_size=4, shuffle=True, generator=torch.Generator())
        data.generator.manual_seed(5)
        expected = [i for _ in range(3) for _, labels in data for i in labels.tolist()]
        data.generator.manual_seed(5)
        thread = self.serve(data, epochs=3, wait_for=2)
        five, two = self.loader(batch_size=5), self.loader(batch_size=2)
        self.assertEqual((len(five), len(two), five.samples), (3, 7, 13))
        self.assertEqual([tuple(f) for f in five.fields], [("image", "float32", (3, 4)), ("label", "int64", ())])
        got = {5: [], 2: []}
        for _ in range(3):
            for loader in (five, two):
                for batch in loader:
                    self.assertEqual(numpy.asarray(batch["image"])[:, 0, 0].tolist(), batch["label"].tolist())
                    got[loader.batch_size] += batch["label"].tolist()
        self.assertEqual(got[5], expected)
        self.assertEqual(got[2], expected)
        del batch
        five.close()
        two.close()
        self.end(thread)

    def test_workers_that_are_forked_for_each_epoch(self):
        code = """
import torch, tsocket
numbers = [(torch.full((3, 4), float(i)), i) for i in range(13)]
data = torch.utils.data.DataLoader(numbers, batch_size=4, num_workers=2)
tsocket.Producer(data, epochs=3, join_grace=0).serve()
print("served")
"""
        child = self.python(code)
        loader = self.loader(batch_size=5, connect_timeout=patient(20))
        for _ in range(3):
            self.assertEqual(collect(loader, "label"), list(range(13)))
        loader.close()
        self.assertEqual(child.finish(), "served\n")

    def test_a_forked_child_does_not_wait_for_its_parents_producer(self):
        """Not even where the parent's thread was in a call, with the lock, when the child was made."""
        script = self.python("""
import os, threading, numpy, tsocket
producer = tsocket.Producer([{"x": numpy.zeros((4, 2), "f4")}] * 9, "child", join_grace=0)
producer._lock.acquire()
threading.Thread(target=lambda: None).start()
child = os.fork()
if child == 0:
    done = threading.Thread(target=producer.join, daemon=True)
    done.start()
    done.join(20)
    os._exit(done.is_alive())
producer._lock.release()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
producer.close()
""")
        self.assertEqual(script.line(), "0")
        script.finish()

    def test_its_death_is_noticed_though_a_child_that_it_forked_lives_on(self):
        code = """
import os, time, numpy, tsocket

def batches():
    yield numpy.arange(4)
    child = os.fork()
    if child == 0:
        time.sleep(600)
    print(child)
    time.sleep(600)

tsocket.Producer(batches(), "forks", fields=["index"], epoch_samples=100, join_grace=0).serve()
"""
        producer = self.python(code)
        loader = self.loader("forks", 2, connect_timeout=patient(20))
        child = int(producer.line())
        try:
            batches = iter(loader)
            next(batches)
            producer.kill()
            with self.assertRaises(tsocket.Gone):
                for _ in range(3):
                    next(batches)
            tsocket.Producer([numpy.zeros(2)], "forks").close()  # the name is free
        finally:
            os.kill(child, signal.SIGKILL)
            wait_until(lambda: not os.path.exists(f"/proc/{child}"), what="the child's end")

    def test_batches_of_any_size_and_epochs_of_any_length(self):
        def epochs():
            yield [{"index": numpy.arange(n), "x": numpy.ones((n, 2), "float16")} for n in (3, 1, 7)]
            yield [{"index": numpy.arange(n), "x": numpy.ones((n, 2), "float16")} for n in (5,)]

        class Ragged:
            left = epochs()

            def __iter__(self):
                return iter(next(self.left))

        thread = self.serve(Ragged(), epochs=2, max_batch=4)
        loader = self.loader(batch_size=4)
        with self.assertRaises(TypeError):
            len(loader)
        self.assertEqual(collect(loader), [0, 1, 2, 0, 0, 1, 2, 3, 4, 5, 6])
        self.assertEqual(collect(loader), [0, 1, 2, 3, 4])
        loader.close()
        self.end(thread)

    def test_every_dtype_arrives(self):
        batch = {name: numpy.arange(6).reshape(2, 3).astype(name)
                 for name in ("uint8", "int32", "int64", "float16", "float32", "float64")}
        thread = self.serve([batch], epochs=1)
        loader = self.loader(batch_size=2)
        for got in loader:
            for name, array in batch.items():
                numpy.testing.assert_array_equal(numpy.asarray(got[name]), array)
                self.assertEqual(numpy.asarray(got[name]).dtype, array.dtype)
        del got
        loader.close()
        self.end(thread)

    def test_an_error_of_the_loader_reaches_everybody(self):
        attached = threading.Event()

        def broken():
            yield numpy.arange(4)
            attached.wait()
            raise KeyError("the disk is gone")

        thread = self.serve(broken(), epochs=1, fields=["index"])
        loader = self.loader(batch_size=2)
        attached.set()
        with self.assertRaisesRegex(tsocket.Gone, "given up: KeyError: 'the disk is gone'"):
            collect(loader)
        loader.close()
        thread.join(patient(20))
        self.assertIsInstance(self.errors[0], KeyError)

    def test_what_cannot_be_served_is_said(self):
        for loader, why in (([], "empty"), ([numpy.array(["a"])], "str"), ([(1, 2)], "one value"),
                            ([{"a": numpy.arange(2), "b": numpy.arange(3)}], "lengths"),
                            ([numpy.zeros((0, 2))], "no sample")):
            with self.subTest(why), self.assertRaisesRegex(tsocket.Invalid, why):
                tsocket.Producer(loader)
        pair = (numpy.arange(2), numpy.arange(2))
        for batch, fields, why in ((pair, ["a"], "1 names"), (pair, ["a", "a"], "same name"), (pair, "ab", "list of names"),
                                   ({"a": pair[0]}, ["a", "b"], "no field 'b'; there are a"), ({1: pair[0]}, None, "is 1"),
                                   ((), None, "no fields")):
            with self.subTest(why), self.assertRaisesRegex(tsocket.Invalid, why):
                tsocket.Producer([batch], fields=fields)

    def test_samples_of_another_shape_end_the_run(self):
        self.serve([numpy.zeros((2, 3)), numpy.zeros((2, 4))], epochs=1)
        wait_until(lambda: self.errors, what="the error")
        self.assertRegex(str(self.errors[0]), "padded")

    def test_more_samples_than_were_announced_end_the_run(self):
        self.serve(iter([numpy.zeros(2), numpy.zeros(2)]), epochs=1, epoch_samples=3)
        wait_until(lambda: self.errors, what="the error")
        self.assertRegex(str(self.errors[0]), "epoch_samples=")

    def test_more_batches_than_len_says_end_the_run(self):
        self.serve(Longer(), epochs=1, fields=["index"])
        wait_until(lambda: self.errors, what="the error")
        self.assertRegex(str(self.errors[0]), "12 samples was announced")

    def test_all_that_an_iterable_dataset_gives_is_served(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of the length
            thread = self.serve(torch.utils.data.DataLoader(Stream(), batch_size=4, num_workers=2), epochs=2,
                                fields=["index"])
            loader = self.loader(batch_size=5)
            with self.assertRaises(TypeError):
                len(loader)
            for _ in range(2):
                self.assertEqual(sorted(collect(loader)), sorted(2 * list(range(6))))
            loader.close()
            self.end(thread)

    def test_how_many_samples_a_data_loader_gives(self):
        data, make = Numbers(13), torch.utils.data.DataLoader
        batches = torch.utils.data.BatchSampler(range(5), 2, drop_last=False)
        for loader, samples in ((make(data, batch_size=4), 13), (make(data, batch_size=4, drop_last=True), 12),
                                (make(data, batch_sampler=batches), 5), (make(data, batch_sampler=[[0], [1, 2, 3]]), 0),
                                (make(data, batch_size=None), 0), (make(Stream(), batch_size=4), 0),
                                (Longer(), 12), (iter(Longer()), 0)):
            with self.subTest(samples):
                self.assertEqual(tsocket.producer.samples_of(loader, 4), samples)

    def test_a_data_loader_of_ready_made_batches(self):
        batches = [{"index": torch.arange(n)} for n in (3, 1, 4)]
        thread = self.serve(torch.utils.data.DataLoader(batches, batch_size=None), epochs=1)
        loader = self.loader(batch_size=5)
        self.assertEqual(collect(loader), [0, 1, 2, 0, 0, 1, 2, 3])
        loader.close()
        self.end(thread)

    def test_limits_are_said_before_the_name_is_taken(self):
        raised_here = []  # an exception that is kept keeps the frames in which it was raised
        for options, why in (({"epochs": -1}, "epochs is -1"), ({"ring": -5}, "ring is -5"), ({"ring": 0}, "ring is 0"),
                             ({"max_batch": 0}, "max_batch"), ({"wait_for": -1}, "wait_for"), ({"max_hold": -1}, "max_hold"),
                             ({"epoch_samples": 1.5}, "epoch_samples"),
                             ({"loader": [numpy.zeros((2,) + 7 * (1,))]}, "7 dimensions"),
                             ({"loader": [{str(i): numpy.zeros(2) for i in range(17)}]}, "17 fields"),
                             ({"loader": [{65 * "n": numpy.zeros(2)}]}, "64 bytes"),
                             ({"loader": [numpy.zeros(2, bool)]}, "use uint8"),
                             ({"loader": [torch.zeros(2, dtype=torch.bool)]}, "use uint8")):
            with self.subTest(why), self.assertRaisesRegex(tsocket.Invalid, why) as raised:
                tsocket.Producer(**{"loader": [numpy.zeros(2)], "name": "limits", **options})
            raised_here.append(raised.exception)
        tsocket.Producer([numpy.zeros(2)], "limits").close()

    def test_what_a_loader_gives_is_served_as_it_is(self):
        numbers = torch.arange(6, dtype=torch.float32).bfloat16()
        source = self.serve([{"x": numbers}], epochs=1)
        first = self.loader(batch_size=6)
        batch = next(iter(first))
        thread = self.serve([batch], name="second", epochs=1)
        loader = self.loader("second", batch_size=3)
        self.assertEqual(loader.fields[0].dtype, "bfloat16")
        got = [bits for part in loader for bits in part["x"].memoryview().tolist()]
        self.assertEqual(got, [bits & 0xffff for bits in numbers.view(torch.int16).tolist()])
        loader.close()
        self.end(thread)
        batch.release()
        first.close()
        self.end(source)

    def test_arrays_of_any_memory_layout(self):
        numbers = numpy.arange(60, dtype=numpy.float32).reshape(20, 3)
        arrays = {"swapped": numbers.astype(">f4"), "backwards": numbers[::-1, ::-1], "columns": numpy.asfortranarray(numbers),
                  "one": numpy.broadcast_to(numpy.int64(7), (20, 3))}
        thread = self.serve([arrays], epochs=1)
        with self.loader(batch_size=7, epochs=1) as loader:
            for batch in loader:
                for name, array in arrays.items():
                    numpy.testing.assert_array_equal(batch[name].numpy(), array[batch.first:batch.first + batch.count])
        self.end(thread)

    def test_a_loader_of_another_thread_is_served_on(self):
        self.start_daemon("synthetic:103x2x2", "--epochs", "1", name="upstream")
        source = self.loader("upstream", batch_size=8, hold=1)
        thread = self.serve(source, epochs=1, max_batch=10, ring=40)
        with self.loader(batch_size=5, epochs=1) as loader:
            self.assertEqual(sorted(collect(loader)), list(range(103)))
        self.end(thread)

    def test_an_epoch_that_is_left_early_is_a_shorter_one(self):
        batches = [numpy.arange(i, i + 4) for i in range(0, 20, 4)]
        producer = tsocket.Producer(batches, fields=["index"], epochs=2, join_grace=0.0, wait_for=1)
        self.addCleanup(producer.close)
        for _ in zip(range(2), producer.batches()):
            pass
        thread = threading.Thread(target=producer.serve)
        thread.start()
        with self.loader(batch_size=3) as loader:
            epochs = [collect(loader) for _ in loader.epochs()]
        thread.join(patient(20))
        self.assertEqual([epoch[:8] for epoch in epochs], 2 * [list(range(8))])
        self.assertEqual(list(map(len, epochs)), [8, 20])

    def test_a_name_belongs_to_one(self):
        with tsocket.Producer([numpy.zeros(2)], "one"):
            with self.assertRaises(tsocket.Busy):
                tsocket.Producer([numpy.zeros(2)], "one")
        tsocket.Producer([numpy.zeros(2)], "one").close()

    def test_serve_from_the_command_line(self):
        path = os.path.join(self.folder, "loaders.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write("import numpy\ndef make():\n    return [{'index': numpy.arange(4)}] * 2\n")
        child = self.script("-m", "tsocket", "serve", path + ":make", "--name", "cli", "--epochs", "2", "--join-grace", "0")
        loader = self.loader("cli", 3, connect_timeout=patient(20))
        self.assertEqual(len(loader), 3)
        for _ in loader.epochs():
            self.assertEqual(collect(loader), [0, 1, 2, 3, 0, 1, 2, 3])
        loader.close()
        self.assertEqual(child.finish(), "")

    def test_serve_a_producer_that_the_script_has_made(self):
        path = os.path.join(self.folder, "producers.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write("import tsocket\ndef make():\n    return tsocket.MapProducer([(i, -i) for i in range(9)], 'own', "
                    "fields=['image', 'label'], order='sequential', epochs=1, join_grace=0)\n")
        child = self.script("-m", "tsocket", "serve", path + ":make")
        loader = self.loader("own", 4, connect_timeout=patient(20))
        self.assertEqual(collect(loader, "label"), [-i for i in range(9)])
        loader.close()
        self.assertEqual(child.finish(), "")

    def test_serve_says_what_is_wrong_with_its_arguments(self):
        for argument, why in (("nowhere.py:make", "nowhere.py"), ("json", "SCRIPT.py:FUNCTION"), ("json:nothing", "nothing")):
            child = self.script("-m", "tsocket", "serve", argument)
            child.finish(2)
            self.assertIn(why, child.stderr())


if __name__ == "__main__":
    unittest.main()
