# SPDX-License-Identifier: Apache-2.0
"""Random schedules: trainers of all kinds that stop, die, come late and go on by token, under a daemon that dies as well.

A schedule is made from its number alone; what happens when is up to the machine.

    TSOCKET_SCHEDULES=FROM:TO      these, instead of the few that the tests run
"""
import os
import random
import shutil
import signal
import time
import unittest

from harness import SystemTest, repeats
from trainers import Run, verify

BATCHES = (1, 2, 3, 5, 7, 8, 13, 16)
SECONDS = 30  # that one may take
FOUND = (35, 142, 163, 613, 808, 861, 5320, 5480)  # these have found something


class Schedule:
    def __init__(self, test, number):
        self.test = test
        self.chance = random.Random(number)
        self.number = number
        self.samples = self.pick(53, 101, 211, 307)
        self.epochs = self.pick(2, 3)
        self.at_once = self.chance.randint(1, 3)
        self.late = self.chance.randint(1, 4)
        self.kills = self.pick(0, 0, 1, 2)  # of the daemon
        self.ledger = os.path.join(test.folder, "ledger")
        self.run = Run(test, self.args(), name="main")
        self.said = []
        self.proof = None  # what verify says at the end

    def pick(self, *what):
        return self.chance.choice(what)

    def args(self):
        args = [f"synthetic:{self.samples}x8x8", "--ring", str(self.pick(64, 96, 160)), "--max-batch", "16", "--epochs",
                str(self.epochs), "--workers", "2", "--seed", str(self.number), "--max-hold", self.pick("60ms", "250ms", "30s"),
                "--side-rings", str(self.pick(0, 1, 1, 2, 3)), "--ledger", self.ledger]
        if self.kills > 0: # all come back, and all in time
            args += ["--join-grace", "500ms", "--side-rings", str(self.pick(1, 2, 3))]
        if self.pick(True, False):
            args += ["--state", os.path.join(self.test.folder, "state")]
        return args

    def trainer(self, name, join=None, **more):
        last = more.pop("last", None) or self.pick("keep", "keep", "drop", "pad")
        join = join or self.pick("wait", "now", *(("catch-up",) * 2 if last != "drop" else ()))
        hold = self.pick(1, 1, 1, 2)
        options = ["--hold", str(hold), "--hold-ms", str(self.pick(0, 1, 1, 2, 3))]
        skips = "world" not in more and self.chance.random() < 0.1
        if skips:
            options += ["--on-lag", "skip", "--max-lag", "20"]
        trainer = self.run.add(name, more.pop("batch", None) or self.pick(*BATCHES), *options, join=join, last=last, **more)
        trainer.skips, trainer.hold = skips, hold
        trainer.can_resume = hold == 1 and last == "keep"
        return trainer

    def begin(self):
        self.ranks = self.chance.random() < 0.4
        args = self.run.args
        self.run.args = [*args, "--wait-for", str(self.at_once + 2 * self.ranks)]
        self.run.start_daemon()
        self.run.args = args
        if self.ranks:
            batch = self.pick(2, 4, 5, 8)
            for rank in range(2):
                self.trainer(f"rank{rank}", batch=batch, join="wait", last="keep", rank=rank, world=2)
        for i in range(self.at_once):
            self.trainer(f"first{i}", last=self.pick("keep", "drop", "pad"))

    def say(self, *what):
        self.said.append(what)

    def step(self):
        alive = [t for t in self.run.trainers if t.running()]
        what = self.chance.random()
        who = self.chance.choice(alive) if alive else None
        if what < 0.25 and self.late > 0:
            self.late -= 1
            self.say("late", self.trainer(f"late{self.late}"))
        elif what < 0.45 and who and who.tap not in self.run.stopped:
            pause = self.pick(0.01, 0.05, 0.1, 0.3)
            self.say("stop", who.name, pause)
            who.tap.stop()
            self.run.stopped[who.tap] = time.monotonic() + pause
        elif what < 0.52 and who and who.tap.seen() > 0:
            self.say("kill", who.name)
            who.kill()
        elif what < 0.65 and who and who.can_resume and who.tap.seen() > 0:
            self.say("resume", who.name)
            self.run.stopped.pop(who.tap, None)
            who.resume(who.batch if who.world > 1 else self.pick(*BATCHES))
        elif what < 0.72 and self.kills > 0 and self.run.daemon.running():
            self.kills -= 1
            self.say("daemon dies")
            self.run.daemon.kill()
        elif what < 0.78 and self.run.daemon.running() and self.run.daemon not in self.run.stopped:
            self.say("daemon stops")
            self.run.daemon.stop()
            self.run.stopped[self.run.daemon] = time.monotonic() + self.pick(0.01, 0.1, 0.2)

    def play(self):
        self.begin()
        for _ in range(self.chance.randint(10, 40)):
            self.run.look()
            if self.run.over:
                break
            self.step()
            time.sleep(self.chance.random() * 0.04)
        self.run.finish(SECONDS)
        self.check()

    def cannot_go_back(self, trainer):
        """It resumed where the ring had gone on, and there is no side ring for it: told so."""
        errors = trainer.tap.of_kind("error")
        return bool(errors) and "no side ring that is large enough" in errors[-1]["message"]

    def check(self):
        for trainer in self.run.trainers:
            if not trainer.killed and not trainer.came_too_late() and not self.cannot_go_back(trainer):
                self.test.assertEqual(trainer.tap.child.returncode, 0,
                                      f"{trainer}: {trainer.tap.of_kind('error')} {trainer.tap.stderr()[-500:]}")
        self.run.judge([self.samples - 64])
        self.run.end((-int(signal.SIGKILL),))
        ranks = [t for t in self.run.trainers if t.world > 1]
        begun = {tuple(e["epoch"] for e in t.events()[:1]) for t in ranks}
        allowed = ["skipped"] if any(t.skips for t in self.run.trainers) else []
        if any(t.killed or t.came_too_late() or self.cannot_go_back(t) for t in ranks) or len(begun) > 1:
            allowed.append("no_rank")
        self.proof = verify(self.test, self.ledger, allowed)
        if self.run.restarts == 0 and self.run.daemon.child.returncode != -signal.SIGKILL:
            self.check_ends()  # else the ledger lacks what its last second held

    def check_ends(self):
        """
        Who came to its end is nowhere in the middle, and has ended as many epochs as it saw end. (A tap that holds several
        does not give back the last ones.)
        """
        whole = {t.name: t for t in self.run.trainers
                 if t.hold == 1 and not t.killed and not t.came_too_late() and t.tap.child.returncode == 0}
        self.test.assertEqual([n for n in self.proof["notes"] if n["what"] in ("middle", "owed") and n["consumer"] in whole], [])
        for found in self.proof["consumers"]:
            if found["name"] in whole:
                ends = {e["epoch"] for e in whole[found["name"]].events() if e["event"] == "epoch_end"}
                self.test.assertEqual(found["epochs"], len(ends), f"{whole[found['name']]} in the ledger")


class SchedulesTest(SystemTest):
    seconds = 3600

    def numbers(self):
        wanted = os.environ.get("TSOCKET_SCHEDULES")
        return range(*map(int, wanted.split(":"))) if wanted else (*FOUND, *range(repeats(16)))

    def clear(self):
        complaints = self.look_around()
        self.kill_all()
        self.processes.clear()
        for name in ("ledger", "state"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.remove(os.path.join(self.folder, name))
        shutil.rmtree(self.runtime, ignore_errors=True)
        self.assertEqual(complaints, [])

    def test_whatever_happens_everybody_gets_everything_once(self):
        done = lost = 0
        for number in self.numbers():
            with self.subTest(schedule=number):
                schedule = None
                try:
                    schedule = Schedule(self, number)
                    schedule.play()
                    lost += sum(consumer["lost"] > 0 for consumer in schedule.proof["consumers"])
                except AssertionError as e:
                    raise AssertionError(f"schedule {number}: {schedule and schedule.run.args}\n{schedule and schedule.run.trainers}\n"
                                         f"{schedule and schedule.said}\n{e}") from None
                finally:
                    self.clear()
            done += 1
        print(f"{done} schedules, {lost} consumers that lost windows", flush=True)


if __name__ == "__main__":
    unittest.main()
