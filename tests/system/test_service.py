# SPDX-License-Identifier: Apache-2.0
"""tsocketd under a service manager: what it says, what it obeys, what it leaves behind, how it ends."""
import json
import os
import re
import shutil
import signal
import socket
import unittest

from harness import SOURCE, TSOCKETD, SystemTest, patient, wait_until


class NotifyTest(SystemTest):
    """As a unit of Type=notify: we are the service manager."""

    def listen(self, path, **environment):
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(path.replace("@", "\0"))
        manager.settimeout(patient(15))
        self.environment.update(NOTIFY_SOCKET=path, **environment)
        return manager

    def hear(self, manager, start):
        """The next message that begins so."""
        while True:
            text = manager.recv(4096).decode()
            if text.startswith(start):
                return text

    def test_the_manager_hears_when_it_serves_how_it_goes_and_that_it_ends(self):
        manager = self.listen(os.path.join(self.folder, "notify"))
        daemon = self.launch_daemon("synthetic:101x8x8", "--ring", "64")
        self.assertEqual(self.hear(manager, ""), "READY=1")
        tap = self.tap(daemon, 5, "--epochs", "1").finish()  # at once, without looking for it
        self.assert_whole_epochs(tap, 101, 5, range(1))
        self.assertRegex(self.hear(manager, "STATUS="), r"^STATUS=train: epoch \d+, \d+ samples/s")
        self.assertEqual(daemon.terminate(), 0)
        self.hear(manager, "STOPPING=1")

    def test_a_watchdog_gets_two_signs_of_life_in_its_time(self):
        manager = self.listen(f"@tsocket-test-{os.getpid()}", WATCHDOG_USEC="600000")
        daemon = self.launch_daemon("synthetic:101x8x8", "--ring", "64")
        self.hear(manager, "READY=1")
        for _ in range(4):
            manager.settimeout(patient(0.6))
            self.hear(manager, "WATCHDOG=1")
        daemon.stop()  # stuck: nothing more comes, and the manager would end it
        manager.settimeout(0.6)
        with self.assertRaises(TimeoutError):
            while True:
                self.hear(manager, "WATCHDOG=1")
        daemon.go_on()

    def test_a_watchdog_of_another_process_is_not_ours(self):
        manager = self.listen(os.path.join(self.folder, "notify"), WATCHDOG_USEC="200000", WATCHDOG_PID="1")
        self.launch_daemon("synthetic:101x8x8", "--ring", "64")
        self.hear(manager, "READY=1")
        manager.settimeout(0.5)
        with self.assertRaises(TimeoutError):
            self.hear(manager, "WATCHDOG=1")

    def test_a_manager_that_is_not_there_is_named_and_not_needed(self):
        self.environment["NOTIFY_SOCKET"] = "/no/such/socket"
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        self.assertIn("NOTIFY_SOCKET: No such file", daemon.stderr())


