# SPDX-License-Identifier: Apache-2.0
"""Trainers that live through trouble, and what must hold for each of them afterwards.

A trainer is a job as its user sees it: one tap after the other, each of which goes on from the token of the one before.
What it got in all of them is one sequence, and that is what is judged: every sample of an epoch that it saw end exactly
once, and in each place the sample and the bytes that everybody else got there.
"""
import json
import os
import signal
import subprocess
import time

from harness import TSOCKETCTL, patient, wait_until

NOTHING_LEFT = 78  # a daemon with --state that has made all its epochs


class Trainer:
    def __init__(self, test, daemon, name, batch, *options, rank=0, world=1, join="catch-up", last="keep", step=()):
        self.test = test
        self.daemon = daemon
        self.name = name
        self.batch = batch
        self.rank, self.world = rank, world
        self.join, self.last = join, last
        self.options = ["--name", name, "--join", join, "--last", last, "--reconnect-ms", "30000", "--wait-ms", "20000",
                        *options]
        if world > 1:
            self.options += ["--shard", f"{rank}/{world}"]
        self.killed = self.missed = self.skips = False
        self.taps = [self.start(step=step)]

    def __repr__(self):
        return f"{self.name} (batch {self.batch}, rank {self.rank}/{self.world}, {self.join}, {self.last})"

    def start(self, *options, step=()):
        wrapper = ("env", f"TSOCKET_STEP={step}") if step else ()
        return self.test.tap(self.daemon, self.batch, *self.options, *options, wrapper=wrapper)

    @property
    def tap(self):
        return self.taps[-1]

    def running(self):
        return self.tap.running()

    def done(self):
        """Whether there will be nothing more of it; one whose daemon died while it opened tries again, as scripts do."""
        if self.tap.running() or self.tap.reader is not None:
            return False
        errors = self.tap.of_kind("error")
        if not self.killed and not self.missed and errors and errors[-1]["code"] == "GONE" and not self.tap.of_kind("attached"):
            self.taps.append(self.start(*self.token()))
            return False
        return True

    def token(self):
        tokens = [event["token"] for tap in self.taps for event in tap.of_kind("token")]
        return ("--resume", tokens[-1]) if tokens else ()

    def resume(self, batch):
        """It is told to end, and goes on with its token, in a process of its own."""
        self.tap.go_on()
        self.tap.signal(signal.SIGTERM)
        self.tap.wait()
        with self.tap.changed:
            self.tap.changed.wait_for(lambda: self.tap.reader is None, patient(5))
        if self.tap.child.returncode != 128 + signal.SIGTERM:
            return  # it had come to its end
        self.batch = batch
        self.taps.append(self.start(*self.token()))

    def lost_some(self):
        return any(tap.of_kind("elapsed") for tap in self.taps)

    def kill(self):
        self.killed = True
        self.tap.signal(signal.SIGKILL)

    def miss_it(self, once_more):
        """
        All is over: if it has not even begun, it waits for a daemon that will not come; so does one that was so slow that
        all was over with others, when its daemon had come back.
        """
        if not self.missed and self.tap.running() and (once_more or not self.tap.of_kind("attached")):
            self.missed = True
            self.tap.signal(signal.SIGKILL)

    def came_too_late(self):
        """For the last epoch, or for all."""
        errors = self.tap.of_kind("error")
        return self.missed or bool(errors) and ("has begun without this consumer" in errors[-1]["message"] or
                                                errors[-1]["code"] == "ENOTFOUND")

    def events(self):
        """What it got, in its order, without what was lost while it was held and came again."""
        kept = []
        for tap in self.taps:
            for _, event in tap.events:
                if event["event"] == "elapsed":
                    lost = [e for e in kept if e["event"] == "batch" and
                            (e["epoch"], e["first"]) == (event["epoch"], event["first"])]
                    kept.remove(lost[-1])
                elif event["event"] in ("batch", "epoch_end"):
                    kept.append(event)
        return kept


