# SPDX-License-Identifier: Apache-2.0
"""Stopped consumers, and a daemon that is asked to end: at any moment, with whoever is attached."""
import os
import signal
import time
import unittest

from harness import SystemTest, patient, repeats, wait_until

FOR_EVER = ("--hold-ms", "3600000")


class StoppedConsumerTest(SystemTest):
    def test_a_stopped_consumer_holds_the_others_back_and_then_all_go_on(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        taps = [self.tap(daemon, batch, "--hold-ms", "1") for batch in (3, 5, 8)]
        for tap in taps:
            tap.wait_batches(3)
        taps[0].stop()
        wait_until(lambda: self.quiet(taps[1:]), what="a full ring")
        seen = [tap.seen() for tap in taps]
        taps[0].go_on()
        for tap, count in zip(taps, seen):
            tap.wait_batches(count + 60)
        for tap in taps:
            self.assert_contiguous(tap)

    def quiet(self, taps):
        before = [tap.seen() for tap in taps]
        time.sleep(0.05)
        return [tap.seen() for tap in taps] == before

    def test_a_daemon_that_was_stopped_goes_on(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        tap = self.tap(daemon, 5)
        tap.wait_batches(5)
        daemon.stop()
        wait_until(lambda: self.quiet([tap]), what="an empty ring")
        daemon.go_on()
        tap.wait_batches(tap.seen() + 60)
        self.assert_contiguous(tap)


class StandardStreamsTest(SystemTest):
    def test_no_log_line_lands_in_a_file_that_took_the_number_of_a_closed_stream(self):
        daemon = self.launch_daemon("synthetic:101x8x8", "-v", preexec_fn=lambda: os.close(2)).wait_ready()
        self.tap(daemon, 5, "--epochs", "1").finish()
        with open(os.path.join(daemon.folder, "lock")) as lock:
            self.assertEqual(lock.read(), f"{daemon.pid}\n")
        for name in os.listdir(f"/proc/{daemon.pid}/fd"):
            if int(name) <= 2:
                self.assertIn(os.readlink(f"/proc/{daemon.pid}/fd/{name}"), ("/dev/null", daemon.log))


class EndTest(SystemTest):
    def test_sigterm_ends_a_daemon_with_consumers_of_every_kind(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        holding = self.tap(daemon, 8, "--hold-ms", "300")
        waiting = self.tap(daemon, 1)
        stopped = self.tap(daemon, 4)
        for tap in (holding, waiting, stopped):
            tap.wait_batches(1)
        stopped.stop()
        begun = time.monotonic()
        self.assertEqual(daemon.terminate(2), 0)
        took = time.monotonic() - begun
        self.assertLess(took, patient(2))
        self.assertFalse(os.path.exists(daemon.folder), "its folder is gone although a consumer is stopped")
        for tap in (holding, waiting):
            self.assert_told_of_the_end(tap)
        stopped.go_on()
        self.assert_told_of_the_end(stopped)

    def assert_told_of_the_end(self, tap):
        tap.finish_gone()
        self.assert_contiguous(tap)
        self.assertRegex(tap.of_kind("error")[0]["message"], "clos|end|stop")

    def test_sigint_twice_ends_it_as_well(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        tap = self.tap(daemon, 5, *FOR_EVER)
        tap.wait_batches(1)
        daemon.signal(signal.SIGINT)
        daemon.signal(signal.SIGINT)
        self.assertEqual(daemon.wait(2), 0)
        tap.kill()

    def test_tsocketctl_stop_ends_it_as_well(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        tap = self.tap(daemon, 5)
        tap.wait_batches(1)
        self.ctl("stop", "main")
        self.assertEqual(daemon.wait(2), 0)
        self.assert_told_of_the_end(tap)

    def test_sigterm_at_any_moment_of_the_start_leaves_nothing(self):
        for step in range(repeats(40)):
            daemon = self.launch_daemon("synthetic:1009x64x64", "--ring", "4096")
            self.end_after(daemon, 0.0005 * step)

    def test_sigterm_while_the_folder_is_listed_leaves_nothing(self):
        folder = os.path.join(self.folder, "many")
        for label in range(40):
            os.makedirs(os.path.join(folder, f"c{label}"))
            for i in range(250):
                with open(os.path.join(folder, f"c{label}", f"{i}.jpg"), "wb"):
                    pass
        for step in range(repeats(20)):
            daemon = self.launch_daemon(folder, "--size", "32", "--ring", "64")
            self.end_after(daemon, 0.002 * step)

    def end_after(self, daemon, seconds):
        """SIGTERM some time after the start. Before its handler is there the signal itself ends it: also fine."""
        time.sleep(seconds)
        status = daemon.terminate(2)
        self.assertIn(status, (0, -signal.SIGTERM), daemon.stderr())
        self.assertFalse(os.path.exists(daemon.folder))
        self.processes.remove(daemon)


if __name__ == "__main__":
    unittest.main()
