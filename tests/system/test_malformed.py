# SPDX-License-Identifier: Apache-2.0
"""Thousands of malformed files: each has its class, and none costs memory or descriptors that do not come back.

    TSOCKET_MALFORMED    how many; 1000 by default. Given, the figures are printed.
"""
import json
import os
import time
import unittest

import malformed
from harness import SCALE, TSOCKETD, Process, SystemTest, repeats

COUNT = int(os.environ.get("TSOCKET_MALFORMED", repeats(1000)))
LIMITS = ("--max-pixels", "1M", "--workers", "2")  # a header may claim a million: buffers grow to those, and stay
GROWTH_KIB = 8 << 10
CLASSES = {"empty", "not_image", "unsupported", "truncated", "corrupt", "too_large", "too_many_scans"}


def growth(values):
    """By how much the second half is above the first."""
    half = len(values) // 2
    return max(values[half:]) - max(values[:half]) if half else 0


class Watch:
    """Memory and descriptors of a process, looked at until it ends or `until()` says so."""

    def __init__(self, process, until=lambda: False):
        self.kib, self.descriptors = [], []
        while process.running() and not until():
            try:
                kib, descriptors = process.memory_kib(), process.descriptors()
            except (OSError, StopIteration):
                break  # it has just ended
            self.kib.append(kib)
            self.descriptors.append(descriptors)
            time.sleep(0.005)

    def __str__(self):
        return (f"{len(self.kib)} looks, {max(self.kib)} KiB at most, {growth(self.kib)} KiB more in the second half, "
                f"{max(self.descriptors)} descriptors at most, {growth(self.descriptors)} more")


class MalformedTest(SystemTest):
    seconds = 600

    def setUp(self):
        super().setUp()
        self.data = os.path.join(self.folder, "data")
        malformed.make_folder(self.data, COUNT)

    def assert_flat(self, watch, what):
        if "TSOCKET_MALFORMED" in os.environ:
            print(f"\n{what}: {watch}", flush=True)
        if SCALE >= 1:  # sanitizers keep what is freed
            self.assertLess(growth(watch.kib), GROWTH_KIB)
        self.assertLess(growth(watch.descriptors), 4)

    def test_a_check_of_them(self):
        report = os.path.join(self.folder, "report")
        with open(report, "wb") as out:
            check = Process(self, [TSOCKETD, "--check", "--json", *LIMITS, self.data], "check", stdout=out)
            self.processes.append(check)
            watch = Watch(check)
        self.assertEqual(check.wait(), 1, check.stderr())
        with open(report) as f:
            *bad, last = map(json.loads, f)
        summary = last["summary"]
        self.assertEqual((summary["checked"], summary["bad"]), (COUNT, len(bad)))
        self.assertLessEqual(set(summary["kinds"]), CLASSES)
        self.assertGreater(summary["bad"], COUNT // 4)
        self.assertGreater(COUNT - summary["bad"], COUNT // 20)
        self.assert_flat(watch, f"check, {summary['bad']} bad: {summary['kinds']}")

    def test_a_stream_of_them(self):
        """Two epochs, the bad ones masked: every sample comes, and the second epoch costs nothing."""
        recipe = ("--size", "32", "--on-bad", "mask", "--ring", "256", "--epochs", "2")
        daemon = self.start_daemon(self.data, *LIMITS, *recipe)
        tap = self.tap(daemon, 32)
        watch = Watch(daemon, lambda: len(tap.times_of("epoch_end")) == 2)
        tap.finish(seconds=300)
        self.assert_whole_epochs(tap, COUNT, 32, range(2))
        self.assert_flat(watch, "stream")


if __name__ == "__main__":
    unittest.main()
