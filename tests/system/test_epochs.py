# SPDX-License-Identifier: Apache-2.0
"""Every consumer gets every sample of an epoch exactly once, in one order, in batches of its own size."""
import unittest

from harness import SystemTest


class EpochsTest(SystemTest):
    def run_taps(self, samples, batches, epochs, last="keep", ring="64"):
        """One consumer per batch size, all from the first epoch on; the daemon ends by itself."""
        daemon = self.launch_daemon(
            f"synthetic:{samples}x8x8", "--epochs", str(epochs), "--ring", ring, "--wait-for", str(len(batches))
        ).wait_ready()
        taps = [self.tap(daemon, batch, "--last", last) for batch in batches]
        for tap in taps:
            tap.finish()
            self.assert_whole_epochs(tap, samples, tap.batch_size, range(epochs), last)
        self.assertEqual(daemon.wait(), 0)
        return taps

    def assert_same_order(self, taps):
        for tap in taps[1:]:
            for number, epoch in tap.epochs().items():
                self.assertEqual(epoch.indices(), taps[0].epochs()[number].indices(), f"order of epoch {number}")

    def test_every_batch_size_gets_each_of_13_samples_once_per_epoch(self):
        self.assert_same_order(self.run_taps(13, [2, 3, 5, 7, 13], 5))

    def test_13_samples_through_a_ring_of_26(self):
        self.assert_same_order(self.run_taps(13, [2, 3, 5, 7, 13], 5, ring="26"))

    def test_coprime_batch_sizes_get_each_of_1009_samples_once_per_epoch(self):
        self.assert_same_order(self.run_taps(1009, [1, 9, 16, 25, 49, 121], 3, ring="242"))

    def test_coprime_batch_sizes_get_each_of_4001_samples_once_per_epoch(self):
        self.assert_same_order(self.run_taps(4001, [32, 48, 81, 125], 2, ring="1000"))

    def test_a_short_tail_is_left_out_when_the_consumer_drops_it(self):
        self.run_taps(13, [2, 3, 5, 7, 13], 5, last="drop")

    def test_a_short_tail_is_filled_up_when_the_consumer_pads_it(self):
        for tap in self.run_taps(13, [2, 3, 5, 7, 13], 5, last="pad"):
            for epoch in tap.epochs().values():
                real = epoch.indices()[:13]
                tail = real[13 - 13 % tap.batch_size :]
                self.assertEqual(sorted(real), list(range(13)), "the real samples come first")
                self.assertTrue(set(epoch.indices()[13:]) <= set(tail), "what fills up repeats the tail")

    def test_a_dataset_smaller_than_the_batch_is_one_short_batch(self):
        for tap in self.run_taps(3, [4, 32], 2):
            self.assertEqual([e.sizes() for e in tap.epochs().values()], [[3], [3]])

    def test_a_dataset_smaller_than_the_batch_is_nothing_when_the_tail_is_dropped(self):
        for tap in self.run_taps(3, [4, 32], 2, last="drop"):
            self.assertEqual(tap.of_kind("batch"), [])
            self.assertIn("drop", tap.stderr().lower(), "a warning says why there is nothing")

    def test_a_dataset_smaller_than_the_batch_is_one_full_batch_when_padded(self):
        for tap in self.run_taps(3, [4, 32], 2, last="pad"):
            self.assertEqual([e.sizes() for e in tap.epochs().values()], [[tap.batch_size]] * 2)

    def test_a_dataset_of_one_sample(self):
        self.run_taps(1, [1, 2], 5)

    def test_each_epoch_has_another_order(self):
        (tap,) = self.run_taps(1009, [32], 4)
        orders = [epoch.indices() for epoch in tap.epochs().values()]
        for n, order in enumerate(orders):
            self.assertNotIn(order, orders[:n])
            self.assertNotEqual(order, sorted(order))

    def test_the_attached_line_says_where_the_consumer_begins(self):
        (tap,) = self.run_taps(13, [5], 1)
        first = tap.events[0][1]
        self.assertEqual(first, {"event": "attached", "epoch": 0, "position": 0, "epoch_samples": 13})

    def test_a_consumer_that_wants_two_epochs_gets_two(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64")
        tap = self.tap(daemon, 5, "--epochs", "2").finish()
        self.assert_whole_epochs(tap, 13, 5, range(2))
        self.assertTrue(daemon.running())

    def test_a_null_source_advances_through_its_epochs(self):
        daemon = self.start_daemon("null:1009x8x8", "--ring", "256")
        tap = self.tap(daemon, 100, "--epochs", "3").finish()
        for number in range(3):
            epoch = tap.epochs()[number]
            self.assertEqual(epoch.sizes(), [100] * 10 + [9])
            self.assertEqual(epoch.ended_with, [1009])


if __name__ == "__main__":
    unittest.main()
