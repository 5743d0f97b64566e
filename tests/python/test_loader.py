# SPDX-License-Identifier: Apache-2.0
"""What a Loader gives: the same as tsocketctl tap, epoch by epoch."""
import copy
import os
import pickle
import unittest

import numpy
import tsocket
from pythontest import PythonTest


class LoaderTest(PythonTest):
    def test_every_byte_is_what_tap_gets(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--epochs", "2", "--wait-for", "2")
        dump = os.path.join(self.folder, "dump")
        os.mkdir(dump)
        loader = self.loader()
        tap = self.tap(daemon, 5, "--dump", dump)
        got = {}
        for epoch in range(2):
            for batch in loader:
                self.assertEqual(batch.epoch, epoch)
                self.assertEqual(list(batch), ["image", "label", "index"])
                for name in batch:
                    array = numpy.asarray(batch[name])
                    numpy.testing.assert_array_equal(numpy.from_dlpack(batch[name]), array)
                    self.assertEqual(batch[name].tolist(), array.tolist())
                    got[f"{epoch}-{batch.first}-{name}.npy"] = array.copy()
        del array, batch
        loader.close()
        tap.finish()
        self.assert_whole_epochs(tap, 13, 5, range(2))
        self.assertEqual(sorted(got), sorted(os.listdir(dump)))
        for name, array in got.items():
            expected = numpy.load(os.path.join(dump, name))
            self.assertEqual(array.dtype, expected.dtype)
            numpy.testing.assert_array_equal(array, expected)

    def test_a_for_is_an_epoch_and_len_is_its_batches(self):
        self.start_daemon("synthetic:13x8x8", "--epochs", "3")
        loader = self.loader(batch_size=5)
        self.assertEqual(len(loader), 3)
        for epoch in range(3):
            counts = [(batch.own_epoch, batch.first, batch.count, batch.valid) for batch in loader]
            self.assertEqual(counts, [(epoch, 0, 5, 5), (epoch, 5, 5, 5), (epoch, 10, 3, 3)])
        with self.assertRaises(tsocket.StreamEnd):
            next(iter(loader))

    def test_epochs_ends_with_the_stream(self):
        self.start_daemon("synthetic:13x8x8", "--epochs", "3")
        loader = self.loader(batch_size=4)
        got = {epoch: sorted(i for batch in loader for i in batch.index.tolist()) for epoch in loader.epochs()}
        self.assertEqual(got, {epoch: list(range(13)) for epoch in range(3)})

    def test_an_epoch_that_was_left_early_goes_on(self):
        self.start_daemon("synthetic:13x8x8")
        loader = self.loader(batch_size=5, epochs=1)
        indices = []
        for batch in loader:
            indices += batch.index.tolist()
            break
        for batch in loader:
            indices += batch.index.tolist()
        self.assertEqual(sorted(indices), list(range(13)))

    def test_last_decides_about_the_rest(self):
        self.start_daemon("synthetic:13x8x8", "--epochs", "1", "--wait-for", "2")
        drop, pad = self.loader(batch_size=5, last="drop"), self.loader(batch_size=5, last="pad")
        self.assertEqual((len(drop), len(pad)), (2, 3))
        self.assertEqual([batch.count for batch in drop], [5, 5])
        self.assertEqual([(batch.count, batch.valid) for batch in pad], [(5, 5), (5, 5), (5, 3)])

    def test_ranks_share_an_epoch(self):
        self.start_daemon("synthetic:26x8x8", "--wait-for", "2", "--epochs", "1")
        os.environ.update(RANK="1", WORLD_SIZE="2")
        try:
            auto = self.loader(batch_size=5, shard="auto")
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]
        first = self.loader(batch_size=5, shard=(0, 2))
        self.assertEqual((auto.rank, auto.world, len(auto), len(first)), (1, 2, 3, 3))
        indices = []
        for a, b in zip(first, auto):
            indices += a.index.tolist()[:a.valid] + b.index.tolist()[:b.valid]
        self.assertEqual(sorted(indices), list(range(26)))

    def test_only_the_fields_that_are_wanted(self):
        self.start_daemon("synthetic:13x8x8")
        loader = self.loader(fields=["index", "image"])
        self.assertEqual([tuple(field) for field in loader.fields],
                         [("index", "int64", ()), ("image", "uint8", (8, 8, 3))])
        batch = next(iter(loader))
        self.assertEqual(list(batch), ["index", "image"])
        with self.assertRaises(KeyError):
            batch["label"]

    def test_what_is_not_possible_is_said(self):
        self.start_daemon("synthetic:13x8x8", "--max-batch", "8")
        for error, options in ((tsocket.Refused, dict(batch_size=9)), (tsocket.Invalid, dict(batch_size=0)),
                               (tsocket.Invalid, dict(last="all")), (tsocket.Invalid, dict(shard=(2, 2))),
                               (tsocket.Invalid, dict(fields="image")), (tsocket.NotFound, dict(fields=["depth"])),
                               (tsocket.NotFound, dict(name="nobody"))):
            with self.subTest(options), self.assertRaises(error) as caught:
                tsocket.Loader(**{"name": "main", "batch_size": 4, **options})
            self.assertTrue(str(caught.exception))
        self.assertIn("--max-batch 8", str(self.failing(batch_size=9)))

    def test_numbers_that_are_not_possible_are_said(self):
        self.start_daemon("synthetic:13x8x8")
        for options in (dict(connect_timeout=-1), dict(connect_timeout="1"), dict(connect_timeout=float("inf")),
                        dict(reconnect=float("inf")), dict(reconnect=3e6), dict(reconnect=-2), dict(timeout=float("nan")),
                        dict(shard="x"), dict(shard=(0, 1, 2)), dict(shard=(0.5, 2)), dict(shard=(-1, 2)),
                        dict(batch_size=8.5), dict(hold=-1), dict(max_lag=-1), dict(epochs=1.5)):
            (name, value), = options.items()
            with self.subTest(options), self.assertRaisesRegex(tsocket.Invalid, name):
                tsocket.Loader("main", **{"batch_size": 4, **options})
        self.assertEqual(self.loader(batch_size=numpy.int64(4)).batch_size, 4)

    def test_nothing_of_a_loader_is_copied(self):
        self.start_daemon("synthetic:13x8x8")
        loader = self.loader()
        batch = next(iter(loader))
        for what in (loader, batch, batch["image"], batch._window):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.subTest(f"{copied.__name__} {what}"), self.assertRaisesRegex(TypeError, "copied or pickled"):
                    copied(what)

    def failing(self, **options):
        try:
            tsocket.Loader("main", **options)
        except tsocket.Error as error:
            return error
        raise AssertionError("it did not fail")

    def test_a_timeout_is_an_error_and_the_loader_goes_on(self):
        self.start_daemon("synthetic:13x8x8", "--wait-for", "2")
        loader = self.loader(timeout=0.15)
        with self.assertRaises(tsocket.Timeout):
            next(iter(loader))
        epochs = loader.epochs()
        with self.assertRaises(tsocket.Timeout):
            next(epochs)
        self.loader()
        loader._timeout = 20
        self.assertEqual(next(epochs), 0)
        self.assertEqual(next(iter(loader)).count, 5)

    def test_it_waits_for_a_daemon_that_comes_later(self):
        waiting = self.python("import tsocket; print('waiting'); print(len(tsocket.Loader('main', 5, connect_timeout=60)))")
        self.assertEqual(waiting.line(), "waiting")
        self.start_daemon("synthetic:13x8x8")
        self.assertEqual(waiting.finish(), "3\n")


if __name__ == "__main__":
    unittest.main()