class UnitTest(SystemTest):
    """The unit that scripts/ has."""

    def read(self):
        with open(os.path.join(SOURCE, "scripts", "tsocketd.service")) as f:
            return f.read()

    def test_it_says_nothing_that_tsocketd_does_not_know(self):
        unit, text = self.read(), self.run_program(TSOCKETD, "--help", text=True).stdout
        (command,) = re.findall(r"^ExecStart=(.*)", unit, re.M)
        for flag in re.findall(r"--[a-z-]+", command):
            self.assertIn(flag, text)
        (statuses,) = re.findall(r"^RestartPreventExitStatus=(.*)", unit, re.M)
        for status in statuses.split():
            self.assertRegex(text, rf"(?m)^ +{status}  ")

    def test_systemd_finds_nothing_wrong_with_it(self):
        analyze = shutil.which("systemd-analyze")
        if analyze is None:
            self.skipTest("systemd is not installed")
        path = os.path.join(self.folder, "tsocketd.service")
        with open(path, "w") as f:
            f.write(self.read().replace("/usr/bin/tsocketd", TSOCKETD).replace("User=tsocket", "User=daemon"))
        done = self.run_program(analyze, "verify", path, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


class HangupTest(SystemTest):
    def write_config(self, text):
        path = os.path.join(self.folder, "tsocketd.json")
        with open(path, "w") as f:
            f.write(text)
        return path

    def hang_up(self, daemon, says):
        before = len(daemon.stderr())
        daemon.signal(signal.SIGHUP)
        wait_until(lambda: re.search(says, daemon.stderr()[before:]), what=f"{says!r} in the log")

    def test_the_configuration_is_read_again(self):
        path = self.write_config('{"ring": 64}')
        daemon = self.start_daemon("synthetic:101x8x8", "--config", path)
        self.write_config('{"ring": 64, "quiet": true}')
        self.hang_up(daemon, "")
        wait_until(lambda: self.is_quiet(daemon), what="silence")
        self.write_config('{"ring": 64}')
        self.hang_up(daemon, "SIGHUP: .*tsocketd.json is read again")
        tap = self.tap(daemon, 5, "--epochs", "1").finish()
        epoch = tap.of_kind("attached")[0]["epoch"]  # those who only looked in may have used up some
        self.assert_whole_epochs(tap, 101, 5, range(epoch, epoch + 1))
        self.assertIn("attached", daemon.stderr())

    def is_quiet(self, daemon):
        """Whether a consumer that comes and goes leaves no word in the log."""
        before = len(daemon.stderr())
        self.tap(daemon, 5, "--batches", "1").finish()
        return len(daemon.stderr()) == before

    def test_limits_change_while_it_runs(self):
        path = self.write_config('{"ring": 64, "max-hold": 0}')
        daemon = self.start_daemon("synthetic:101x8x8", "--config", path)
        stopped, other = (self.tap(daemon, 5, "--hold-ms", "1", "--name", name) for name in ("stopped", "other"))
        for tap in (stopped, other):
            tap.wait_batches(3)
        stopped.stop()
        wait_until(lambda: daemon.status()["streams"][0]["held_back_by"].startswith("stopped"), what="a full ring")
        self.write_config('{"ring": 64, "max-hold": "100ms"}')
        self.hang_up(daemon, "is read again")
        other.wait_batches(other.seen() + 100)
        stopped.go_on()
        stopped.wait_batches(stopped.seen() + 20)
        parked = {c["name"]: c["parked"] for c in daemon.status()["streams"][0]["consumers"]}
        self.assertGreater(parked["stopped"], 0)

    def test_a_configuration_that_has_become_wrong_changes_nothing(self):
        path = self.write_config('{"ring": 64}')
        daemon = self.start_daemon("synthetic:101x8x8", "--config", path)
        self.write_config('{"ring": "lots"}')
        self.hang_up(daemon, "nothing is changed: .*ring.*lots")
        tap = self.tap(daemon, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(tap, 101, 5, range(1))

    def test_without_a_configuration_it_ends(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        daemon.signal(signal.SIGHUP)
        self.assertEqual(daemon.wait(2), 0)
        self.assertIn("ends: SIGHUP", daemon.stderr())


class LogTest(SystemTest):
    def test_the_journal_gets_a_priority_in_each_line(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--log-format", "journald")
        self.tap(daemon, 9999).finish(3)
        self.assertEqual(daemon.terminate(), 0)
        lines = daemon.stderr().splitlines()
        self.assertEqual([line for line in lines if not re.match(r"<[3467]>\S", line)], [])
        self.assertTrue(any(line.startswith("<4>") and "refused" in line for line in lines), lines)
        self.assertTrue(any(line.startswith("<6>serving as main") for line in lines), lines)


class ProvenanceTest(SystemTest):
    def test_it_tells_what_a_paper_needs(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--seed", "18446744073709551615", "--no-shuffle")
        said = json.loads(self.ctl("provenance", "main", "--json").stdout)
        (stream,) = said["streams"]
        self.assertEqual((stream["name"], stream["source"], stream["epoch_samples"]), ("train", "synthetic:101x8x8", 101))
        self.assertEqual(stream["seed"], 2**64 - 1)
        self.assertRegex(stream["dataset"], "^[0-9a-f]{16}$")
        self.assertRegex(stream["recipe_id"], "^[0-9a-f]{16}$")
        self.assertIn("shuffle=off", stream["recipe"].split())
        self.assertRegex(said["libraries"], r"libjpeg.* \d+.*, libpng \d+\.\d+")
        text = self.ctl("provenance", "main").stdout
        for word in (stream["dataset"], stream["recipe_id"], stream["recipe"], said["libraries"], "18446744073709551615"):
            self.assertIn(word, text)
        self.assertEqual(daemon.terminate(), 0)
        self.assertEqual(self.ctl("provenance", "main", check=False).returncode, 1)


class ExitStatusTest(SystemTest):
    """Those that no other test sees; of sysexits.h, so that a unit can say which of them are worth another try."""

    def assert_ends(self, status, *args, says):
        daemon = self.launch_daemon(*args)
        self.assertEqual(daemon.wait(10), status, daemon.stderr())
        self.assertIn(says, daemon.stderr())

    def test_a_wrong_configuration_is_told_from_a_wrong_flag(self):
        path = os.path.join(self.folder, "tsocketd.json")
        for text, says in (("{", "tsocketd.json"), ('{"ring": "lots"}', "lots"), ('{"rign": 3}', "rign"),
                           ('{"streams": [{"name": "x", "source": "synthetic:1x1x1", "size": -1}]}', "size")):
            with open(path, "w") as f:
                f.write(text)
            self.assert_ends(os.EX_CONFIG, "--config", path, "synthetic:13x8x8", says=says)
        self.assert_ends(os.EX_CONFIG, "--config", "/no/such/file", "synthetic:13x8x8", says="/no/such/file")
        with open(path, "w") as f:
            f.write("{}")
        self.assert_ends(os.EX_USAGE, "--config", path, "--ring", "lots", "synthetic:13x8x8", says="--ring")

    def test_a_dataset_that_can_never_be_is_a_usage_error(self):
        self.assert_ends(os.EX_USAGE, "synthetic:13", says="synthetic:13")


class StateTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.state = os.path.join(self.folder, "state")

    def epoch_in_file(self):
        with open(self.state) as f:
            return int(re.search(r"stream train epoch (\d+) ", f.read())[1])

    def run_until(self, epoch, *args):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state, *args)
        tap = self.tap(daemon, 5, "--hold-ms", "2")
        tap.wait_for("epoch_end", epoch)
        wait_until(lambda: self.epoch_in_file() >= epoch, what="a note of the epoch")
        return daemon, tap

    def test_a_daemon_goes_on_in_the_epoch_in_which_the_last_one_was(self):
        daemon, tap = self.run_until(2)
        self.assertEqual(daemon.terminate(), 0)
        tap.finish_gone()
        noted = self.epoch_in_file()
        again = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state)
        tap = self.tap(again, 7, "--epochs", "1").finish()
        self.assertEqual(list(tap.epochs()), [noted])

    def test_a_killed_daemon_has_noted_it_as_well(self):
        daemon, tap = self.run_until(2)
        daemon.kill()
        tap.finish_gone()
        self.assertGreaterEqual(self.epoch_in_file(), 2)
        again = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state)
        self.tap(again, 7, "--epochs", "1").finish()

    def test_epochs_that_are_all_done_are_not_begun_again(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state, "--epochs", "2")
        self.tap(daemon, 5).finish()
        self.assertEqual(daemon.wait(), 0)
        again = self.launch_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state, "--epochs", "2")
        self.assertEqual(again.wait(), os.EX_CONFIG)
        self.assertIn("all 2 epochs of stream train are done; raise --epochs", again.stderr())
        more = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state, "--epochs", "3")
        tap = self.tap(more, 5).finish()
        self.assertEqual(list(tap.epochs()), [2])

    def test_what_is_not_the_same_is_refused_by_name(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state)
        self.assertEqual(daemon.terminate(), 0)
        for args, says in ((("synthetic:102x8x8",), "another dataset"), (("synthetic:101x8x8", "--seed", "1"), "another seed"),
                           (("synthetic:101x8x8", "--no-shuffle"), "another recipe")):
            other = self.launch_daemon(*args, "--ring", "64", "--state", self.state)
            self.assertEqual(other.wait(), os.EX_CONFIG)
            self.assertIn(says, other.stderr())

    def test_a_torn_file_is_refused_and_a_foreign_one_left_alone(self):
        for text, says in (("tsocket-state 1\nstream tr", "torn"), ("my notes", "no state of tsocketd")):
            with open(self.state, "w") as f:
                f.write(text)
            daemon = self.launch_daemon("synthetic:101x8x8", "--ring", "64", "--state", self.state)
            self.assertEqual(daemon.wait(), os.EX_CONFIG)
            self.assertIn(says, daemon.stderr())
            with open(self.state) as f:
                self.assertEqual(f.read(), text)

    def test_a_folder_that_is_not_there_is_known_before_the_first_epoch(self):
        daemon = self.launch_daemon("synthetic:101x8x8", "--ring", "64", "--state", "/no/such/folder/state")
        self.assertEqual(daemon.wait(), os.EX_CONFIG)
        self.assertIn("/no/such/folder/state", daemon.stderr())


if __name__ == "__main__":
    unittest.main()
