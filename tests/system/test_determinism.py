# SPDX-License-Identifier: Apache-2.0
"""Order and bytes are a function of dataset, recipe, seed and epoch: not of threads, ring, batch sizes or company."""
import os
import unittest

import pictures
from harness import SystemTest

EPOCHS = 2


class DeterminismTest(SystemTest):
    def samples_of(self, dataset, *args, batch=1, company=(), ring="64", name="main"):
        """[(epoch, index, label, hash)] as one consumer got them; hash is of the batch, so of the sample if batch is 1."""
        daemon = self.start_daemon(
            dataset, "--epochs", str(EPOCHS), "--ring", ring, "--wait-for", str(1 + len(company)), *args, name=name
        )
        others = [self.tap(daemon, size) for size in company]
        tap = self.tap(daemon, batch).finish()
        for other in others:
            other.finish()
        self.assertEqual(daemon.wait(), 0)
        lines = tap.of_kind("batch")
        return [(b["epoch"], b["index"], b["label"], b["hash"]) for b in lines]

    def photographs(self):
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, classes=3, per_class=11)
        return folder

    def test_photographs_do_not_depend_on_the_number_of_workers(self):
        args = [self.photographs(), "--size", "32", "--seed", "5"]
        one = self.samples_of(*args, "--workers", "1")
        self.assertEqual(len(one), 33 * EPOCHS)
        for workers in ("2", "7"):
            self.assertEqual(self.samples_of(*args, "--workers", workers), one, f"--workers {workers}")

    def test_photographs_do_not_depend_on_the_size_of_the_ring(self):
        args = [self.photographs(), "--size", "32"]
        small = self.samples_of(*args, ring="2")
        for ring in ("3", "17", "1024"):
            self.assertEqual(self.samples_of(*args, ring=ring), small, f"--ring {ring}")

    def test_photographs_do_not_depend_on_other_consumers(self):
        args = [self.photographs(), "--size", "32"]
        alone = self.samples_of(*args)
        self.assertEqual(self.samples_of(*args, company=(2, 7, 13)), alone)

    def test_float_images_do_not_depend_on_the_number_of_workers(self):
        args = [self.photographs(), "--size", "32", "--dtype", "float32", "--layout", "nchw"]
        self.assertEqual(self.samples_of(*args, "--workers", "1"), self.samples_of(*args, "--workers", "7"))

    def test_batches_do_not_depend_on_workers_ring_or_company(self):
        alone = self.samples_of("synthetic:1009x8x8", "--workers", "1", batch=16)
        other = self.samples_of("synthetic:1009x8x8", "--workers", "7", batch=16, ring="500", company=(9, 25, 7))
        self.assertEqual(other, alone)

    def test_order_does_not_depend_on_the_batch_size(self):
        def order(batch):
            return [i for _, index, _, _ in self.samples_of("synthetic:1009x8x8", batch=batch) for i in index]

        one = order(1)
        for batch in (2, 7, 32):
            self.assertEqual(order(batch), one, f"batch {batch}")

    def test_a_restarted_daemon_makes_the_same_epochs(self):
        args = ["synthetic:101x8x8", "--seed", "9"]
        self.assertEqual(self.samples_of(*args), self.samples_of(*args))

    def test_another_seed_gives_another_order_and_the_same_samples(self):
        args = ["synthetic:101x8x8", "--workers", "2"]
        one = self.samples_of(*args, "--seed", "1")
        two = self.samples_of(*args, "--seed", "2")
        self.assertNotEqual([s[1] for s in one], [s[1] for s in two])
        self.assertEqual(sorted(s[1] for s in one), sorted(s[1] for s in two))

    def test_without_shuffle_samples_come_as_they_are_listed(self):
        got = self.samples_of("synthetic:101x8x8", "--no-shuffle")
        self.assertEqual([s[1] for s in got], [[i] for i in range(101)] * EPOCHS)

    def test_augmentation_differs_from_epoch_to_epoch_and_evaluation_does_not(self):
        folder = self.photographs()

        def hashes(*args):
            got = self.samples_of(folder, "--size", "32", *args)
            return [{tuple(i): h for e, i, _, h in got if e == epoch} for epoch in range(EPOCHS)]

        first, second = hashes("--augment", "train")
        self.assertGreater(sum(first[i] != second[i] for i in first), 25)
        first, second = hashes("--augment", "eval")
        self.assertEqual(first, second)


if __name__ == "__main__":
    unittest.main()
