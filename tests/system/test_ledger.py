# SPDX-License-Identifier: Apache-2.0
"""tsocketd --ledger and tsocketctl verify together: what really happened is proven, or named."""
import contextlib
import json
import os
import random
import signal
import subprocess
import unittest

from harness import TSOCKETCTL, SystemTest, repeats, wait_until

SAMPLES = 307


class LedgerTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.ledger = os.path.join(self.folder, "ledger")

    def start(self, *args, **popen):
        return self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--ring", "64", "--ledger", self.ledger, *args, **popen)

    def verify(self, code=0, path=None):
        done = self.run_program(TSOCKETCTL, "verify", path or self.ledger, "--json", text=True)
        said = json.loads(done.stdout)
        self.assertEqual(done.returncode, code, said["exceptions"])
        self.assertEqual(said["proven"], code == 0)
        return said

    def consumer(self, said, name):
        (found,) = [c for c in said["consumers"] if c["name"] == name]
        return found

    def proven_epochs(self, name):
        """0 as long as nothing of it is written."""
        return sum(c["epochs"] for c in self.verify()["consumers"] if c["name"] == name)

    def test_a_run_is_proven_with_the_numbers_that_the_consumers_have(self):
        daemon = self.start("--wait-for", "3", "--epochs", "3")
        taps = {f"b{batch}": self.tap(daemon, batch, "--name", f"b{batch}", "--hold-ms", "1") for batch in (5, 7, 16)}
        for tap in taps.values():
            tap.finish()
        self.assertEqual(daemon.wait(), 0)
        said = self.verify()
        self.assertEqual(said["notes"], [])
        for name, tap in taps.items():
            self.assert_whole_epochs(tap, SAMPLES, tap.batch_size, range(3))
            found = self.consumer(said, name)
            self.assertEqual((found["epochs"], found["samples"], found["state"]), (3, 3 * SAMPLES, "left"))

    def test_ranks_are_proven_together(self):
        daemon = self.start("--wait-for", "3", "--epochs", "2")
        taps = [self.tap(daemon, 5, "--shard", f"{rank}/3", "--name", f"r{rank}") for rank in range(3)]
        for tap in taps:
            tap.finish()
        self.assertEqual(daemon.wait(), 0)
        said = self.verify()
        self.assertEqual(said["notes"], [])
        self.assertEqual(sum(c["samples"] for c in said["consumers"]), 2 * SAMPLES)

    def test_a_late_joiner_is_proven_to_have_caught_up(self):
        daemon = self.start("--epochs", "3")
        first = self.tap(daemon, 5, "--hold-ms", "10", "--name", "first")
        first.wait_batches(20)
        late = self.tap(daemon, 7, "--join", "catch-up", "--name", "late", "--hold-ms", "1")
        self.assertGreater(late.wait_for("batch")["first"], 0, "it is late")
        first.finish()
        late.finish()
        self.assertEqual(daemon.wait(), 0)
        said = self.verify()
        self.assertEqual(self.consumer(said, "late")["samples"], 3 * SAMPLES)
        self.assertEqual(self.consumer(said, "late")["epochs"], 3)

    def test_a_consumer_that_was_parked_is_proven_to_have_gone_on(self):
        daemon = self.start("--wait-for", "2", "--epochs", "2", "--max-hold", "200ms")
        slow = self.tap(daemon, 5, "--name", "slow", "--hold-ms", "1")
        other = self.tap(daemon, 7, "--name", "other", "--hold-ms", "2")
        slow.wait_batches(3)
        slow.stop()
        other.wait_for("epoch_end")
        slow.go_on()
        slow.finish()
        other.finish()
        self.assertEqual(daemon.wait(), 0)
        found = self.consumer(self.verify(), "slow")
        self.assertEqual((found["epochs"], found["samples"]), (2, 2 * SAMPLES))
        self.assertGreaterEqual(found["parked"], 1)
        self.assertEqual(found["lost"], 5 * len(slow.of_kind("elapsed")), "all of them have five")

    def test_a_token_makes_one_consumer_of_two_attachments(self):
        daemon = self.start("--epochs", "2", "--wait-for", "2")
        self.tap(daemon, 5, "--name", "other", "--hold-ms", "3")
        first = self.tap(daemon, 7, "--name", "trial", "--batches", "12").finish()
        (token,) = first.of_kind("token")
        self.tap(daemon, 16, "--name", "trial", "--resume", token["token"]).finish()
        self.assertEqual(daemon.wait(), 0)
        found = self.consumer(self.verify(), "trial")
        self.assertEqual((found["attachments"], found["epochs"]), (2, 2))
        self.assertEqual(found["samples"] + found["by_token"] - found["again"], 2 * SAMPLES)

    def test_a_death_is_noted_and_the_others_are_proven(self):
        daemon = self.start("--epochs", "2", "--wait-for", "2")
        victim = self.tap(daemon, 5, "--name", "victim", "--hold-ms", "1")
        other = self.tap(daemon, 7, "--name", "other", "--hold-ms", "1")
        victim.wait_batches(10)
        victim.kill()
        other.finish()
        self.assertEqual(daemon.wait(), 0)
        said = self.verify()
        self.assertEqual([(n["what"], n["consumer"], n["epoch"]) for n in said["notes"]], [("middle", "victim", 0)])
        self.assertEqual(self.consumer(said, "victim")["state"], "died")

    def test_a_consumer_that_skips_is_named(self):
        daemon = self.start("--wait-for", "2", "--epochs", "2", "--max-hold", "100ms")
        slow = self.tap(daemon, 5, "--name", "slow", "--on-lag", "skip", "--max-lag", "30", "--hold-ms", "1")
        other = self.tap(daemon, 7, "--name", "other", "--hold-ms", "3")
        slow.wait_batches(3)
        slow.stop()
        other.wait_batches(other.seen() + 20)
        slow.go_on()
        slow.finish()
        other.finish()
        self.assertEqual(daemon.wait(), 0)
        said = self.verify(code=1)
        self.assertEqual({(e["what"], e["consumer"]) for e in said["exceptions"]}, {("skipped", "slow")})
        found = self.consumer(said, "slow")
        self.assertEqual(found["samples"] + found["skipped"], 2 * SAMPLES)

    def test_passes_over_a_resident_stream_are_proven(self):
        daemon = self.start_daemon("--stream", f"val=synthetic:{SAMPLES}x8x8,resident=on", "--ledger", self.ledger)
        options = {"whole": [], "drops": ["--last", "drop"], "rank0": ["--shard", "0/2"], "rank1": ["--shard", "1/2"]}
        taps = [self.tap(daemon, 16, "--name", name, "--epochs", "3", *more) for name, more in options.items()]
        taps.append(self.tap(daemon, 16, "--name", "cut", "--batches", "25"))
        for tap in taps:
            tap.finish()
        (token,) = taps[-1].of_kind("token")
        self.tap(daemon, 5, "--name", "cut", "--epochs", "3", "--resume", token["token"]).finish()
        self.assertEqual(daemon.terminate(), 0)
        said = self.verify()
        self.assertEqual(said["notes"], [])
        found = {c["name"]: c for c in said["consumers"]}
        self.assertEqual([found[name]["epochs"] for name in options], [3, 3, 3, 3])
        self.assertEqual(found["whole"]["samples"], 3 * SAMPLES)
        self.assertEqual((found["drops"]["samples"], found["drops"]["dropped"]), (3 * (SAMPLES // 16 * 16), 3 * (SAMPLES % 16)))
        self.assertEqual(found["rank0"]["samples"] + found["rank1"]["samples"], 3 * SAMPLES)
        self.assertEqual((found["cut"]["attachments"], found["cut"]["epochs"]), (2, 4), "25 batches are one pass and a part")

    def test_a_daemon_that_was_killed_leaves_a_ledger_that_the_next_one_goes_on_with(self):
        daemon = self.start()
        tap = self.tap(daemon, 5, "--name", "trial", "--hold-ms", "4", "--reconnect-ms", "20000", "--epochs", "9")
        wait_until(lambda: self.proven_epochs("trial") > 0, what="a proof of the first epoch")
        daemon.kill()
        with open(self.ledger, "ab") as f:  # and half a record, as a crash in the middle of a write leaves it
            f.write(b"\x08" * 17)
        self.assertEqual([n["what"] for n in self.verify()["notes"] if n["what"] == "torn"], ["torn"])
        again = self.start("--exit-when-idle")
        tap.finish()
        self.assertEqual(again.wait(), 0)
        said = self.verify()
        self.assertEqual((said["runs"], [n["what"] for n in said["notes"]]), (2, ["crashed"]))
        found = self.consumer(said, "trial")
        self.assertEqual((found["attachments"], found["epochs"]), (2, 9))

    def test_a_running_daemon_can_be_verified(self):
        daemon = self.start()
        tap = self.tap(daemon, 5, "--name", "trial", "--hold-ms", "1")
        tap.wait_for("epoch_end", 2)
        wait_until(lambda: self.proven_epochs("trial") >= 2, what="a proof of two epochs")

    def test_two_daemons_do_not_write_one_ledger(self):
        self.start()
        second = self.launch_daemon("synthetic:13x8x8", "--ring", "16", "--ledger", self.ledger, name="second")
        self.assertEqual(second.wait(5), os.EX_TEMPFAIL)
        self.assertIn(f"ledger {self.ledger} is being written by another process", second.stderr())

    def test_a_file_that_is_no_ledger_is_left_alone(self):
        with open(self.ledger, "w") as f:
            f.write("the only copy")
        daemon = self.launch_daemon("synthetic:13x8x8", "--ring", "16", "--ledger", self.ledger)
        self.assertEqual(daemon.wait(5), os.EX_CANTCREAT)
        self.assertIn("is not a ledger", daemon.stderr())
        with open(self.ledger) as f:
            self.assertEqual(f.read(), "the only copy")

    def test_a_full_disk_costs_no_record_that_memory_can_keep(self):
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        self.ledger = os.path.join(disk, "ledger")
        wrapper = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=512k tmpfs "{disk}" && exec "$0" "$@"']
        if subprocess.run([*wrapper, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no mount namespace can be made here")
        daemon = self.start(wrapper=wrapper)
        seen = f"/proc/{daemon.pid}/root{disk}"
        with contextlib.suppress(OSError), open(f"{seen}/filling", "wb", buffering=0) as f:
            while f.write(bytes(4096)) == 4096:
                pass
        taps = [self.tap(daemon, batch, "--name", f"b{batch}", "--hold-ms", "1") for batch in (5, 7)]
        for _ in range(30):  # each leaves more than a hundred bytes
            self.tap(daemon, 1, "--name", "n" * 60, "--batches", "1").finish()
        wait_until(lambda: "No space left" in daemon.stderr(), what="a word about the full disk")
        os.unlink(f"{seen}/filling")
        wait_until(lambda: "can be written again; 0 records are lost" in daemon.stderr(), what="a word about the room")
        self.assertEqual(daemon.stderr().count("No space left"), 1)
        for tap in taps:
            tap.wait_for("epoch_end", len(tap.of_kind("epoch_end")) + 1)
        wait_until(lambda: self.consumer(self.verify(path=f"{seen}/ledger"), "b5")["epochs"] > 0, what="the proof")


class RestartTest(SystemTest):
    seconds = 120

    def test_four_kills_of_the_daemon_lose_no_sample_and_repeat_none(self):
        """Trainers that reconnect, a state, a ledger: what came and what the ledger proves are the same whole epochs."""
        seed = random.randrange(1 << 32)
        for number in range(repeats(2)):
            with self.subTest(seed=seed, round=number):
                self.one_round(random.Random(seed + number), f"restart{number}")

    def one_round(self, dice, name):
        ledger, state = (os.path.join(self.folder, name + end) for end in (".ledger", ".state"))

        def start():
            return self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--ring", "64", "--side-rings", "3", "--ledger", ledger,
                                     "--state", state, name=name)

        daemon = start()
        taps = [self.tap(daemon, batch, "--name", f"b{batch}", "--hold-ms", "3", "--epochs", "9", "--join", "catch-up",
                         "--reconnect-ms", "60000") for batch in (5, 7, 16)]
        for tap in taps:
            tap.attached()
        for _ in range(4):
            taps[0].wait_batches(taps[0].seen() + dice.randrange(1, 100))
            daemon.kill()
            daemon = start()
        for tap in taps:
            tap.finish()
            for number, epoch in tap.epochs().items():
                self.assertEqual(sorted(epoch.indices()), list(range(SAMPLES)), f"epoch {number} of {tap}")
        self.assertEqual(daemon.terminate(), 0)
        done = self.run_program(TSOCKETCTL, "verify", ledger, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


class ChaosTest(SystemTest):
    """Consumers of every kind come, pause, die and come back; what they printed agrees with what the ledger proves."""

    seconds = 180

    def test_whatever_they_do_the_ledger_proves_what_they_got(self):
        seed = random.randrange(1 << 32)
        for number in range(repeats(4)):
            with self.subTest(seed=seed, round=number):
                self.one_round(random.Random(seed + number), f"chaos{number}")

    def one_round(self, dice, name):
        ledger = os.path.join(self.folder, name + ".ledger")
        daemon = self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--ring", "64", "--ledger", ledger, "--max-hold", "100ms",
                                   "--side-rings", "3", "--epochs", "6", name=name)
        keeper = self.tap(daemon, 5, "--name", "keeper", "--hold-ms", "2")
        taps, tokens = [], []
        step = 0
        while keeper.seen() < 300:  # of 372: it is to be there to the end
            step += 1
            keeper.wait_batches(keeper.seen() + dice.randrange(1, 25))
            running = [tap for tap in taps if tap.running()]
            what = dice.choice(("join", "join", "resume", "stop", "kill", "end"))
            if what == "resume" and tokens:
                token, who = tokens.pop()
                taps.append(self.tap(daemon, dice.choice((5, 16)), "--name", who, "--resume", token, "--hold-ms", "1"))
                taps[-1].who = who
            elif what in ("join", "resume"):
                taps.append(self.tap(daemon, dice.choice((3, 7, 16)), "--join", dice.choice(("wait", "now", "catch-up")),
                                     "--name", f"c{step}", "--hold-ms", "1"))
                taps[-1].who = f"c{step}"
            elif running and what == "stop":
                victim = dice.choice(running)
                victim.stop()
                keeper.wait_batches(keeper.seen() + 40)
                victim.go_on()
            elif running and what == "kill":
                dice.choice(running).kill()
            elif running and what == "end":
                ended = dice.choice(running)
                ended.signal(signal.SIGTERM)
                ended.wait()
                wait_until(lambda tap=ended: tap.reader is None)
                tokens += [(e["token"], ended.who) for e in ended.of_kind("token") if hasattr(ended, "who")]
        keeper.finish()
        for tap in taps:
            tap.wait()
        self.assertEqual(daemon.wait(), 0)
        done = self.run_program(TSOCKETCTL, "verify", ledger, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
