# SPDX-License-Identifier: Apache-2.0
"""What the machine may do to a daemon that runs. More of it: descriptors in test_limits, memory in test_memory."""
import contextlib
import json
import os
import shutil
import stat
import subprocess
import time
import unittest

from harness import BUILD, SystemTest, wait_until

CLOCK_BACK = os.path.join(BUILD, "tests", "system", "libclock_back.so")


class ClockTest(SystemTest):
    def test_a_clock_that_is_set_back_changes_nothing(self):
        if not os.path.exists(CLOCK_BACK):
            self.skipTest("sanitizers are loaded first")
        self.environment["LD_PRELOAD"] = CLOCK_BACK
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "40", "--epochs", "3", "--join-grace", "100ms",
                                   "--log-format", "json")
        taps = [self.tap(daemon, batch, "--hold-ms", "1") for batch in (5, 7)]
        for tap in taps:
            tap.finish()
            self.assert_whole_epochs(tap, 101, tap.batch_size, range(3))
        self.assertEqual(daemon.wait(), 0)
        times = [json.loads(line)["time"] for line in daemon.stderr().splitlines()]
        self.assertGreater(times[0], times[-1], "the clock really went back")


class RuntimeFolderTest(SystemTest):
    def occupy(self, name, make):
        folder = os.path.join(self.runtime, "main")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, name)
        make(path)
        return path

    def test_a_file_at_the_socket_s_path_makes_room(self):
        """The folder is the daemon's, and a lifeline that nobody listens to is what a killed one leaves."""
        for make in (lambda path: open(path, "w").close(), lambda path: os.symlink("/etc/passwd", path)):
            self.occupy("lifeline", make)
            daemon = self.start_daemon("synthetic:13x8x8", "--ring", "16")
            tap = self.tap(daemon, 5, "--epochs", "1").finish()
            self.assert_whole_epochs(tap, 13, 5, range(1))
            self.assertTrue(stat.S_ISSOCK(os.lstat(os.path.join(daemon.folder, "lifeline")).st_mode))
            self.assertEqual(daemon.terminate(), 0)
        with open("/etc/passwd") as f:
            self.assertTrue(f.read(), "a link is not followed")

    def test_what_cannot_be_moved_away_is_named(self):
        for name in ("lifeline", "lock"):
            path = self.occupy(name, os.mkdir)
            daemon = self.launch_daemon("synthetic:13x8x8", "--ring", "16")
            self.assertIn(daemon.wait(5), (os.EX_CANTCREAT, os.EX_OSERR))
            self.assertIn(path, daemon.stderr())
            os.rmdir(path)
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(os.path.dirname(path))

    def test_a_lock_that_is_a_link_is_not_followed(self):
        target = os.path.join(self.folder, "precious")
        path = self.occupy("lock", lambda path: os.symlink(target, path))
        daemon = self.launch_daemon("synthetic:13x8x8", "--ring", "16")
        self.assertEqual(daemon.wait(5), os.EX_CANTCREAT)
        self.assertIn(path, daemon.stderr())
        self.assertFalse(os.path.exists(target))
        os.unlink(path)
        os.rmdir(os.path.dirname(path))

    def test_a_folder_that_is_deleted_while_it_runs_costs_its_consumers_nothing(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        tap = self.tap(daemon, 5)
        tap.wait_batches(5)
        shutil.rmtree(self.runtime)
        tap.wait_batches(tap.seen() + 60)
        self.assert_contiguous(tap)
        wait_until(lambda: "was removed or replaced" in daemon.stderr(), what="a word about the folder")
        newcomer = self.tap(daemon, 5).finish(3)
        self.assertEqual([e["code"] for e in newcomer.of_kind("error")], ["ENOTFOUND"])
        second = self.start_daemon("synthetic:13x8x8", "--ring", "16")
        other = self.tap(second, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(other, 13, 5, range(1))
        self.assertEqual(daemon.terminate(), 0)
        tap.finish_gone()
        self.assertTrue(os.path.exists(second.folder), "the first one does not take the second one's folder with it")
        other = self.tap(second, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(other, 13, 5, [other.attached()["epoch"]])


class SuspendedTest(SystemTest):
    SECONDS = 11  # longer than any time that the daemon gives to anybody by itself

    def test_a_machine_that_was_suspended_goes_on_where_it_was(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "40", "--join-grace", "1s")
        taps = [self.tap(daemon, batch, "--hold-ms", "1") for batch in (5, 7)]
        for tap in taps:
            tap.wait_batches(20)
        line = daemon.connect_lifeline()  # has not said HELLO yet
        for process in (daemon, *taps):
            process.stop()
        time.sleep(self.SECONDS)  # what is to pass is time itself
        for process in (*taps, daemon):
            process.go_on()
        for tap in taps:
            tap.wait_batches(tap.seen() + 60)
            self.assert_contiguous(tap)
        line.close()


class FullDiskTest(SystemTest):
    """A disk of three pages, in a mount namespace of the daemon's own: its folder is seen through /proc."""

    def setUp(self):
        super().setUp()
        self.disk = os.path.join(self.folder, "disk")
        os.mkdir(self.disk)
        script = 'mount -t tmpfs -o size=12k tmpfs "$DISK" && : > "$DISK/mounted" && exec "$0" "$@"'
        self.wrapper = ["unshare", "-m", "sh", "-c", script]
        self.environment["DISK"] = self.disk
        if subprocess.run([*self.wrapper, "true"], env=self.environment, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no mount namespace can be made here")

    def seen(self, daemon, name):
        return f"/proc/{daemon.pid}/root{self.disk}/{name}"

    def fill(self, daemon):
        with contextlib.suppress(OSError), open(self.seen(daemon, "filling"), "wb", buffering=0) as f:
            while f.write(bytes(4096)) == 4096:
                pass

    def start_on_disk(self, *args):
        return self.start_daemon("synthetic:101x8x8", "--ring", "64", *args, wrapper=self.wrapper)

    def test_a_state_that_finds_no_room_is_logged_once_and_written_when_there_is_some(self):
        daemon = self.start_on_disk("--state", f"{self.disk}/state")
        self.fill(daemon)
        tap = self.tap(daemon, 5, "--hold-ms", "1")
        wait_until(lambda: "No space left" in daemon.stderr(), what="a word about the full disk")
        before = self.noted(daemon)
        tap.wait_for("epoch_end", tap.of_kind("epoch_end")[-1]["epoch"] + 3 if tap.of_kind("epoch_end") else 3)
        self.assertEqual(self.noted(daemon), before, "the old state stays whole")
        os.unlink(self.seen(daemon, "filling"))
        wait_until(lambda: self.noted(daemon) > before, what="a note of the epoch")
        self.assertEqual(daemon.stderr().count("No space left"), 1)
        self.assertIn("is written again", daemon.stderr())
        self.assert_contiguous(tap)

    def noted(self, daemon):
        with open(self.seen(daemon, "state")) as f:
            words = f.read().split()
        return int(words[words.index("epoch") + 1])


if __name__ == "__main__":
    unittest.main()
