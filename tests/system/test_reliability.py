# SPDX-License-Identifier: Apache-2.0
"""Trainers that are stopped, killed and come back, and daemons that die: as users see it, with the ledger as a witness."""
import itertools
import json
import os
import subprocess
import time
import unittest

from harness import TSOCKETCTL, SystemTest, patient, wait_until


def contents(tap):
    """What came, in its order: (epoch, place, sample), and the ends."""
    for _, event in tap.events:
        if event["event"] == "batch":
            for place, index in enumerate(event["index"], event["first"]):
                yield event["epoch"], place, index
        elif event["event"] == "epoch_end":
            yield event["epoch"], "end", event["samples"]


class ReliabilityTest(SystemTest):
    seconds = 180

    def ledger(self):
        return os.path.join(self.folder, "ledger")

    def verify(self, status=0):
        done = subprocess.run([TSOCKETCTL, "verify", self.ledger(), "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def token_of(self, tap):
        return tap.of_kind("token")[-1]["token"]

    def test_a_trainer_that_is_stopped_holds_the_others_no_longer_than_max_hold(self):
        """It is stopped in the middle of its work; afterwards it has every sample of each epoch, and so have the others."""
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64", "--max-batch", "16", "--epochs", "3", "--wait-for", "3",
                                   "--max-hold", "200ms", "--ledger", self.ledger())
        others = [self.tap(daemon, 7, "--hold-ms", "1"), self.tap(daemon, 13, "--name", "other")]
        stopped = self.tap(daemon, 5, "--name", "stopped", "--hold-ms", "2")
        stopped.wait_batches(20)
        stopped.stop()
        for tap, batch in zip(others, (7, 13)):
            tap.finish()
            self.assert_whole_epochs(tap, 1009, batch, range(3))
        stopped.go_on()
        stopped.finish()
        self.assert_whole_epochs_but_for_lost(stopped, 1009, 3)
        self.assertEqual(daemon.wait(10), 0)
        self.verify()

    def assert_whole_epochs_but_for_lost(self, tap, samples, epochs):
        """What was lost while it was held came again: with that left out, all is there once, in its order."""
        got = [event for _, event in tap.events if event["event"] in ("batch", "elapsed")]
        lost = {(e["epoch"], e["first"]) for e in got if e["event"] == "elapsed"}
        batches = {}
        for event in got:
            if event["event"] == "batch":
                batches.setdefault((event["epoch"], event["first"]), []).append(event)
        for place, events in batches.items():
            self.assertEqual(len(events), 2 if place in lost else 1, place)
        for epoch in range(epochs):
            indices = list(itertools.chain(*(e[-1]["index"] for (n, _), e in sorted(batches.items()) if n == epoch)))
            self.assertEqual(sorted(indices), list(range(samples)), f"epoch {epoch}")

    def test_trainers_wait_for_a_daemon_that_was_killed_and_go_on_where_they_were(self):
        options = ("synthetic:1009x8x8", "--ring", "64", "--max-batch", "16", "--epochs", "2", "--seed", "5")
        whole = self.start_daemon(*options, name="whole")
        reference = list(contents(self.tap(whole, 7).finish()))
        daemon = self.start_daemon(*options, "--wait-for", "3")
        taps = [self.tap(daemon, batch, "--reconnect-ms", "20000", "--hold-ms", "1", "--name", f"tap{batch}")
                for batch in (5, 7, 16)]
        delays = []
        for round in range(3):
            for tap in taps:
                tap.wait_batches(10 + 15 * round)
            daemon.kill()
            before = [tap.seen() for tap in taps]
            begun = time.monotonic()
            daemon = self.start_daemon(*options)
            for tap, seen in zip(taps, before):
                tap.wait_batches(seen + 2)
            delays.append(time.monotonic() - begun)
        print(f"training again {1000 * min(delays):.0f} to {1000 * max(delays):.0f} ms after the daemon's start", flush=True)
        for tap in taps:
            tap.finish()
            self.assertEqual(list(contents(tap)), reference, tap)
        self.assertLess(sorted(delays)[1], patient(1.0))

    def test_a_trainer_gives_up_when_the_daemon_stays_away(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        tap = self.tap(daemon, 5, "--reconnect-ms", "300", "--hold-ms", "5")
        tap.wait_batches(2)
        daemon.kill()
        tap.finish_gone()

    def test_a_daemon_that_comes_back_with_another_dataset_is_not_read(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        tap = self.tap(daemon, 5, "--reconnect-ms", "20000", "--hold-ms", "5")
        tap.wait_batches(2)
        daemon.kill()
        self.start_daemon("synthetic:103x8x8", "--ring", "64")
        tap.finish(3)
        error = tap.of_kind("error")[0]
        self.assertEqual(error["code"], "EREFUSED", error)
        self.assertIn("the dataset differs", error["message"])

    def test_a_run_is_continued_by_token_after_a_restart_of_both(self):
        """As after a reboot: daemon and trainer start again, the trainer with what it had saved."""
        options = ("synthetic:1009x8x8", "--ring", "64", "--max-batch", "16", "--epochs", "2", "--ledger", self.ledger())
        reference = list(contents(self.tap(self.start_daemon(*options[:-2], name="whole"), 7).finish()))
        got, token = [], None
        for batch, batches in ((7, 60), (5, 100), (16, 0)):
            daemon = self.start_daemon(*options)
            resume = ("--resume", token) if token else ()
            tap = self.tap(daemon, batch, "--name", "job", "--batches", str(batches), *resume).finish()
            got += contents(tap)
            if batches:
                token = self.token_of(tap)
                daemon.kill()
        self.assertEqual(got, reference)
        self.assertEqual(daemon.wait(10), 0)
        self.verify()

    def test_three_come_late(self):
        """At 10, 50 and 90 % of an epoch: each gets all of each epoch once, and the group goes on meanwhile."""
        daemon = self.start_daemon("synthetic:2003x8x8", "--ring", "64", "--max-batch", "16", "--epochs", "4", "--side-rings", "3",
                                   "--ledger", self.ledger())
        first = self.tap(daemon, 7, "--hold-ms", "1", "--name", "first")
        late = []
        for share in (0.1, 0.5, 0.9):
            first.wait_batches(int(2003 * share / 7))
            late.append(self.tap(daemon, 8, "--join", "catch-up", "--name", f"late{share}"))
        first.finish()
        self.assert_whole_epochs(first, 2003, 7, range(4))
        for tap in late:
            tap.finish()
            begun = tap.of_kind("attached")[0]["epoch"]
            for number, epoch in tap.epochs().items():
                self.assertEqual(sorted(epoch.indices()), list(range(2003)), f"epoch {number} of {tap}")
            self.assertEqual([e["epoch"] for e in tap.of_kind("epoch_end")], list(range(begun, 4)), tap)
        self.assertEqual(daemon.wait(10), 0)
        self.verify()

    def test_a_consumer_can_be_told_to_be_more_patient(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--max-hold", "0", "--wait-for", "2")
        holds = self.tap(daemon, 5, "--hold-ms", "60000", "--name", "holds")
        other = self.tap(daemon, 5, "--name", "other")
        other.wait_batches(10)
        seen = other.seen()
        self.assertLess(seen, 20)
        for wrong in ("max-hold=much", "no-such=1", "nonsense"):
            done = self.ctl("set", "main", "holds", wrong, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("max-hold=DURATION", done.stderr)
        self.ctl("set", "main", "holds", "max-hold=100ms")
        other.wait_batches(seen + 20)
        state = {c["name"]: c for c in daemon.status()["streams"][0]["consumers"]}["holds"]
        self.assertEqual((state["state"], state["parked_for"]), ("parked", "held the group"))
        holds.kill()
        other.kill()

    def test_a_trial_that_crashes_again_and_again_is_refused_for_a_while(self):
        daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64", "--max-crashes", "3")
        for _ in range(3):
            tap = self.tap(daemon, 5, "--name", "trial", "--hold-ms", "1000")
            tap.wait_batches(1)
            tap.kill()
            wait_until(lambda: not daemon.status()["streams"][0]["consumers"], what="its end to be noticed")
        refused = self.tap(daemon, 5, "--name", "trial").finish(3)
        self.assertIn("--max-crashes", refused.of_kind("error")[0]["message"])
        self.tap(daemon, 5, "--name", "another", "--batches", "3").finish()

    def test_who_comes_back_before_the_others_is_said_to_wait_for_them(self):
        args = ("synthetic:1009x8x8", "--ring", "64", "--wait-for", "2")
        daemon = self.start_daemon(*args)
        taps = [self.tap(daemon, 5, "--name", name, "--hold-ms", "1", "--reconnect-ms", "60000") for name in ("stays", "goes")]
        for tap in taps:
            tap.wait_batches(5)
        taps[1].kill()
        daemon.kill()
        again = self.start_daemon(*args)
        here = "for 2 consumers, 1 is here"
        stream = wait_until(lambda: (s := again.status()["streams"][0])["consumers"] and s, what="the one that is left")
        self.assertEqual(stream["consumers"][0]["parked_for"], f"waits {here}")
        self.assertEqual(stream["held_back_by"], f"the wait {here}")
        self.assertIn(f"parked: waits {here}", self.ctl("status", "main").stdout)
        self.assertIn(f"stream train: waits {here}", again.stderr())
        other = self.tap(again, 5, "--name", "other", "--batches", "5").finish()
        self.assertEqual(len(other.of_kind("batch")), 5)
        taps[0].kill()

    def test_drain_ends_with_the_epoch(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64")
        tap = self.tap(daemon, 5, "--hold-ms", "1")
        tap.wait_batches(5)
        self.ctl("drain", "main")
        tap.finish()
        self.assert_whole_epochs(tap, 1009, 5, range(1))
        self.assertEqual(daemon.wait(10), 0)

    def test_who_is_late_when_a_daemon_is_drained_gets_its_epoch_to_the_end(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64", "--max-batch", "16")
        first = self.tap(daemon, 5, "--hold-ms", "5")
        first.wait_batches(60)
        late = self.tap(daemon, 8, "--join", "catch-up")
        late.attached()
        self.ctl("drain", "main")
        first.finish()
        late.finish()
        epoch = late.epochs()[0]
        self.assertEqual(sorted(epoch.indices()), list(range(1009)))
        self.assertEqual(list(late.epochs()), [0])
        self.assertEqual(daemon.wait(10), 0)

    def test_drain_ends_a_daemon_to_which_nobody_is_attached(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64")
        self.ctl("drain", "main")
        self.assertEqual(daemon.wait(10), 0)

    def test_drain_ends_a_daemon_whose_trainers_have_left_in_the_middle(self):
        daemon = self.start_daemon("synthetic:1009x8x8", "--ring", "64")
        self.tap(daemon, 5, "--batches", "3").finish()
        self.ctl("drain", "main")
        self.assertEqual(daemon.wait(10), 0)

    def test_drain_ends_a_resident_stream_with_its_last_reader(self):
        daemon = self.start_daemon("--stream", "val=synthetic:97x8x8,resident=on")
        reader = self.tap(daemon, 5, "--epochs", "3", "--hold-ms", "5")
        reader.wait_batches(1)
        self.ctl("drain", "main")
        reader.finish()
        self.assert_whole_epochs(reader, 97, 5, range(3))
        self.assertEqual(daemon.wait(10), 0)

    def test_a_resident_stream_serves_everyone_at_will(self):
        daemon = self.start_daemon("--stream", "val=synthetic:97x8x8,resident=on,augment=eval", "--ledger", self.ledger())
        slow = self.tap(daemon, 5, "--hold-ms", "3000")
        slow.wait_batches(1)
        for _ in range(3):
            tap = self.tap(daemon, 16, "--epochs", "2").finish()
            self.assert_whole_epochs(tap, 97, 16, range(2))
        quick = self.tap(daemon, 10, "--hold-ms", "1")
        shown = wait_until(lambda: [c for c in daemon.status()["streams"][0]["consumers"]
                                    if c["pid"] == quick.pid and c["epoch"] > 1 and c["first"] > 0],
                           what="a place in a later pass")
        self.assertEqual(shown[0]["first"] % 10, 0)
        quick.kill()
        slow.kill()
        stream = daemon.status()["streams"][0]
        self.assertTrue(stream["resident"])
        self.assertEqual(stream["made"], 97)

    def test_a_resident_stream_has_no_number_of_epochs(self):
        daemon = self.start_daemon("synthetic:13x8x8", "--epochs", "2", "--resident")
        self.assertEqual(daemon.stderr().count("is not looked at"), 1)
        self.assertIn("stream train: resident, so that its --epochs 2 is not looked at", daemon.stderr())
        tap = self.tap(daemon, 5, "--epochs", "3").finish()
        self.assert_whole_epochs(tap, 13, 5, range(3))

    def test_a_resident_stream_that_cannot_be_is_refused_with_its_size(self):
        daemon = self.launch_daemon("synthetic:1009x8x8", "--resident", "--ring", "64")
        self.assertNotEqual(daemon.wait(5), 0)
        self.assertIn("--ring 1009", daemon.stderr())


if __name__ == "__main__":
    unittest.main()