class Judge:
    """What all trainers of a run got, side by side."""

    def __init__(self, test, samples):
        self.test = test
        self.samples = samples
        self.index_at = {}
        self.hash_of = {}
        self.shares = {}  # (epoch, world, batch) -> {rank: places}, of ranks that saw it end
        self.ended = 0

    def hear(self, trainer):
        epochs, ends, ended = {}, [], []
        for event in trainer.events():
            if event["event"] == "batch":
                self.hear_batch(trainer, event, epochs.setdefault(event["epoch"], []))
            else:
                self.test.assertNotIn(event["epoch"], ends, f"{trainer}: two ends of one epoch")
                ends.append(event["epoch"])
                ended.append(event)
        for event in ended:  # now, since some of it may have been lost behind that, and have come again
            if not (trainer.killed and trainer.lost_some()):
                self.hear_end(trainer, event, epochs.get(event["epoch"], []), event is ended[0])
        self.test.assertEqual(ends, sorted(ends), f"{trainer}: epochs out of order")

    def hear_batch(self, trainer, batch, places):
        valid = batch.get("valid", batch["count"])
        for place, index in enumerate(batch["index"][:valid], batch["first"]):
            other, who = self.index_at.setdefault((batch["epoch"], place), (index, trainer))
            self.test.assertEqual(index, other, f"{trainer} and {who}: place {place} of epoch {batch['epoch']}, in {batch}")
            places.append(place)
        window = (batch["epoch"], batch["first"], valid, batch["count"])
        self.test.assertEqual(self.hash_of.setdefault(window, batch["hash"]), batch["hash"],
                              f"{trainer}: other bytes in {window}")

    def hear_end(self, trainer, end, places, is_first):
        what = f"{trainer}: epoch {end['epoch']}"
        self.ended += 1
        self.test.assertEqual(len(places), len(set(places)), f"{what}: twice {sorted(set(p for p in places if places.count(p) > 1))}")
        if trainer.world > 1:
            self.shares.setdefault((end["epoch"], trainer.world, trainer.batch), {})[trainer.rank] = set(places)
            return
        if trainer.skips:
            return
        missing = set(range(end["samples"])) - set(places)
        if is_first and trainer.join == "now":  # perhaps so late that not one whole window was left
            missing -= set(range(min(places, default=end["samples"] if trainer.last == "drop" else 0)))
        if trainer.last == "drop":
            missing -= set(range(max(places, default=-1) + 1, end["samples"])) if len(missing) < trainer.batch else set()
        self.test.assertEqual(missing, set(), f"{what}: missing")

    def check_shares(self):
        """Where all ranks saw an epoch end, they got all of it, and no sample twice."""
        for (epoch, world, _), shares in self.shares.items():
            if len(shares) < world:
                continue
            together = sorted(place for places in shares.values() for place in places)
            self.test.assertEqual(together, list(range(len(together))), f"ranks in epoch {epoch}")
            self.test.assertGreaterEqual(len(together), self.samples[0], f"ranks in epoch {epoch}")


def verify(test, path, allowed=()):
    """The ledger's own word for it. `allowed`: exceptions that the run was made to have."""
    done = subprocess.run([TSOCKETCTL, "verify", path, "--json"], capture_output=True, text=True, check=False)
    test.assertNotEqual(done.stdout, "", done.stderr)
    said = json.loads(done.stdout)
    left = [e for e in said["exceptions"] if e["what"] not in allowed]
    test.assertEqual(left, [], f"ledger {path}")
    return said


class Run:
    """A daemon that is started again when it dies, and its trainers."""

    def __init__(self, test, args, name="main"):
        self.test = test
        self.args = args
        self.name = name
        self.trainers = []
        self.daemon = None
        self.over = False  # it has ended by itself, in order
        self.told_to_end = False  # by a signal, once: that end is not its own
        self.restarts = 0
        self.stopped = {}  # process -> when it shall go on

    def start_daemon(self, step=""):
        wrapper = ("env", f"TSOCKET_STEP={step}") if step else ()
        self.daemon = self.test.launch_daemon(*self.args, name=self.name, wrapper=wrapper)

    def add(self, name, batch, *options, **more):
        trainer = Trainer(self.test, self.name, name, batch, *options, **more)
        self.trainers.append(trainer)
        return trainer

    def look(self, restart_args=None):
        """One look: a daemon that ended too early is replaced; who was stopped long enough goes on."""
        if not self.over and not self.daemon.running():
            status = self.daemon.child.returncode
            if status == 0 and self.told_to_end:
                self.told_to_end = False
                status = None
            if status in (0, NOTHING_LEFT) or all([t.done() for t in self.trainers]):
                self.over = True
                self.daemon.clean = status in (0, NOTHING_LEFT)
            else:
                self.daemon.clean = False
                self.args = restart_args if restart_args is not None else self.args
                self.restarts += 1
                self.start_daemon()
        if self.over:
            for trainer in self.trainers:
                trainer.miss_it(self.restarts > 0)
        for process, until in list(self.stopped.items()):
            if time.monotonic() >= until:
                process.go_on()
                del self.stopped[process]

    def finish(self, seconds, restart_args=None):
        """Until all trainers have ended."""
        end = time.monotonic() + patient(seconds)
        while not all([t.done() for t in self.trainers]):
            self.look(restart_args)
            if time.monotonic() > end:
                raise AssertionError(self.describe())
            time.sleep(0.005)

    def end(self, expected=()):
        """All have ended: so does the daemon, at the latest when it is told to. (One that has just been started again would
        be killed by the signal, with what the one before left.)"""
        self.daemon.go_on()
        try:
            wait_until(lambda: not self.daemon.running() or self.test.ctl("status", self.name, check=False).returncode == 0,
                       what="the daemon's start or end")
        except AssertionError as e:
            raise AssertionError(f"{e}: state {self.daemon.state()}, {self.daemon.stderr()[-3000:]}") from None
        self.daemon.signal(signal.SIGTERM)
        self.test.assertIn(self.daemon.wait(10), (0, NOTHING_LEFT, *expected), self.daemon.stderr()[-2000:])

    def describe(self):
        status = self.test.ctl("status", self.name, "--json", check=False).stdout
        lines = [f"{t}: {len(t.taps)} taps, running {t.running()}, last {[e for _, e in t.tap.events][-1:]}, "
                 f"{t.tap.stderr()[-600:]}" for t in self.trainers if not t.done()]
        return "\n".join(["not done in time:", *lines, status, self.daemon.stderr()[-3000:]])

    def judge(self, samples):
        judge = Judge(self.test, samples)
        for trainer in self.trainers:
            judge.hear(trainer)
        judge.check_shares()
        return judge
