# SPDX-License-Identifier: Apache-2.0
"""Datasets whose samples can be made again: what tsocketd's loaders can do, theirs can."""
import gc
import threading
import unittest
import warnings

import numpy
import tsocket
from harness import patient
from pythontest import PythonTest

SAMPLES = 103


class Squares:
    """Sample i is known by its number."""

    def __init__(self, samples=SAMPLES, bad=()):
        self.samples = samples
        self.bad = bad

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        if i in self.bad:
            raise OSError(f"picture {i} is torn")
        return numpy.full((3, 4), i, numpy.float32), i * i


class MapProducerTest(PythonTest):
    def serve(self, dataset=None, **options):
        options = {"join_grace": 0.0, "ring": 40, "max_batch": 10, "order": "sequential", **options}
        self.producer = producer = tsocket.MapProducer(dataset or Squares(), **options)
        self.errors = []
        self.thread = threading.Thread(target=self.until_the_end, args=(producer,))
        self.thread.start()
        return producer

    def tearDown(self):
        for loader in self.opened:
            loader.close()
        self.end()
        super().tearDown()

    def until_the_end(self, producer):
        try:
            producer.serve()
        except Exception as error:
            self.errors.append(error)

    def end(self):
        self.producer.close()
        self.thread.join(patient(20))
        self.assertFalse(self.thread.is_alive())

    def indices(self, loader, epochs=1):
        got = []
        for _ in range(epochs):
            for batch in loader:
                index = batch.index.tolist()
                self.assertEqual(batch["label"].tolist(), [i * i for i in index])
                self.assertEqual(batch["image"].numpy()[:, 2, 3].tolist(), index)
                got += index
        return got

    def test_every_sample_comes_once_in_the_order_of_the_seed(self):
        self.serve(order="shuffle", seed=5, epochs=2, wait_for=2)
        one, two = self.loader(batch_size=10), self.loader(batch_size=7)
        self.assertEqual([tuple(f) for f in one.fields],
                         [("image", "float32", (3, 4)), ("label", "int64", ()), ("index", "int64", ())])
        self.assertEqual((len(one), one.samples), (11, SAMPLES))
        got = []
        reader = threading.Thread(target=lambda: got.extend(self.indices(two, 2)))
        reader.start()
        first = self.indices(one, 2)
        reader.join()
        self.assertEqual(first, got)
        self.assertEqual(sorted(first[:SAMPLES]), list(range(SAMPLES)))
        self.assertNotEqual(first[:SAMPLES], first[SAMPLES:])
        one.close()
        two.close()
        self.thread.join(patient(20))
        self.assertEqual(self.errors, [])

    def test_an_order_of_ones_own_and_samples_by_epoch(self):
        order = [[3, 1, 4, 1], [5, 9, 2, 6]]
        self.serve(order=lambda epoch: order[epoch % 2], epochs=3,
                   make=lambda epoch, i: {"label": i * i, "image": numpy.full((3, 4), i, numpy.float32), "epoch": epoch})
        loader = self.loader(batch_size=3)
        for epoch in range(3):
            got = [(e, i) for batch in loader for e, i in zip(batch["epoch"].tolist(), batch.index.tolist())]
            self.assertEqual(got, [(epoch, i) for i in order[epoch % 2]])

    def test_who_comes_late_catches_up_within_the_epoch(self):
        self.serve()
        first = self.loader(batch_size=10)
        for _ in zip(range(5), first):
            pass
        late = self.loader(batch_size=5)
        expected = len(late)
        batches = iter(late)
        batch = next(batches)
        self.assertGreater(batch.first, 0)
        indices, count = batch.index.tolist(), 1
        first.close()
        for batch in batches:
            indices += batch.index.tolist()
            count += 1
        self.assertEqual((count, sorted(indices)), (expected, list(range(SAMPLES))))

    def test_who_pauses_or_is_parked_holds_nobody_up_and_comes_back(self):
        self.serve(wait_for=2, max_hold=0.05)
        loader, other = self.loader(batch_size=10), self.loader(batch_size=7)
        kept = next(iter(loader))
        self.assertEqual(self.indices(other, 2), 2 * list(range(SAMPLES)))
        with self.assertRaises(tsocket.Lost):
            kept.release()
        with loader.paused():
            self.assertEqual(self.indices(other, 2), 2 * list(range(SAMPLES)))
        other.close()
        self.assertEqual(self.indices(loader), list(range(SAMPLES)))

    def test_a_token_goes_on_with_the_next_run_of_the_same_data(self):
        self.serve(order="shuffle", seed=5)
        loader = self.loader(batch_size=10)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        self.assertIsNotNone(state["token"])
        rest = [i for batch in batches for i in batch.index.tolist()]
        loader.close()
        self.end()
        self.serve(order="shuffle", seed=5)
        self.assertEqual(self.indices(self.loader(batch_size=7, resume=state)), rest)
        for difference in ({"seed": 6}, {"identity": "others"}, {"dataset": Squares(SAMPLES + 1)},
                           {"order": "sequential"}):
            self.end()
            self.serve(**{"order": "shuffle", "seed": 5, **difference})
            with self.assertRaises(tsocket.Refused):
                self.loader(batch_size=7, resume=state)

    def test_a_sample_that_cannot_be_made_ends_the_run_or_is_left_out(self):
        self.serve(Squares(bad=(50,)), epochs=1)
        loader = self.loader(batch_size=10)
        with self.assertRaisesRegex(tsocket.Gone, "given up: .*picture 50 is torn"):
            self.indices(loader)
        self.thread.join(patient(20))
        self.assertIn("picture 50 is torn", str(self.errors[0]))
        loader.close()
        self.serve(Squares(bad=(50,)), epochs=1, on_bad="skip")
        loader = self.loader(batch_size=10)
        self.assertEqual(sorted(self.indices(loader)), [i for i in range(SAMPLES) if i != 50])
        self.assertEqual(loader.ended_epoch.samples, SAMPLES - 1)

    def test_the_first_sample_may_be_a_bad_one(self):
        self.serve(Squares(bad=(0, 1)), epochs=1, on_bad="skip")
        self.assertEqual(sorted(self.indices(self.loader(batch_size=10))), list(range(2, SAMPLES)))

    def test_an_index_of_ones_own_is_left_out_with_fields(self):
        self.serve(make=lambda epoch, i: {"index": -1, "label": i * i}, fields=["label"], epochs=1)
        loader = self.loader(batch_size=10)
        self.assertEqual([i for batch in loader for i in batch.index.tolist()], list(range(SAMPLES)))

    def test_who_is_dropped_gives_the_name_back(self):
        for options in ({}, {"order": lambda epoch: range(5)}):
            producer = tsocket.MapProducer(Squares(), "dropped", **options)
            gc.disable()
            try:
                del producer
                tsocket.MapProducer(Squares(), "dropped").close()
            finally:
                gc.enable()
        self.serve()

    def test_a_script_that_serves_from_a_daemon_thread_exits(self):
        code = """
import sys, threading, numpy, tsocket
if sys.argv[1] == "map":
    producer = tsocket.MapProducer([(i, i) for i in range(100)], "exits", ring=20, max_batch=5, join_grace=0)
else:
    producer = tsocket.Producer([numpy.arange(100)], "exits", ring=20, max_batch=5, join_grace=0, fields=["index"])
threading.Thread(target=producer.serve, daemon=True).start()
with tsocket.Loader("exits", 5) as loader:
    next(iter(loader))
print("read")
"""
        for kind in ("map", "any"):
            self.assertEqual(self.python(code, kind).finish(seconds=patient(20)), "read\n")
        self.serve()

    def test_what_cannot_be_served_is_said(self):
        for options, said in (({"order": "random"}, "order"), ({"on_bad": "mask"}, "on_bad"),
                              ({"dataset": Squares(0)}, "empty"), ({"threads": 0}, "threads"),
                              ({"seed": -1}, "seed"), ({"seed": 2 ** 64}, "seed"),
                              ({"dataset": Squares(5, bad=range(5)), "on_bad": "skip"}, "first 5 samples.*is torn"),
                              ({"fields": ["image", "index"]}, "index is there already"),
                              ({"make": lambda epoch, i: {"index": -i}}, "index is there already"),
                              ({"make": lambda epoch, i: numpy.zeros(7 * (1,))}, "7 dimensions")):
            with self.assertRaisesRegex(tsocket.Invalid, said):
                tsocket.MapProducer(**{"dataset": Squares(), **options})
        self.serve(make=lambda epoch, i: {"a": i} if i < 60 else {"b": i})  # behind the ring
        with self.loader(batch_size=5) as loader, self.assertRaises(tsocket.Gone):
            list(loader)
        self.thread.join(patient(20))
        self.assertRegex(str(self.errors.pop()), "b, index, and were a, index")
        self.serve(order=lambda epoch: range(10 + epoch % 2))
        with self.assertRaises(tsocket.Gone):
            self.indices(self.loader(batch_size=5), 3)
        self.thread.join(patient(20))
        self.assertRegex(str(self.errors[0]), "11 indices")


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    unittest.main()
