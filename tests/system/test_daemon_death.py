# SPDX-License-Identifier: Apache-2.0
"""A daemon that dies is noticed at once, what it had made ready is still read, and the next one starts at once."""
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import unittest

from harness import TSOCKETCTL, SystemTest, patient, repeats, wait_until

PROTOCOL = 5


def listen(kind, path):
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(path)
    listener.listen()
    return listener


def hang_up(listener):
    """On everybody, until the listener is closed."""
    try:
        while True:
            listener.accept()[0].close()
    except OSError:
        pass


class DaemonDeathTest(SystemTest):
    seconds = 120

    def test_a_waiting_consumer_is_told_at_once(self):
        delays = []
        for _ in range(repeats(10)):
            daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64", "--wait-for", "2")
            tap = self.tap(daemon, 5)
            tap.attached()
            killed = time.monotonic()
            daemon.kill()
            tap.finish_gone()
            delays.append(tap.times_of("error")[0] - killed)
            self.assertEqual(tap.of_kind("batch"), [])
        print(f"GONE after the daemon's SIGKILL: {1000 * min(delays):.1f} to {1000 * max(delays):.1f} ms", flush=True)
        self.assertLess(sorted(delays)[len(delays) // 2], patient(0.1), "half of the times")
        self.assertLess(max(delays), patient(1))

    def test_a_consumer_reads_what_is_ready_before_it_is_told(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        tap = self.tap(daemon, 4, "--hold-ms", "20")
        tap.wait_batches(2)
        wait_until(lambda: self.ring_is_full(daemon), what="a full ring")
        seen = tap.seen()
        daemon.kill()
        tap.finish_gone()
        self.assert_contiguous(tap)
        self.assertGreaterEqual(tap.seen(), seen + 8, "at least half of the ring was still read")

    def ring_is_full(self, daemon):
        stream = daemon.status()["streams"][0]
        return stream["head"] - stream["floor"] >= stream["capacity"] - 8

    def test_the_next_daemon_of_the_name_starts_at_once_and_is_not_reached_by_the_old_consumers(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        holding = self.tap(daemon, 5, "--hold-ms", "600")
        stopped = self.tap(daemon, 5)
        for tap in (holding, stopped):
            tap.wait_batches(1)
        stopped.stop()
        daemon.kill()
        begun = time.monotonic()
        after = self.start_daemon("synthetic:13x8x8", "--ring", "32")
        self.assertLess(time.monotonic() - begun, patient(2))
        stopped.go_on()
        for tap in (holding, stopped):
            tap.finish_gone()
            self.assertTrue(all(i < 101 for b in tap.of_kind("batch") for i in b["index"]))
            self.assert_contiguous(tap)
        self.assertEqual(after.status()["streams"][0]["consumers"], [])
        fresh = self.tap(after, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(fresh, 13, 5, range(1))

    def test_50_restarts_leave_a_neighbour_alone_and_nothing_behind(self):
        neighbour = self.start_daemon("synthetic:1009x8x8", "--ring", "64", name="neighbour")
        other = self.tap(neighbour, 8, "--hold-ms", "1")
        other.attached()
        memory = {}
        for round_ in range(repeats(50)):
            begun = time.monotonic()
            daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
            self.assertLess(time.monotonic() - begun, patient(2), f"start {round_}")
            taps = [self.tap(daemon, 5), self.tap(daemon, 7)]
            for tap in taps:
                tap.wait_batches(2)
            daemon.kill()
            for tap in taps:
                tap.finish_gone()
                self.processes.remove(tap)
            memory[round_] = self.files_left()
        self.assertEqual(memory[0], memory[max(memory)], "files in the runtime folder after the first and last round")
        seen = other.seen()
        other.wait_batches(seen + 10)
        self.assert_contiguous(other)
        other.kill()
        neighbour.wait_baseline()
        last = self.start_daemon("synthetic:13x8x8")
        self.assertEqual(last.terminate(), 0)
        self.assertFalse(os.path.exists(last.folder), "a clean end removes what the killed ones left")

    def files_left(self):
        return sum(len(files) for _, _, files in os.walk(self.runtime))

    def test_a_stale_socket_does_not_block_the_start_or_fool_a_consumer(self):
        self.start_daemon("synthetic:13x8x8").kill()
        begun = time.monotonic()
        done = self.ctl("tap", "main", "--batch", "5", check=False)
        self.assertLess(time.monotonic() - begun, patient(2))
        self.assertNotEqual(done.returncode, 0)
        self.assertNotEqual(self.ctl("status", "main", check=False).returncode, 0)
        daemon = self.start_daemon("synthetic:13x8x8")
        tap = self.tap(daemon, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(tap, 13, 5, range(1))

    def test_a_daemon_that_dies_right_behind_its_greeting_is_gone(self):
        """Its ZeroMQ connection ends at once: whether that is seen before or after the first message is chance."""
        folder = os.path.join(self.runtime, "dying")
        os.makedirs(folder)
        path = os.path.join(folder, "socket")
        greeting = json.dumps({"protocol": PROTOCOL, "socket": path, "token": "0" * 32, "gpu": 0})
        with listen(socket.SOCK_SEQPACKET, os.path.join(folder, "lifeline")) as lifelines, \
                listen(socket.SOCK_STREAM, path) as connections:
            threading.Thread(target=hang_up, args=(connections,), daemon=True).start()
            for _ in range(repeats(200)):
                tap = subprocess.Popen([TSOCKETCTL, "tap", "dying", "--batch", "5"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, env={**os.environ, "TSOCKET_DIR": self.runtime})
                lifeline, _ = lifelines.accept()
                lifeline.send(greeting.encode())
                lifeline.close()
                events = [json.loads(line) for line in tap.communicate(timeout=patient(20))[0].splitlines()]
                self.assertEqual([event["code"] for event in events if event["event"] == "error"], ["GONE"], events)
        shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main()
