# SPDX-License-Identifier: Apache-2.0
"""Consumers that come, go, stop, go on and die in no order, and what still holds for each of them."""
import os
import random
import signal
import time
import unittest

import pictures
from harness import SystemTest, patient, repeats

BATCHES = (1, 2, 3, 5, 7, 8, 13, 16)


class ChaosTest(SystemTest):
    seconds = 120

    def chaos(self, seed, daemon, steps):
        """Every consumer that was ever there, each with what it read."""
        chance = random.Random(seed)
        alive, all_ = [], []
        for _ in range(steps):
            what = chance.random()
            if what < 0.35 and len(alive) < 8 or not alive:
                tap = self.newcomer(chance, daemon)
                alive.append(tap)
                all_.append(tap)
            elif what < 0.55:
                alive.pop(chance.randrange(len(alive))).kill()
            elif what < 0.7:
                leaver = alive.pop(chance.randrange(len(alive)))
                leaver.go_on()
                leaver.signal(signal.SIGTERM)
            elif what < 0.85:
                chance.choice(alive).stop()
            else:
                chance.choice(alive).go_on()
            time.sleep(chance.random() * 0.02)
        self.let_all_go_on(alive)
        return all_

    def newcomer(self, chance, daemon):
        options = ["--join", chance.choice(("wait", "now")), "--hold-ms", chance.choice(("0", "0", "1", "3"))]
        if chance.random() < 0.3:
            options += ["--epochs", str(chance.randrange(1, 4))]
        return self.tap(daemon, chance.choice(BATCHES), *options)

    def let_all_go_on(self, alive):
        """Whoever is left gets further: nothing that the others did has stopped the stream."""
        for tap in alive:
            tap.go_on()
        begun = time.monotonic()
        for tap in alive:
            seen = tap.seen()
            with tap.changed:
                tap.changed.wait_for(lambda tap=tap, seen=seen: tap.reader is None or tap.seen() > seen + 3, patient(20))
            self.assertTrue(tap.reader is None or tap.seen() > seen + 3, f"{tap} gets nothing any more")
        self.assertLess(time.monotonic() - begun, patient(20))

    def assert_all_saw_one_stream(self, taps):
        """What one of them read in a place, all read there, and no sample is in two places of an epoch."""
        index_at, hash_of, length_of = {}, {}, {}
        for tap in taps:
            self.assert_contiguous(tap)
            for batch in tap.of_kind("batch"):
                for offset, index in enumerate(batch["index"]):
                    place = (batch["epoch"], batch["first"] + offset)
                    self.assertEqual(index_at.setdefault(place, index), index, f"{tap} at {place}")
                window = (batch["epoch"], batch["first"], batch["count"])
                self.assertEqual(hash_of.setdefault(window, batch["hash"]), batch["hash"], f"{tap} at {window}")
            for end in tap.of_kind("epoch_end"):
                length = length_of.setdefault(end["epoch"], end["samples"])
                self.assertEqual(length, end["samples"], f"{tap}: length of epoch {end['epoch']}")
        places = [(epoch, index) for (epoch, _), index in index_at.items()]
        self.assertEqual(len(places), len(set(places)), "a sample that is in two places of an epoch")
        self.assertGreater(len(index_at), 100)

    def run_chaos(self, dataset, *args):
        for seed in range(repeats(4)):
            with self.subTest(seed=seed):
                daemon = self.start_daemon(dataset, "--ring", "32", *args, name=f"chaos{seed}")
                taps = self.chaos(seed, daemon, 100)
                for tap in taps:
                    tap.signal(signal.SIGKILL)
                    tap.wait()
                    with tap.changed:
                        tap.changed.wait_for(lambda tap=tap: tap.reader is None, patient(5))
                self.assert_all_saw_one_stream(taps)
                daemon.wait_baseline()
                self.assertEqual(daemon.terminate(), 0)

    def test_whoever_comes_and_goes_all_see_one_stream(self):
        self.run_chaos("synthetic:101x8x8")

    def test_whoever_comes_and_goes_all_see_one_stream_of_epochs_smaller_than_the_ring(self):
        self.run_chaos("synthetic:7x8x8", "--join-grace", "0")

    def test_whoever_comes_and_goes_all_see_one_stream_with_bad_samples(self):
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, classes=3, per_class=13, bad=set(range(0, 39, 4)))
        self.run_chaos(folder, "--size", "16", "--workers", "3")


if __name__ == "__main__":
    unittest.main()
