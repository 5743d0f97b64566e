# SPDX-License-Identifier: Apache-2.0
"""Who comes when, and where it begins."""
import time
import unittest

from harness import SystemTest, patient, repeats, wait_until


class JoiningTest(SystemTest):
    def test_a_consumer_that_comes_within_the_grace_gets_the_first_epoch_whole(self):
        grace = f"{patient(2000):.0f}ms"
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--join-grace", grace, "--epochs", "2")
        early = self.tap(daemon, 5)
        early.wait_batches(4)
        late = self.tap(daemon, 7)
        self.assertEqual(late.attached()["epoch"], 0)
        for tap in (early, late):
            tap.finish()
            self.assert_whole_epochs(tap, 101, tap.batch_size, range(2))
        self.assertEqual(daemon.wait(), 0)

    def test_a_second_trainer_that_comes_four_seconds_later_gets_the_same_epochs(self):
        """The default grace is 5 s, since trainers take seconds to start."""
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--join-grace=5s", "--epochs", "1")
        early = self.tap(daemon, 5)
        early.attached()
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 4, 5)
        late = self.tap(daemon, 7)
        for tap in (early, late):
            tap.finish()
            self.assert_whole_epochs(tap, 101, tap.batch_size, range(1))

    def leader(self, daemon):
        """A consumer that is some way into epoch 0 and goes on slowly."""
        tap = self.tap(daemon, 5, "--hold-ms", "5")
        tap.wait_batches(20)
        return tap

    def test_a_late_consumer_waits_for_the_next_epoch(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64", "--epochs", "3")
        early = self.leader(daemon)
        late = self.tap(daemon, 7, "--join", "wait", "--epochs", "2")
        attached = late.attached()
        late.finish()
        self.assertEqual(attached["position"], 1009 * attached["epoch"])
        self.assertEqual(attached["epoch"], 1)
        self.assert_whole_epochs(late, 1009, 7, range(1, 3))
        early.finish()
        self.assert_whole_epochs(early, 1009, 5, range(3))

    def test_a_late_consumer_that_cannot_wait_gets_the_rest_of_the_epoch(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64", "--epochs", "2")
        early = self.leader(daemon)
        late = self.tap(daemon, 7, "--join", "now")
        attached = late.attached()
        late.finish()
        early.finish()
        first = attached["position"]
        self.assertEqual(attached["epoch"], 0)
        self.assertGreater(first, 0)
        self.assert_contiguous(late)
        epochs = late.epochs()
        self.assertEqual(epochs[0].batches[0]["first"], first, "it begins where the attached line says")
        self.assertEqual(epochs[0].indices(), early.epochs()[0].indices()[first:])
        self.assertEqual(epochs[0].ended_with, [1009], "the length is the epoch's, not that of the part")
        self.assert_whole_epoch(epochs[1], 1009, 7)

    def test_nothing_is_lost_after_the_place_where_a_consumer_was_told_it_begins(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "32")
        leader = self.tap(daemon, 5)
        leader.attached()
        for round_ in range(repeats(100)):
            tap = self.tap(daemon, 1 + round_ % 8, "--join", "now", "--epochs", "2").finish()
            begin = tap.attached()
            batch = tap.of_kind("batch")[0]
            self.assertEqual(batch["epoch"] * 101 + batch["first"], begin["position"])
            self.assert_contiguous(tap)
            self.assertEqual(len(tap.of_kind("epoch_end")), 2)
            self.processes.remove(tap)
        self.assertTrue(leader.running())

    def test_a_consumer_that_comes_after_the_last_epoch_has_begun_is_told(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64", "--epochs", "1")
        early = self.leader(daemon)
        late = self.tap(daemon, 7).finish(3)
        (error,) = late.of_kind("error")
        self.assertEqual(error["code"], "EREFUSED")
        self.assertIn("last epoch", error["message"])
        early.finish()

    def test_a_consumer_that_was_started_first_waits_for_the_daemon(self):
        tap = self.tap("main", 5, "--wait-ms", "20000", "--epochs", "1")
        self.start_daemon("synthetic:13x8x8", "--ring", "64")
        tap.finish()
        self.assert_whole_epochs(tap, 13, 5, range(1))

    def test_a_consumer_that_finds_no_other_does_not_wait_for_an_epoch_to_pass(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64")
        first = self.tap(daemon, 5)
        first.wait_batches(40)
        first.kill()
        daemon.wait_baseline()
        second = self.tap(daemon, 7, "--epochs", "1").finish()
        begin = second.attached()
        self.assert_whole_epochs(second, 1009, 7, [begin["epoch"]])

    def test_the_first_epoch_waits_until_as_many_are_there_as_the_daemon_was_told(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64", "--wait-for", "3", "--epochs", "2")
        taps = [self.tap(daemon, 5), self.tap(daemon, 3)]
        for tap in taps:
            tap.attached()
        self.ctl("status", "main")
        self.assertEqual([tap.of_kind("batch") for tap in taps], [[], []])
        taps.append(self.tap(daemon, 2))
        for tap in taps:
            tap.finish()
            self.assert_whole_epochs(tap, 13, tap.batch_size, range(2))

    def test_a_daemon_that_shall_end_when_idle_ends_after_its_last_consumer(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64", "--exit-when-idle")
        long = self.tap(daemon, 5)
        long.attached()
        self.tap(daemon, 3, "--epochs", "1").finish()
        self.assertTrue(daemon.running(), "one consumer is still there")
        long.kill()
        self.assertEqual(daemon.wait(5), 0)

    def test_a_daemon_with_epochs_ends_when_the_last_one_was_read(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64", "--epochs", "5", "--wait-for", "2")
        slow = self.tap(daemon, 13, "--hold-ms", "30")
        fast = self.tap(daemon, 1)
        fast.finish()
        slow.finish()
        self.assertEqual(daemon.wait(5), 0)
        for tap in (slow, fast):
            self.assert_whole_epochs(tap, 13, tap.batch_size, range(5))

    def test_slow_and_fast_consumers_get_the_same(self):
        daemon = self.start_daemon("synthetic:503x8x8", "--ring", "64", "--epochs", "2", "--wait-for", "3")
        taps = [self.tap(daemon, 8, "--hold-ms", hold) for hold in ("0", "1", "10")]
        for tap in taps:
            tap.finish()
            self.assert_whole_epochs(tap, 503, 8, range(2))
            self.assertEqual(tap.of_kind("batch"), taps[0].of_kind("batch"))

    def test_64_consumers_at_once(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--epochs", "2", "--wait-for", "64")
        taps = [self.tap(daemon, 1 + n % 13) for n in range(64)]
        for tap in taps:
            tap.finish()
            self.assert_whole_epochs(tap, 101, tap.batch_size, range(2))
        self.assertEqual(daemon.wait(), 0)


class StreamsTest(SystemTest):
    def test_two_streams_with_recipes_of_their_own(self):
        daemon = self.start_daemon(
            "synthetic:101x8x8",
            *("--ring", "64", "--epochs", "2", "--wait-for", "2"),
            *("--stream", "val=synthetic:13x4x4,shuffle=off,augment=eval"),
        )
        val = [self.tap("main/val", 4), self.tap("main/val", 13)]
        for tap in val:
            tap.attached()
        train = [self.tap("main", 5), self.tap("main/train", 7)]
        for tap in train:
            tap.finish()
            self.assert_whole_epochs(tap, 101, tap.batch_size, range(2))
        for tap in val:
            tap.finish()
            self.assert_whole_epochs(tap, 13, tap.batch_size, range(2))
            for epoch in tap.epochs().values():
                self.assertEqual(epoch.indices(), list(range(13)))
        self.assertEqual(daemon.wait(), 0)

    def test_a_stream_goes_on_while_nobody_reads_the_other(self):
        self.start_daemon("synthetic:101x8x8", "--ring", "64", "--stream", "val=synthetic:13x4x4")
        train = self.tap("main/train", 5, "--epochs", "3").finish()
        self.assert_whole_epochs(train, 101, 5, range(3))
        val = self.tap("main/val", 5, "--epochs", "1").finish()
        self.assert_whole_epochs(val, 13, 5, range(1))

    def test_a_stuck_consumer_of_one_stream_does_not_hold_the_other_back(self):
        self.start_daemon("synthetic:101x8x8", "--ring", "64", "--stream", "val=synthetic:1009x4x4")
        stuck = self.tap("main/val", 5, "--hold-ms", "3600000")
        stuck.wait_batches(1)
        train = self.tap("main/train", 5, "--epochs", "3").finish()
        self.assert_whole_epochs(train, 101, 5, range(3))

    def test_a_stream_that_does_not_exist_is_refused_with_the_names_of_those_that_do(self):
        self.start_daemon("synthetic:13x8x8", "--stream", "val=synthetic:13x4x4")
        tap = self.tap("main/test", 5)
        tap.finish(3)
        (error,) = tap.of_kind("error")
        for word in ("test", "train", "val"):
            self.assertIn(word, error["message"])


class ShardTest(SystemTest):
    def test_four_ranks_get_disjoint_windows_that_together_are_the_epoch(self):
        for samples, batch in ((101, 4), (96, 4), (13, 4), (3, 4)):
            with self.subTest(samples=samples, batch=batch):
                self.run_ranks(samples, batch)

    def run_ranks(self, samples, batch, world=4, epochs=2):
        daemon = self.start_daemon(
            f"synthetic:{samples}x8x8", "--ring", "64", "--epochs", str(epochs), "--wait-for", str(world)
        )
        taps = [self.tap(daemon, batch, "--shard", f"{rank}/{world}") for rank in range(world)]
        for tap in taps:
            tap.finish()
        self.assertEqual(daemon.wait(), 0)
        for number in range(epochs):
            self.assert_epoch_is_shared(taps, number, samples, batch)

    def assert_epoch_is_shared(self, taps, number, samples, batch):
        world = len(taps)
        epochs = [tap.epochs()[number] for tap in taps]
        rounds = -(-samples // (batch * world))
        self.assertEqual([len(e.batches) for e in epochs], [rounds] * world, "all ranks take the same number of steps")
        self.assertEqual([e.ended_with for e in epochs], [[samples]] * world)
        real = []
        for rank, epoch in enumerate(epochs):
            self.assertEqual(epoch.sizes(), [batch] * rounds, "every step is a full batch")
            for step, window in enumerate(epoch.batches):
                first = (step * world + rank) * batch
                valid = window.get("valid", batch)
                self.assertEqual(valid, max(0, min(batch, samples - first)), f"rank {rank}, step {step}")
                real += window["index"][:valid]
        self.assertEqual(sorted(real), list(range(samples)))


if __name__ == "__main__":
    unittest.main()
