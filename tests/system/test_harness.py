# SPDX-License-Identifier: Apache-2.0
"""The harness notices what it promises to notice: each test here runs one that must fail, and for the right reason."""
import os
import subprocess
import unittest

import harness
from harness import SystemTest


def complaints_of(body, **attributes):
    """Runs a test whose body is `body` and returns everything that it was blamed for."""
    case = type("MustFail", (SystemTest,), {"test": body, **attributes})("test")
    result = unittest.TestResult()
    case.run(result)
    return "\n".join(text for _, text in result.failures + result.errors)


class HarnessTest(unittest.TestCase):
    def test_a_clean_test_passes(self):
        def body(test):
            daemon = test.start_daemon("synthetic:13x8x8", "--epochs", "1")
            tap = test.tap(daemon, 5).finish()
            test.assert_whole_epochs(tap, 13, 5, range(1))
            test.assertEqual(daemon.wait(), 0)

        self.assertEqual(complaints_of(body), "")

    def test_a_process_that_is_left_is_noticed(self):
        def body(test):
            stray.append(subprocess.Popen(["sleep", "600"], env=test.environment))

        stray = []
        self.assertIn("processes that are left", complaints_of(body))
        self.assertEqual(stray[0].wait(), -9, "the harness has removed it")

    def test_a_file_that_is_left_in_the_runtime_folder_is_noticed(self):
        def body(test):
            test.start_daemon("synthetic:13x8x8")
            with open(os.path.join(test.runtime, "forgotten"), "w"):
                pass

        self.assertIn("left in the runtime folder: ['forgotten']", complaints_of(body))

    def test_shared_memory_that_is_left_is_noticed(self):
        name = os.path.join(harness.SHM, f"tsocket-must-fail-{os.getpid()}")

        def body(test):
            with open(name, "w"):
                pass

        try:
            self.assertIn("left in /dev/shm", complaints_of(body))
        finally:
            os.unlink(name)

    def test_a_descriptor_that_the_daemon_keeps_is_noticed(self):
        kept = []

        def body(test):
            kept.append(test.start_daemon("synthetic:13x8x8").connect_lifeline())
            kept[0].recv(4096)  # the daemon has accepted it

        try:
            self.assertIn("descriptors, now", complaints_of(body))
        finally:
            kept[0].close()

    def test_a_daemon_that_does_not_end_well_is_noticed(self):
        def body(test):
            daemon = test.start_daemon("synthetic:13x8x8")
            daemon.stop()
            test.end_daemons = lambda: test.assertEqual(daemon.kill(), 0)

        self.assertIn("-9 != 0", complaints_of(body))

    def test_a_word_of_a_sanitizer_is_noticed(self):
        def body(test):
            daemon = test.start_daemon("synthetic:13x8x8")
            with open(daemon.log, "a") as f:
                f.write("==1==ERROR: AddressSanitizer: heap-use-after-free\n")

        self.assertIn("heap-use-after-free", complaints_of(body))

    def test_a_test_that_hangs_is_ended(self):
        def body(test):
            while True:
                subprocess.run(["sleep", "0.05"])

        self.assertIn("was not done after", complaints_of(body, seconds=0.2))

    def test_a_sample_that_comes_twice_is_noticed(self):
        def body(test):
            epoch = harness.Epoch()
            epoch.batches = [
                {"first": 0, "count": 2, "index": [1, 0], "label": [0, 0]},
                {"first": 2, "count": 1, "index": [1], "label": [0]},
            ]
            epoch.ended_with = [3]
            test.assert_whole_epoch(epoch, 3, 2)

        self.assertIn("samples that came twice", complaints_of(body))


if __name__ == "__main__":
    unittest.main()
