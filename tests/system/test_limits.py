# SPDX-License-Identifier: Apache-2.0
"""What is too much is refused with the numbers and the way out, and nobody who is served already notices."""
import json
import os
import re
import resource
import subprocess
import time
import unittest

from harness import TSOCKETCTL, TSOCKETD, SystemTest, patient, wait_until


class RefusedConsumerTest(SystemTest):
    def refused(self, name, batch, *options):
        """The message that a consumer is refused with."""
        tap = self.tap(name, batch, *options).finish(3)
        (error,) = tap.of_kind("error")
        self.assertEqual(error["code"], "EREFUSED")
        return error["message"]

    def assert_serves(self, daemon):
        tap = self.tap(daemon, 5, "--epochs", "1").finish()
        self.assertEqual(len(tap.of_kind("epoch_end")), 1)

    def test_a_batch_larger_than_the_largest_is_refused_with_both_numbers(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "128", "--max-batch", "32")
        message = self.refused("main", 33)
        self.assertRegex(message, r"\b33\b")
        self.assertRegex(message, r"\b32\b")
        self.assertIn("--max-batch", message)
        self.assert_serves(daemon)

    def test_more_than_the_ring_can_hold_is_refused_with_the_numbers(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "40", "--max-batch", "32")
        message = self.refused("main", 30)
        self.assertRegex(message, r"\b60\b|\b30\b")
        self.assertRegex(message, r"\b40\b")
        self.assertIn("--ring", message)
        self.assert_serves(daemon)

    def test_the_largest_batch_that_fits_is_served(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "40", "--max-batch", "20")
        tap = self.tap(daemon, 20, "--epochs", "2").finish()
        self.assert_whole_epochs(tap, 101, 20, range(2))

    def test_a_cache_larger_than_the_memory_is_refused(self):
        daemon = self.launch_daemon("synthetic:13x8x8", "--cache", "1000000GiB")
        self.assertEqual(daemon.wait(), os.EX_OSERR)
        self.assertIn("--cache", daemon.stderr())
        self.assertIn("available", daemon.stderr())

    def test_a_batch_of_zero_is_a_usage_error(self):
        daemon = self.start_daemon("synthetic:13x8x8")
        self.tap(daemon, 0).finish(2)

    def test_a_search_without_result_lists_the_folders(self):
        tap = self.tap("nobody", 5).finish(3)
        (error,) = tap.of_kind("error")
        self.assertEqual(error["code"], "ENOTFOUND")
        self.assertIn(self.runtime, error["message"])
        status = self.ctl("status", "nobody", check=False)
        self.assertNotEqual(status.returncode, 0)
        self.assertIn(self.runtime, status.stderr)

    def test_a_daemon_short_of_descriptors_refuses_the_consumer_that_is_too_many(self):
        def few_descriptors():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", preexec_fn=few_descriptors)
        taps = [self.tap(daemon, 2, "--hold-ms", "1") for _ in range(64)]
        served, refused = [], []
        for tap in taps:
            (served if self.is_served(tap) else refused).append(tap)
        self.assertTrue(daemon.running())
        self.assertGreaterEqual(len(served), 4)
        self.assertGreaterEqual(len(refused), 1)
        for tap in refused:
            tap.finish(3)
            (error,) = tap.of_kind("error")
            self.assertEqual(error["code"], "EREFUSED")
            self.assertRegex(error["message"], r"\d+")
        for tap in served:
            tap.wait_batches(tap.seen() + 20)
            self.assert_contiguous(tap)
        for tap in served:
            tap.kill()
        daemon.wait_baseline()
        self.assert_serves(daemon)

    def is_served(self, tap):
        with tap.changed:
            tap.changed.wait_for(lambda: tap.events or tap.reader is None, patient(20))
            return bool(tap.events) and tap.events[0][1]["event"] == "attached"


class SmallMachineTest(SystemTest):
    def test_a_ring_larger_than_a_file_may_be_is_refused(self):
        """Shared memory counts as a file, and the kernel kills who writes one that is too large, unless asked not to."""
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        daemon = self.launch_daemon("synthetic:101x64x64", "--ring", "4096", preexec_fn=small_files)
        self.assertEqual(daemon.wait(5), os.EX_OSERR)
        self.assertRegex(daemon.stderr(), r"cannot reserve \d+ bytes")


