# SPDX-License-Identifier: Apache-2.0
"""Memory is taken once, at the start, or the start fails with both numbers."""
import os
import resource
import shutil
import subprocess
import unittest

import pictures
from harness import SystemTest, repeats
from inputs import expected, input_path


class MemoryTest(SystemTest):
    def assert_no_growth(self, daemon, tap, epochs, allowed_kib):
        warm_up = 5
        tap.wait_for("epoch_end", warm_up)
        before = daemon.memory_kib()
        tap.wait_for("epoch_end", warm_up + epochs, seconds=60)
        self.assertLess(daemon.memory_kib() - before, allowed_kib, f"KiB that {epochs} epochs cost")

    def test_50_epochs_of_photographs_cost_no_memory(self):
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, classes=2, per_class=20, bad={3, 8})
        daemon = self.start_daemon(folder, "--size", "32", "--ring", "64", "--workers", "3")
        tap = self.tap(daemon, 7)
        self.assert_no_growth(daemon, tap, repeats(50), 512)

    def test_50_epochs_of_many_samples_cost_no_memory(self):
        daemon = self.start_daemon("synthetic:4001x8x8", "--ring", "512")
        tap = self.tap(daemon, 100)
        self.assert_no_growth(daemon, tap, repeats(50), 512)

    def test_a_picture_that_claims_to_be_huge_costs_no_memory(self):
        folder = os.path.join(self.folder, "bomb")
        pictures.make_folder(folder, classes=1, per_class=3)
        bomb = next(case for case in expected()["images"] if case["id"] == "bomb_header")
        shutil.copy(input_path(bomb["file"]), os.path.join(folder, "class000", "bomb.jpg"))
        daemon = self.start_daemon(folder, "--size", "16", "--ring", "8", "--wait-for", "1", "--workers", "1")
        before = daemon.memory_kib("VmHWM")
        tap = self.tap(daemon, 1, "--epochs", "2").finish()
        self.assertEqual([e.ended_with for e in tap.epochs().values()], [[3], [3]])
        self.assertIn("too_large", daemon.stderr())
        self.assertLess(daemon.memory_kib("VmHWM") - before, 16 << 10, "KiB")

    def test_memory_is_reserved_and_touched_at_the_start(self):
        """16 MiB of ring and its mirror are resident before anyone attaches."""
        daemon = self.start_daemon("null:1009x64x64", "--ring", "1365", "--max-batch", "10")
        self.assertGreater(daemon.memory_kib("RssShmem"), 1365 * 64 * 64 * 3 // 1024)

    def test_the_cache_is_taken_at_the_start(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--cache", "64MiB")
        self.assertGreater(daemon.memory_kib("RssAnon"), 64 << 10)

    def test_a_consumer_costs_the_daemon_less_than_a_megabyte(self):
        daemon = self.start_daemon("synthetic:101x64x64", "--ring", "512")
        taps = [self.tap(daemon, 4)]
        taps[0].wait_batches(100)
        before = daemon.memory_kib()
        taps += [self.tap(daemon, 4, "--join", "now") for _ in range(20)]
        for tap in taps:
            tap.wait_batches(100)
        self.assertLess((daemon.memory_kib() - before) / 20, 1024, "KiB per consumer")

    def test_a_consumer_has_no_copy_of_the_data(self):
        daemon = self.start_daemon("synthetic:1009x64x64", "--ring", "1024", "--max-batch", "256")
        tap = self.tap(daemon, 256)
        tap.wait_batches(20)
        private = tap.memory_kib("RssAnon")
        self.assertLess(private, 256 * 64 * 64 * 3 // 1024, "KiB of private memory against one batch's size")

    def assert_refused(self, daemon):
        self.assertEqual(daemon.wait(10), os.EX_OSERR)
        text = daemon.stderr()
        self.assertRegex(text, r"\d[\d.]* ?[KMGTPE]i?B.*\d[\d.]* ?[KMGTPE]i?B|\d{6,}.*\d{6,}", "needed and available")
        self.assertIn("--ring", text)
        self.assertFalse(os.path.exists(daemon.folder))

    def test_a_ring_larger_than_the_machine_is_refused_with_both_numbers(self):
        self.assert_refused(self.launch_daemon("synthetic:13x512x512", "--ring", "1000000"))

    def test_a_ring_larger_than_the_control_group_allows_is_refused_with_both_numbers(self):
        group = self.memory_group(256 << 20)

        def enter():
            with open(os.path.join(group, "cgroup.procs"), "w") as f:
                f.write(str(os.getpid()))

        self.assert_refused(self.launch_daemon("synthetic:13x512x512", "--ring", "1000", preexec_fn=enter))

    def memory_group(self, limit_bytes):
        """A control group with a limit; skips where this machine does not let us make one."""
        for parent, knob in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            group = os.path.join(parent, f"tsocket-test-{os.getpid()}")
            try:
                os.mkdir(group)
            except OSError:
                continue
            self.addCleanup(os.rmdir, group)
            try:
                with open(os.path.join(group, knob), "w") as f:
                    f.write(str(limit_bytes))
                return group
            except OSError:
                continue
        self.skipTest("no control group can be made here")

    def test_an_address_space_too_small_is_an_error_not_a_crash(self):
        def little_room():
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

        daemon = self.launch_daemon("synthetic:13x512x512", "--ring", "1000", preexec_fn=little_room)
        self.assertEqual(daemon.wait(10), os.EX_OSERR)
        self.assertTrue(daemon.stderr())

    def test_a_small_dev_shm_does_not_matter(self):
        """As in a container: the ring does not live there."""
        wrapper = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" "$@"']
        if subprocess.run([*wrapper, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no mount namespace can be made here")
        daemon = self.start_daemon("synthetic:101x64x64", "--ring", "1000", "--epochs", "1", wrapper=wrapper)
        tap = self.tap(daemon, 7).finish()
        self.assert_whole_epochs(tap, 101, 7, range(1))
        self.assertEqual(daemon.wait(), 0)


if __name__ == "__main__":
    unittest.main()
