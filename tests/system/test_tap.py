# SPDX-License-Identifier: Apache-2.0
"""What `tsocketctl` says and writes."""
import io
import json
import os
import unittest

import numpy as np
from PIL import Image

import pictures
from harness import SystemTest, wait_until


class DumpTest(SystemTest):
    def dump(self, dataset, batch, *args, options=()):
        folder = os.path.join(self.folder, "dump")
        os.mkdir(folder)
        daemon = self.start_daemon(dataset, "--ring", "64", "--epochs", "2", *args)
        tap = self.tap(daemon, batch, "--dump", folder, *options).finish()
        self.assertEqual(daemon.wait(), 0)
        return tap, folder

    def load(self, folder, batch, field):
        return np.load(os.path.join(folder, f"{batch['epoch']}-{batch['first']}-{field}.npy"))

    def test_dumped_batches_hold_what_the_lines_say(self):
        tap, folder = self.dump("synthetic:13x8x6", 5)
        self.assertEqual(len(os.listdir(folder)), 3 * tap.seen())
        for batch in tap.of_kind("batch"):
            image, label, index = (self.load(folder, batch, f) for f in ("image", "label", "index"))
            self.assertEqual((image.shape, image.dtype), ((batch["count"], 8, 6, 3), np.uint8))
            self.assertEqual((label.shape, label.dtype), ((batch["count"],), np.int64))
            self.assertEqual(label.tolist(), batch["label"])
            self.assertEqual(index.tolist(), batch["index"])

    def test_a_sample_is_the_same_in_every_epoch_of_a_dataset_without_augmentation(self):
        tap, folder = self.dump("synthetic:13x8x6", 4)
        seen = {}
        for batch in tap.of_kind("batch"):
            for image, index in zip(self.load(folder, batch, "image"), batch["index"]):
                self.assertTrue((seen.setdefault(index, image) == image).all())
        self.assertEqual(len({image.tobytes() for image in seen.values()}), 13, "every sample is another picture")

    def test_float_pictures_in_channel_order_are_the_normalised_bytes(self):
        mean, std = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)
        raw, raw_folder = self.dump("synthetic:5x8x6", 5, "--no-shuffle")
        os.rename(raw_folder, raw_folder + "-raw")
        numbers = [",".join(map(str, values)) for values in (mean, std)]
        args = ("--dtype", "float32", "--layout", "nchw", "--mean", numbers[0], "--std", numbers[1], "--no-shuffle")
        out, out_folder = self.dump("synthetic:5x8x6", 5, *args)
        plain = self.load(raw_folder + "-raw", raw.of_kind("batch")[0], "image").astype(np.float64)
        want = ((plain / 255 - mean) / std).transpose(0, 3, 1, 2)
        got = self.load(out_folder, out.of_kind("batch")[0], "image")
        self.assertEqual((got.shape, got.dtype), ((5, 3, 8, 6), np.float32))
        np.testing.assert_allclose(got, want, atol=1e-5)

    def test_a_dump_repeats_the_tail_of_a_padded_batch(self):
        tap, folder = self.dump("synthetic:13x8x6", 5, options=("--last", "pad"))
        last = [b for b in tap.of_kind("batch") if b["first"] == 10][0]
        image, index = self.load(folder, last, "image"), self.load(folder, last, "index")
        self.assertEqual((last["count"], len(index)), (5, 5))
        for n in (3, 4):
            source = index.tolist().index(index[n])
            self.assertLess(source, 3)
            self.assertTrue((image[n] == image[source]).all())

    def test_one_whose_daemon_dies_says_where_it_was(self):
        args = ("synthetic:101x8x8", "--ring", "32", "--seed", "3")
        daemon = self.start_daemon(*args)
        first = self.tap(daemon, 5, "--hold-ms", "1")
        first.wait_batches(7)
        daemon.kill()
        first.finish(code=3)
        self.assertEqual([event["event"] for _, event in first.events[-2:]], ["error", "token"])
        daemon = self.start_daemon(*args)
        second = self.tap(daemon, 7, "--epochs", "1", "--resume", first.events[-1][1]["token"]).finish()
        got = [i for tap in (first, second) for event in tap.of_kind("batch") for i in event["index"]]
        self.assertEqual(sorted(got), list(range(101)))

    def test_views_are_fields_and_their_boxes_can_be_followed(self):
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, 2, 3)
        views = ("--view", "big:size=24:hflip=1", "--view", "whole:size=24:augment=eval:crop-pct=1")
        tap, dump = self.dump(folder, 6, *views, "--aug", "--no-shuffle")
        batch = tap.of_kind("batch")[0]
        big, whole = self.load(dump, batch, "big"), self.load(dump, batch, "whole")
        self.assertEqual((big.shape, whole.shape), ((6, 24, 24, 3), (6, 24, 24, 3)))
        for n, (x, y, width, height, flip) in enumerate(self.load(dump, batch, "big.aug").tolist()):
            self.assertEqual(flip, 1)
            with Image.open(io.BytesIO(pictures.jpeg(n))) as picture:
                crop = picture.convert("RGB").crop((x, y, x + width, y + height))
            want = np.asarray(crop.resize((24, 24), Image.BILINEAR))[:, ::-1]
            self.assertTrue((big[n] == want).all())
        self.assertEqual(self.load(dump, batch, "whole.aug").tolist(), [[8, 0, 48, 48, 0]] * 6)