class TwoDaemonsTest(SystemTest):
    def test_the_second_daemon_of_a_name_is_refused_and_told_who_has_it(self):
        first = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        tap = self.tap(first, 5)
        tap.wait_batches(1)
        sockets = {path: os.stat(path).st_ino for path in first.sockets()}
        begun = time.monotonic()
        second = self.launch_daemon("synthetic:13x8x8")
        self.assertEqual(second.wait(5), os.EX_TEMPFAIL)
        self.assertLess(time.monotonic() - begun, patient(1))
        self.assertRegex(second.stderr(), rf"\b{first.pid}\b")
        self.assertEqual({path: os.stat(path).st_ino for path in first.sockets()}, sockets)
        tap.wait_batches(tap.seen() + 40)
        fresh = self.tap(first, 7, "--join", "now", "--epochs", "1").finish()
        self.assertTrue(all(b["index"] for b in fresh.of_kind("batch")))
        self.assert_contiguous(tap)

    def test_of_ten_daemons_that_start_at_once_one_serves(self):
        daemons = [self.launch_daemon("synthetic:13x8x8", "--ring", "64") for _ in range(10)]
        losers = []
        while len(losers) < 9:
            pid, status = os.waitpid(-1, 0)
            loser = next(d for d in daemons if d.pid == pid)
            loser.child.returncode = os.waitstatus_to_exitcode(status)
            losers.append(loser)
        for loser in losers:
            self.assertGreater(loser.child.returncode, 0, loser.stderr())
        (winner,) = [d for d in daemons if d not in losers]
        winner.wait_ready()
        tap = self.tap(winner, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(tap, 13, 5, range(1))

    def test_daemons_of_different_names_live_side_by_side(self):
        self.start_daemon("synthetic:13x8x8", name="a")
        self.start_daemon("synthetic:17x8x8", name="b.2_x-")
        names = self.ctl("list").stdout
        self.assertIn("a", names)
        self.assertIn("b.2_x-", names)
        for name, samples in (("a", 13), ("b.2_x-", 17)):
            tap = self.tap(name, 5, "--epochs", "1").finish()
            self.assert_whole_epochs(tap, samples, 5, range(1))


class RuntimeFolderTest(SystemTest):
    def test_without_a_folder_of_its_own_a_daemon_uses_the_user_s(self):
        del self.environment["TSOCKET_DIR"]
        xdg = os.path.join(self.folder, "xdg")
        os.mkdir(xdg)
        self.environment["XDG_RUNTIME_DIR"] = xdg
        self.start_daemon("synthetic:13x8x8", "--ring", "64", name="xdg-test")
        self.assertTrue(os.path.isdir(os.path.join(xdg, "tsocket", "xdg-test")))
        tap = self.tap("xdg-test", 5, "--epochs", "1").finish()
        self.assert_whole_epochs(tap, 13, 5, range(1))
        nobody = self.tap("nobody", 5).finish(3)
        for place in (os.path.join(xdg, "tsocket"), f"/tmp/tsocket-{os.geteuid()}"):
            self.assertIn(place, nobody.of_kind("error")[0]["message"])

    def test_a_path_too_long_for_a_socket_is_an_error_with_the_limit(self):
        self.environment["TSOCKET_DIR"] = os.path.join(self.folder, "x" * 100)
        daemon = self.launch_daemon("synthetic:13x8x8")
        self.assertEqual(daemon.wait(5), os.EX_CANTCREAT)
        self.assertIn("107", daemon.stderr())
        self.assertIn("TSOCKET_DIR", daemon.stderr())

    def test_names_have_at_most_64_characters(self):
        refused = self.launch_daemon("synthetic:13x8x8", name="n" * 65)
        self.assertEqual(refused.wait(5), os.EX_USAGE)
        self.assertIn("64", refused.stderr())

    def test_a_foreign_file_in_the_daemon_s_folder_stays(self):
        path = os.path.join(self.runtime, "main")
        os.makedirs(path, mode=0o700)
        with open(os.path.join(path, "notes"), "w", encoding="utf-8") as f:
            f.write("mine")
        daemon = self.start_daemon("synthetic:13x8x8")
        self.assertEqual(daemon.terminate(), 0)
        self.assertEqual(os.listdir(path), ["notes"])
        os.unlink(os.path.join(path, "notes"))
        os.rmdir(path)


class UsageTest(SystemTest):
    """A wrong call ends with EX_USAGE and one message that says which flag, which value, and what is possible."""

    def assert_usage_error(self, *args, words=()):
        done = self.run_program(TSOCKETD, *args, text=True)
        self.assertEqual(done.returncode, os.EX_USAGE, f"{args}: {done.stderr}")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(os.path.isdir(self.runtime) and os.listdir(self.runtime))

    def test_wrong_calls_are_explained(self):
        self.assert_usage_error(words=["DATASET"])
        self.assert_usage_error("--nonsense", "synthetic:13x8x8", words=["--nonsense"])
        self.assert_usage_error("--workers", "lots", "synthetic:13x8x8", words=["--workers", "lots"])
        self.assert_usage_error("--ring", "-1", "synthetic:13x8x8", words=["--ring", "-1"])
        self.assert_usage_error("--dtype", "complex", "synthetic:13x8x8", words=["--dtype", "complex", "uint8"])
        self.assert_usage_error("--name", "../x", "synthetic:13x8x8", words=["--name", "../x"])
        self.assert_usage_error("--max-batch", "100", "--ring", "50", "synthetic:13x8x8", words=["100", "50"])

    def test_a_dataset_that_is_not_there_is_named(self):
        done = self.run_program(TSOCKETD, "/no/such/folder", text=True)
        self.assertEqual(done.returncode, os.EX_NOINPUT)
        self.assertIn("/no/such/folder", done.stderr)

    def test_help_and_version_go_to_standard_output(self):
        for program in (TSOCKETD, TSOCKETCTL):
            text = self.run_program(program, "--help", text=True)
            self.assertEqual((text.returncode, text.stderr), (0, ""), program)
            version = self.run_program(program, "--version", text=True)
            self.assertEqual((version.returncode, version.stderr), (0, ""), program)
            self.assertRegex(version.stdout, r"\d+\.\d+\.\d+")

    def test_help_names_every_option(self):
        text = self.run_program(TSOCKETD, "--help", text=True).stdout
        for option in re.findall(r"--[a-z-]+", """--name --stream --size --augment --scale --ratio --hflip --interpolation
            --crop-pct --dtype --layout --mean --std --seed --no-shuffle --epochs --ring --max-batch --workers --wait-for
            --join-grace --exit-when-idle --on-bad --max-bad --list --config --log-format --version"""):
            self.assertIn(option, text)

    def test_an_option_on_the_command_line_beats_the_environment_which_beats_the_file(self):
        config = os.path.join(self.folder, "config.json")
        with open(config, "w") as f:
            f.write('{"name": "from-file", "ring": 30, "shuffle": false}')
        self.environment["TSOCKETD_RING"] = "20"
        args = [TSOCKETD, "--config", config, "--join-grace", "0", "--max-batch", "5", "synthetic:13x8x8"]
        with subprocess.Popen(args, env=self.environment, stderr=subprocess.DEVNULL) as child:
            try:
                tap = self.tap_when_ready("from-file", 5)
                self.assertEqual(tap.epochs()[0].indices(), list(range(13)), "shuffle comes from the file")
                stream = json.loads(self.ctl("status", "from-file", "--json").stdout)["streams"][0]
                self.assertEqual(stream["capacity"], 20, "--ring comes from the environment")
            finally:
                child.terminate()
            self.assertEqual(child.wait(patient(5)), 0)

    def tap_when_ready(self, name, batch):
        wait_until(lambda: self.ctl("status", name, check=False).returncode == 0)
        return self.tap(name, batch, "--epochs", "1").finish()


if __name__ == "__main__":
    unittest.main()
