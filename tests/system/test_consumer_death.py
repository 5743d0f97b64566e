# SPDX-License-Identifier: Apache-2.0
"""A consumer that dies, at whatever moment, costs the others less than a second and the daemon nothing."""
import subprocess
import sys
import time
import unittest

from harness import SystemTest, patient, repeats, wait_until

FOR_EVER = ("--hold-ms", "3600000")

# A trainer that reaches the lifeline and never says HELLO.
HALF_A_CONSUMER = """
import socket, sys, time
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(sys.argv[1])
line.recv(4096)
print("connected", flush=True)
time.sleep(3600)
"""


class ConsumerDeathTest(SystemTest):
    seconds = 120

    def start(self, samples=101):
        return self.start_daemon(f"synthetic:{samples}x8x8", "--ring", "32")

    def survivor(self, daemon, batch=5):
        """A consumer that goes on and on, at a pace that leaves the machine to the others."""
        tap = self.tap(daemon, batch, "--hold-ms", "1")
        tap.attached()
        return tap

    def assert_next_batch_within_a_second(self, tap):
        """Measured from now; batches that are on their way already do not count as an answer."""
        seen = tap.seen()
        begun = time.monotonic()
        tap.wait_for("batch", seen + 20)
        self.assertLess(time.monotonic() - begun, patient(1))

    def holder(self, daemon, batch=8):
        """A consumer that holds its first batch for ever."""
        tap = self.tap(daemon, batch, "--join", "now", *FOR_EVER)
        tap.wait_batches(1)
        return tap

    def wait_blocked(self, tap):
        """Until the ring is full and `tap` gets nothing any more."""

        def quiet():
            seen = tap.seen()
            time.sleep(0.05)
            return tap.seen() == seen

        wait_until(quiet, what="a full ring")

    def test_a_daemon_whose_last_epoch_nobody_can_read_any_more_ends(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32", "--epochs", "1")
        reader = self.tap(daemon, 5, "--hold-ms", "10")
        reader.wait_batches(10)  # the epoch's start has left the ring
        reader.kill()
        self.assertEqual(daemon.wait(patient(5)), 0)

    def test_a_consumer_that_dies_while_it_holds_a_batch_frees_the_others(self):
        daemon = self.start()
        survivors = [self.survivor(daemon, 5), self.survivor(daemon, 3)]
        victim = self.holder(daemon)
        for tap in survivors:
            self.wait_blocked(tap)
        victim.kill()
        for tap in survivors:
            self.assert_next_batch_within_a_second(tap)
            self.assert_contiguous(tap)

    def test_a_consumer_that_dies_while_it_waits_does_not_disturb_the_others(self):
        daemon = self.start()
        slow = self.tap(daemon, 8, "--hold-ms", "20")
        slow.wait_batches(1)
        waiting = self.tap(daemon, 1, "--join", "now")
        self.wait_blocked_by_pace(waiting, slow)
        waiting.kill()
        seen = slow.seen()
        slow.wait_batches(seen + 20)
        self.assert_contiguous(slow)

    def wait_blocked_by_pace(self, fast, slow):
        """Until `fast` has caught up with the daemon, so that it waits in next whenever `slow` holds a batch."""
        fast.wait_batches(64)
        slow.wait_batches(8)

    def test_a_consumer_that_dies_alone_while_it_waits_is_forgotten(self):
        daemon = self.launch_daemon("synthetic:13x8x8", "--ring", "64", "--wait-for", "2").wait_ready()
        waiting = self.tap(daemon, 5)
        waiting.attached()
        waiting.kill()
        daemon.wait_baseline()
        taps = [self.tap(daemon, 5, "--epochs", "1"), self.tap(daemon, 3, "--epochs", "1")]
        for tap in taps:
            tap.finish()
            self.assert_whole_epochs(tap, 13, tap.batch_size, range(1))

    def test_a_consumer_that_dies_before_hello_is_forgotten(self):
        daemon = self.start()
        tap = self.survivor(daemon)
        for _ in range(repeats(5)):
            with subprocess.Popen(
                [sys.executable, "-c", HALF_A_CONSUMER, self.lifeline_path(daemon)],
                stdout=subprocess.PIPE,
                env=self.environment,
            ) as half:
                half.stdout.readline()
                half.kill()
        self.assert_next_batch_within_a_second(tap)
        tap.kill()
        daemon.wait_baseline()

    def lifeline_path(self, daemon):
        line = daemon.connect_lifeline()
        with line:
            return line.getpeername()

    def test_200_deaths_leave_nothing_behind(self):
        # AddressSanitizer keeps what is freed for a while, which is not to count.
        self.environment["ASAN_OPTIONS"] = "quarantine_size_mb=0:thread_local_quarantine_size_kb=0"
        daemon = self.start()
        tap = self.survivor(daemon)
        warm_up = 20
        before = None
        for round_ in range(warm_up + repeats(200)):
            if round_ == warm_up:
                before = daemon.memory_kib()
            self.one_death(daemon, round_ % 3)
            self.assert_next_batch_within_a_second(tap)
        self.assert_contiguous(tap)
        tap.kill()
        daemon.wait_baseline()
        self.assertLess(daemon.memory_kib() - before, 1024, "KiB that 200 dead consumers cost the daemon")

    def one_death(self, daemon, moment):
        """Before HELLO, anywhere between attaching and the first batch, or while holding."""
        if moment == 0:
            line = daemon.connect_lifeline()
            line.close()
            return
        victim = self.tap(daemon, 8, "--join", "now", *FOR_EVER)
        if moment == 1:
            victim.attached()
        else:
            victim.wait_batches(1)
        victim.kill()
        self.forget(victim)

    def forget(self, tap):
        """Frees what the harness keeps of a dead tap."""
        tap.finish(-9)
        self.processes.remove(tap)

    def test_two_deaths_at_once_free_the_third(self):
        daemon = self.start()
        victims = [self.holder(daemon), self.holder(daemon, 7)]
        tap = self.survivor(daemon, 3)
        self.wait_blocked(tap)
        for victim in victims:
            victim.signal(9)
        self.assert_next_batch_within_a_second(tap)
        self.assert_contiguous(tap)

    def test_the_death_of_all_consumers_leaves_a_daemon_that_serves(self):
        daemon = self.start()
        for _ in range(repeats(10)):
            taps = [self.tap(daemon, batch, *FOR_EVER) for batch in (2, 5, 8)]
            for tap in taps:
                tap.attached()
            for tap in taps:
                tap.signal(9)
            for tap in taps:
                tap.wait()
            daemon.wait_baseline()
        last = self.tap(daemon, 7, "--epochs", "1").finish()
        (epoch,) = last.epochs().values()
        self.assert_whole_epoch(epoch, 101, 7)


if __name__ == "__main__":
    unittest.main()
