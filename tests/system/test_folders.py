# SPDX-License-Identifier: Apache-2.0
"""Folders of pictures as they are found: odd names, links, hidden files, and samples that cannot be used."""
import collections
import json
import os
import select
import shutil
import signal
import subprocess
import unittest

import numpy as np
import pictures
from harness import OTHER_UID, OTHER_USER, TSOCKETD, SystemTest
from inputs import expected, input_path
from PIL import Image

LOCALES = ("C", "C.UTF-8", "en_US.UTF-8")


def folder_case(name):
    return next(case for case in expected()["folders"] if case["id"] == name)


class ListTest(SystemTest):
    def listed(self, folder, *args, locale="C"):
        self.environment["LC_ALL"] = locale
        done = self.run_program(TSOCKETD, "--list", *args, folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def assert_listed_as_expected(self, case, samples, locale):
        wanted = [(s["path"], s["label"]) for s in case["samples"]]
        # What cannot be known to be bad before it is read is listed.
        unusable = {e["path"] for e in case["errors"]}
        got = [(s["key"], s["label"]) for s in samples if s["key"] not in unusable]
        self.assertEqual(got, wanted, f"{case['id']} under {locale}")
        self.assertEqual([s["index"] for s in samples], list(range(len(samples))))

    def test_the_list_is_the_same_in_every_locale(self):
        for case in expected()["folders"]:
            if case["policy"] != "decode":
                continue
            for locale in LOCALES:
                with self.subTest(case=case["id"], locale=locale):
                    samples = self.listed(input_path(case["dir"]), locale=locale)
                    self.assert_listed_as_expected(case, samples, locale)

    def test_an_empty_folder_is_an_error_that_names_it(self):
        folder = input_path(folder_case("empty_root")["dir"])
        done = self.run_program(TSOCKETD, folder, text=True)
        self.assertEqual(done.returncode, os.EX_NOINPUT)
        self.assertIn(folder, done.stderr)

    def test_names_that_are_not_utf8_are_one_valid_line_each(self):
        folder = os.path.join(self.folder, "latin1").encode()
        for name in (b"caf\xe9", b"\xff\xfe", b"ok"):
            os.makedirs(os.path.join(folder, name))
            with open(os.path.join(folder, name, b"a\xe9\n.jpg"), "wb") as f:
                f.write(pictures.jpeg(1))
        samples = self.listed(folder)
        self.assertEqual([s["label"] for s in samples], [0, 1, 2])
        daemon = self.start_daemon(folder, "--size", "16", "--epochs", "1")
        tap = self.tap(daemon, 2).finish()
        self.assert_whole_epochs(tap, 3, 2, range(1))

    def test_the_list_is_in_the_order_of_the_index_field(self):
        case = folder_case("order")
        daemon = self.start_daemon(input_path(case["dir"]), "--size", "16", "--epochs", "1")
        tap = self.tap(daemon, 4).finish()
        (epoch,) = tap.epochs().values()
        labels = dict(zip(epoch.indices(), epoch.labels()))
        self.assertEqual([labels[i] for i in range(len(labels))], [s["label"] for s in case["samples"]])


class BadSamplesTest(SystemTest):
    def run_one(self, folder, *args, batches=(3, 4), epochs=3, ring="8"):
        """What each consumer got of all epochs, and the status before the last batch was given back."""
        daemon = self.start_daemon(
            folder, "--size", "16", "--epochs", str(epochs), "--ring", ring, "--wait-for", str(len(batches)), *args
        )
        taps = [self.tap(daemon, batch) for batch in batches]
        for tap in taps:
            tap.finish()
        self.assertEqual(daemon.wait(), 0)
        self.daemon_said = daemon.stderr()
        return taps

    def bad_files(self):
        case = folder_case("bad_files")
        return case, input_path(case["dir"])

    def listed_keys(self, folder):
        done = self.run_program(TSOCKETD, "--list", folder)
        return [json.loads(line)["key"] for line in done.stdout.splitlines()]

    def test_bad_samples_are_left_out_and_named(self):
        case, folder = self.bad_files()
        keys = self.listed_keys(folder)
        good = {keys.index(s["path"]) for s in case["samples"]}
        taps = self.run_one(folder)
        for tap in taps:
            self.assertEqual(list(tap.epochs()), [0, 1, 2])
            for epoch in tap.epochs().values():
                self.assertEqual(len(epoch.indices()), 8)
                self.assertEqual(set(epoch.indices()), good)
                self.assertEqual(epoch.ended_with, [8])
        self.assertEqual(
            [e.indices() for e in taps[0].epochs().values()], [e.indices() for e in taps[1].epochs().values()]
        )
        for error in case["errors"]:
            self.assertIn(error["path"], self.daemon_said)
            self.assertIn(error["class"], self.daemon_said)

    def test_the_status_counts_them_by_kind(self):
        case, folder = self.bad_files()
        daemon = self.start_daemon(folder, "--size", "16", "--ring", "8")
        tap = self.tap(daemon, 3, "--epochs", "3")
        tap.wait_for("epoch_end", 3)
        tap.finish()
        bad = daemon.status()["streams"][0]["bad"]["kinds"]
        counts = collections.Counter(e["class"] for e in case["errors"])
        self.assertEqual(set(bad), set(counts))
        for kind, count in counts.items():
            self.assertGreaterEqual(bad[kind], 3 * count, kind)

    def test_the_first_bad_sample_ends_the_run_when_the_user_wants_that(self):
        case, folder = self.bad_files()
        daemon = self.launch_daemon(folder, "--size", "16", "--ring", "8", "--on-bad", "fail")
        self.assertEqual(daemon.wait(), os.EX_DATAERR)
        self.assertTrue(any(e["path"] in daemon.stderr() for e in case["errors"]), daemon.stderr())

    def test_consumers_read_what_comes_before_the_sample_that_ends_the_run(self):
        folder = os.path.join(self.folder, "late")
        pictures.make_folder(folder, classes=1, per_class=37, bad={30})
        args = ("--size", "16", "--ring", "8", "--no-shuffle", "--on-bad", "fail")
        daemon = self.start_daemon(folder, *args)
        tap = self.tap(daemon, 2)
        self.assertEqual(daemon.wait(), os.EX_DATAERR)
        self.assertIn("class000/00030.jpg", daemon.stderr())
        tap.finish_gone()
        self.assertEqual(tap.epochs()[0].indices(), list(range(30)))

    def test_too_many_bad_samples_end_the_run(self):
        _, folder = self.bad_files()
        daemon = self.start_daemon(folder, "--size", "16", "--ring", "4", "--max-bad", "3")
        tap = self.tap(daemon, 1)
        self.assertEqual(daemon.wait(), os.EX_DATAERR)
        self.assertIn("--max-bad", daemon.stderr())
        tap.finish_gone()

    def test_masked_samples_keep_the_epoch_as_long_as_the_list(self):
        _, folder = self.bad_files()
        for tap in self.run_one(folder, "--on-bad", "mask"):
            self.assert_whole_epochs(tap, 12, tap.batch_size, range(3))

    def test_order_and_length_do_not_depend_on_workers_or_ring(self):
        for share, bad in (("none", set()), ("one in 37", {17}), ("30 %", set(range(0, 37, 3)))):
            folder = os.path.join(self.folder, share.replace(" ", "_"))
            pictures.make_folder(folder, classes=1, per_class=37, bad=bad)
            reference = None
            for workers, ring in (("1", "64"), ("2", "8"), ("7", "8"), ("7", "64"), ("2", "256")):
                with self.subTest(bad=share, workers=workers, ring=ring):
                    (tap,) = self.run_one(folder, "--workers", workers, batches=(4,), epochs=2, ring=ring)
                    self.assert_good_epochs(tap, set(range(37)) - bad)
                    reference = reference or tap.of_kind("batch")
                    self.assertEqual(tap.of_kind("batch"), reference)

    def assert_good_epochs(self, tap, good):
        for epoch in tap.epochs().values():
            self.assertEqual(sorted(epoch.indices()), sorted(good))
            self.assertEqual(epoch.ended_with, [len(good)])
            windows = [(b["first"], b["count"]) for b in epoch.batches]
            self.assertEqual(windows, [(n, min(4, len(good) - n)) for n in range(0, len(good), 4)])

    def test_an_epoch_without_a_good_sample_ends_the_run(self):
        folder = os.path.join(self.folder, "all_bad")
        pictures.make_folder(folder, classes=1, per_class=5, bad=set(range(5)))
        daemon = self.launch_daemon(folder, "--size", "16", "--ring", "8", "--epochs", "2")
        self.assertEqual(daemon.wait(5), os.EX_DATAERR)
        self.assertIn("not one sample", daemon.stderr())


class ChangingFolderTest(SystemTest):
    def test_files_that_vanish_shrink_or_change_under_a_running_daemon(self):
        folder = os.path.join(self.folder, "prime_13")
        shutil.copytree(input_path(folder_case("prime_13")["dir"]), folder)
        keys = [s["path"] for s in folder_case("prime_13")["samples"]]
        gone, cut, changed = keys.index("a/04.jpg"), keys.index("a/06.jpg"), keys.index("b/07.jpg")
        daemon = self.start_daemon(folder, "--size", "16", "--augment", "eval", "--ring", "4")
        tap = self.tap(daemon, 1, "--epochs", "5", "--hold-ms", "1")
        tap.wait_batches(1)
        os.unlink(os.path.join(folder, "a/04.jpg"))
        os.truncate(os.path.join(folder, "a/06.jpg"), 0)
        with open(os.path.join(folder, "new"), "wb") as f:
            f.write(pictures.jpeg(99, 16, 16))
        os.rename(os.path.join(folder, "new"), os.path.join(folder, "b/07.jpg"))
        tap.finish()
        epochs = tap.epochs()
        for number in (2, 3, 4):  # read after the change; of the first two some may have been read before
            self.assertEqual(set(epochs[number].indices()), set(range(13)) - {gone, cut})
            self.assertEqual(epochs[number].ended_with, [11])
        hashes = {b["hash"] for e in epochs.values() for b in e.batches if b["index"] == [changed]}
        self.assertLessEqual(len(hashes), 2, "old or new, never a mixture")
        self.assertIn("not_found", daemon.stderr())
        self.assertIn("empty", daemon.stderr())

    def test_a_file_that_may_not_be_read_is_a_bad_sample(self):
        folder = os.path.join(self.folder, "denied")
        pictures.make_folder(folder, classes=1, per_class=5)
        os.chmod(os.path.join(folder, "class000", "00002.jpg"), 0)
        wrapper = ()
        if os.geteuid() == 0:  # who may read everything
            wrapper = OTHER_USER
            os.mkdir(self.runtime)
            os.chown(self.runtime, OTHER_UID, OTHER_UID)
        daemon = self.launch_daemon(folder, "--size", "16", "--ring", "8", "--epochs", "1", wrapper=wrapper)
        tap = self.tap(daemon, 2, "--wait-ms", "20000", wrapper=wrapper).finish()
        self.assertEqual(daemon.wait(), 0)
        self.assertEqual(sorted(tap.epochs()[0].indices()), [0, 1, 3, 4])
        self.assertIn("permission", daemon.stderr())


class CheckTest(SystemTest):
    def check(self, *args, code):
        done = self.run_program(TSOCKETD, "--check", *args)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout.decode().splitlines()

    def check_json(self, *args, code):
        *bad, last = map(json.loads, self.check("--json", *args, code=code))
        return {line["key"]: line["kind"] for line in bad}, last["summary"]

    def test_a_check_names_the_bad_files_and_says_so_in_its_exit_status(self):
        case, good = folder_case("bad_files"), folder_case("prime_13")
        wanted = {e["path"]: e["class"] for e in case["errors"]}
        bad, summary = self.check_json(input_path(case["dir"]), code=1)
        self.assertEqual(bad, wanted)
        self.assertEqual((summary["checked"], summary["bad"]), (len(case["samples"]) + len(wanted), len(wanted)))
        self.assertEqual(summary["kinds"], collections.Counter(wanted.values()))
        lines = self.check(input_path(case["dir"]), code=1)
        for path, kind in wanted.items():
            self.assertTrue(any(line.split()[:2] == [kind, f"{path}:"] for line in lines), (path, lines))
        bad, summary = self.check_json(input_path(good["dir"]), code=0)
        self.assertEqual((bad, summary["bad"], summary["formats"]), ({}, 0, {"JPEG": 13}))

    def test_the_summary_has_the_sizes_and_channels_that_pillow_sees(self):
        folder = os.path.join(self.folder, "sizes")
        pictures.make_folder(folder, 2, 3)
        with open(os.path.join(folder, "class000", "wide.jpg"), "wb") as f:
            f.write(pictures.jpeg(7, 200, 50))
        paths = [os.path.join(d, name) for d, _, names in os.walk(folder) for name in names]
        arrays = [np.asarray(Image.open(path).convert("RGB")) / 255 for path in paths]
        mean = np.mean([a.mean((0, 1)) for a in arrays], 0)
        std = np.sqrt(np.mean([(a**2).mean((0, 1)) for a in arrays], 0) - mean**2)
        _, summary = self.check_json(folder, code=0)
        self.assertEqual((summary["width"]["least"], summary["width"]["most"]), (64, 200))
        self.assertEqual((summary["height"]["least"], summary["height"]["most"]), (48, 50))
        np.testing.assert_allclose(summary["mean"], mean, atol=1e-5)
        np.testing.assert_allclose(summary["std"], std, atol=1e-5)
        channels = next(line.split() for line in self.check(folder, code=0) if "--mean" in line)
        self.run_program(TSOCKETD, "--list", "--dtype", "float32", *channels[1:], folder).check_returncode()

    def test_a_run_without_the_files_that_a_check_listed_is_whole(self):
        case, skip = folder_case("bad_files"), os.path.join(self.folder, "skip")
        self.check("--write-skip", skip, input_path(case["dir"]), code=1)
        with open(skip) as f:
            self.assertEqual(f.read().splitlines(), sorted(e["path"] for e in case["errors"]))
        self.check("--skip", skip, input_path(case["dir"]), code=0)
        daemon = self.start_daemon(input_path(case["dir"]), "--skip", skip, "--size", "16", "--ring", "8", "--epochs",
                                   "1", "--on-bad", "fail")
        tap = self.tap(daemon, 3).finish()
        self.assertEqual(daemon.wait(), 0)
        self.assert_whole_epochs(tap, len(case["samples"]), 3, range(1))
        self.assertIn(f"{len(case['errors'])} left out by --skip {skip}", daemon.stderr())

    def test_a_check_that_cannot_write_its_list_says_so_first(self):
        folder = input_path(folder_case("order")["dir"])
        done = self.run_program(TSOCKETD, "--check", "--write-skip", "/nowhere/list", folder)
        self.assertEqual((done.returncode, done.stdout), (os.EX_CANTCREAT, b""))
        self.assertIn(b"--write-skip /nowhere/list", done.stderr)

    def test_a_check_that_is_killed_on_its_way_leaves_nothing_beside_its_list(self):
        folder, lists = os.path.join(self.folder, "bad"), os.path.join(self.folder, "lists")
        os.makedirs(os.path.join(folder, "class"))
        os.mkdir(lists)
        for n in range(1000):
            with open(os.path.join(folder, "class", f"{n:0200}.jpg"), "w") as f:
                f.write("no picture")
        # Nobody reads the pipe, which has no room for so many names.
        check = subprocess.Popen([TSOCKETD, "--check", "--write-skip", os.path.join(lists, "skip"), folder],
                                 env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with check.stdout:
            self.assertTrue(select.select([check.stdout], [], [], 20)[0])
            check.kill()
            self.assertEqual((check.wait(), os.listdir(lists)), (-signal.SIGKILL, []))

    def test_a_check_that_cannot_print_has_failed(self):
        args = (TSOCKETD, "--check", input_path(folder_case("prime_13")["dir"]))
        with open("/dev/full", "w") as full:
            done = subprocess.run(args, env=self.environment, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, os.EX_IOERR)
        self.assertIn(b"No space left", done.stderr)

    def test_damage_below_every_crop_is_found(self):
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, 1, 1)
        path = os.path.join(folder, "class000", "00000.jpg")
        with open(path, "r+b") as f:
            data = f.read()
            f.seek(len(data) - 40)
            f.write(b"\xff\xd9" * 19)  # whole to the eye that looks for the end marker
        done = self.run_program(TSOCKETD, "--check", folder)
        self.assertEqual(done.returncode, 1, done.stdout)


class TrickyImagesTest(SystemTest):
    def test_every_tricky_picture_is_delivered_or_counted_as_the_expectation_says(self):
        folder = os.path.join(self.folder, "tricky")
        os.makedirs(os.path.join(folder, "all"))
        cases = [c for c in expected()["images"] if c["file"].lower().endswith((".jpg", ".jpeg"))]
        for case in cases:
            shutil.copy(input_path(case["file"]), os.path.join(folder, "all", case["id"] + ".jpg"))
        keys = self.listed_keys(folder)
        self.assertEqual(len(keys), len(cases))
        daemon = self.start_daemon(folder, "--size", "16", "--augment", "eval", "--ring", "64", "--epochs", "1")
        tap = self.tap(daemon, 1).finish()
        self.assertEqual(daemon.wait(), 0)
        delivered = {keys[i] for i in tap.epochs()[0].indices()}
        for case in cases:
            key = f"all/{case['id']}.jpg"
            with self.subTest(case=case["id"], what=case["what"]):
                if case["policy"] == "decode":
                    self.assertIn(key, delivered)
                elif case["policy"] == "error":
                    self.assertNotIn(key, delivered)

    def listed_keys(self, folder):
        done = self.run_program(TSOCKETD, "--list", folder)
        return [json.loads(line)["key"] for line in done.stdout.splitlines()]


if __name__ == "__main__":
    unittest.main()