class StatusTest(SystemTest):
    def test_the_status_tells_what_the_cache_holds_and_saves(self):
        folder = os.path.join(self.folder, "photos")
        pictures.make_folder(folder, 2, 5)
        daemon = self.start_daemon(folder, "--size", "16", "--ring", "32", "--cache", "1MiB")
        self.tap(daemon, 5, "--epochs", "3").finish()
        wait_until(lambda: daemon.status()["notes"].get("cache_found", 0) >= 20)
        notes = daemon.status()["notes"]
        self.assertEqual((notes["cache_capacity_bytes"], notes["cache_pictures"]), (1 << 20, 10))
        self.assertEqual(notes["cache_missed"], 10)
        self.assertGreaterEqual(notes["cache_used_bytes"], 10 * 64 * 48 * 3)

    def test_the_status_tells_who_is_there_and_what_holds_the_ring_back(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64")
        slow = self.tap(daemon, 8, "--hold-ms", "3600000")
        slow.wait_batches(1)
        fast = self.tap(daemon, 5)
        fast.wait_batches(2)
        status = daemon.status()
        stream = status["streams"][0]
        self.assertEqual(status["pid"], daemon.pid)
        self.assertEqual((stream["name"], stream["capacity"], stream["epoch"]), ("train", 64, 0))
        consumers = {c["pid"]: c for c in stream["consumers"]}
        self.assertEqual(set(consumers), {slow.pid, fast.pid})
        self.assertEqual(consumers[slow.pid]["batch"], 8)
        self.assertEqual(consumers[fast.pid]["batch"], 5)
        table = self.ctl("status", "main").stdout
        for word in ("train", "tsocketctl", str(slow.pid), str(fast.pid)):
            self.assertIn(word, table)

    def test_the_status_tells_where_a_consumer_reads(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "32")
        tap = self.tap(daemon, 5, "--hold-ms", "1")
        tap.wait_for("epoch_end", 70)  # more epochs than the control page has entries
        tap.stop()
        (consumer,) = daemon.status()["streams"][0]["consumers"]
        batches = tap.of_kind("batch")
        self.assertIn(consumer["epoch"], range(batches[-3]["epoch"], batches[-1]["epoch"] + 2))
        self.assertEqual(consumer["position"], consumer["epoch"] * 13 + consumer["first"])
        self.assertLess(consumer["first"], 13)
        tap.go_on()

    def test_the_list_names_the_running_daemons(self):
        self.assertEqual(self.ctl("list", check=False).stdout.count("\n"), 0)
        names = ["a", "b"]
        pids = [self.start_daemon("synthetic:13x8x8", name=name).pid for name in names]
        text = self.ctl("list").stdout
        for word in (*names, *pids):
            self.assertIn(str(word), text)

    def test_wrong_calls_are_usage_errors(self):
        for args in ((), ("nonsense",), ("tap",), ("tap", "main", "--batch", "x"), ("tap", "main", "--last", "maybe"),
                     ("status", "main", "--nonsense")):
            with self.subTest(args=args):
                done = self.ctl(*args, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(done.stderr)

    def test_every_line_of_a_json_log_is_json(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--log-format", "json", "-v", "--epochs", "1")
        self.tap(daemon, 5).finish()
        self.assertEqual(daemon.wait(), 0)
        lines = daemon.stderr().splitlines()
        self.assertTrue(lines)
        for line in lines:
            json.loads(line)


if __name__ == "__main__":
    unittest.main()
