# SPDX-License-Identifier: Apache-2.0
"""Whoever is killed, stopped or told to end at whatever step of the protocol: the others get everything exactly once.

The steps are those of src/ipc/step.h, in a build with TSOCKET_STEPS=ON. In each run one process of a daemon and four
trainers (two of them the ranks of one job) gets a signal when it passes a step; a daemon that is gone is started again.

    TSOCKET_SWEEP=NAME     only that step
"""
import os
import random
import re
import shutil
import signal
import time
import unittest

from harness import SCALE, SOURCE, SystemTest, patient
from trainers import Run, verify

SAMPLES = 307
EPOCHS = 3
STEPS = re.findall(r"X\((\w+), (daemon|consumer)\)", open(os.path.join(SOURCE, "src", "ipc", "step.h"), encoding="utf-8").read())
OFTEN = {"CLAIMED": 150, "COMMITTED": 150, "PUBLISHED": 100, "WANT_ANSWERED": 20, "RELEASE_HEARD": 20, "GIVEN": 12,
         "RELEASED": 6, "RELEASE_TOLD": 6,  "EPOCH_DECIDED": 2, "EPOCH_BEGUN": 2}
ONE_OF_MANY = {"GREETED", "HELLO_HEARD", "ATTACHED", "MEMORY_SENT", "WELCOMED"}  # at any of those who come
AFTER_A_RESTART = {"GONE_NOTICED", "CAME_BACK"}  # passed by trainers whose daemon was killed

KILL, TERM, SHORT, LONG = "SIGKILL", "SIGTERM", "a short SIGSTOP", "a long SIGSTOP"
HOWS = {KILL: (signal.SIGKILL, None), TERM: (signal.SIGTERM, None), SHORT: (signal.SIGSTOP, 0.1), LONG: (signal.SIGSTOP, 0.6)}
MAX_HOLD = "250ms"  # between the two


def daemon_runs(run):
    return run.daemon.running() or not run.over


class SweepTest(SystemTest):
    seconds = 600

    def args(self):
        return ("synthetic:%dx8x8" % SAMPLES, "--ring", "64", "--max-batch", "16", "--epochs", str(EPOCHS), "--workers", "2",
                "--max-hold", MAX_HOLD, "--side-rings", "2", "--seed", "7", "--ledger", self.path("ledger"), "--state",
                self.path("state"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def sweep_one(self, step, side, how, chance):
        number, pause_s = HOWS[how]
        count = chance.randint(1, OFTEN.get(step, 4 if step in ONE_OF_MANY else 1))
        wish = f"{step}:{count}:{int(number)}"
        run = Run(self, (*self.args(), "--wait-for", "3"), name="sweep")
        run.start_daemon(wish if side == "daemon" else "")
        run.told_to_end = how == TERM and side == "daemon"
        first = run.add("first", 5, "--hold-ms", "3")
        for rank in range(2):
            run.add(f"rank{rank}", 4, rank=rank, world=2, join="wait")
        victim = self.live(run, first, wish if side == "consumer" else "", number, pause_s)
        dead = victim if how in (KILL, TERM) and side == "consumer" else None
        self.check(run, dead, wish, how)

    def live(self, run, first, wish, number, pause_s):
        """The victim comes late, so that it passes all steps of reading elsewhere."""
        victim = late = dying = all_done = None
        end = time.monotonic() + patient(float(os.environ.get("TSOCKET_SWEEP_SECONDS", "30")))
        daemon = run.daemon
        while True:
            if not all([t.done() for t in run.trainers]) or victim is None:
                all_done = None
            elif not daemon_runs(run) or time.monotonic() > (all_done or time.monotonic()) + 2:
                break
            else:
                all_done = all_done or time.monotonic()
            if time.monotonic() > end:
                raise AssertionError(run.describe())
            if victim is None and first.tap.seen() >= 10:
                victim = late = run.add("victim", 6, "--hold-ms", "1", step=wish)
            if victim is None and run.over:
                break
            if wish.split(":")[0] in AFTER_A_RESTART and victim is not None and dying is None and victim.tap.seen() >= 5:
                dying = run.daemon
                dying.kill()
            process = victim.tap if wish and victim else daemon
            if pause_s and process not in run.stopped and process.running() and process.state() == "T":
                run.stopped[process] = time.monotonic() + pause_s
                self.happened = True
            if wish and late is not None and not late.running() and number != signal.SIGSTOP:
                late.killed, late = True, None
                self.happened = victim.tap.child.returncode in (-number, 128 + number)
            if not daemon.running() and not wish and daemon.child.returncode == -number:
                self.happened = True
            run.look(self.args())
            time.sleep(0.002)
        return victim

    def check(self, run, dead, wish, how):
        for trainer in run.trainers:
            if trainer is dead or trainer.came_too_late():
                continue
            self.assertEqual(trainer.tap.child.returncode, 0, f"{trainer}: {trainer.tap.of_kind('error')} {trainer.tap.stderr()}")
            ends = [e["epoch"] for e in trainer.events() if e["event"] == "epoch_end"]
            self.assertEqual(ends, list(range(ends[0], EPOCHS)), trainer)
        run.judge([SAMPLES])
        run.end((-int(HOWS[how][0]),))
        self.reached += self.happened
        ranks = [[e["epoch"] for e in trainer.events()][:1] for trainer in run.trainers if trainer.world > 1]
        verify(self, self.path("ledger"), () if ranks[0] == ranks[1] else ("no_rank",))

    def clear(self):
        """As after a test: nothing is left. What a killed daemon left has been swept by the one after it."""
        complaints = self.look_around()
        self.kill_all()
        self.processes.clear()
        for name in ("ledger", "state"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        shutil.rmtree(self.runtime, ignore_errors=True)
        self.assertEqual(complaints, [])

    def sweep(self, how):
        chance = random.Random(os.environ.get("TSOCKET_SWEEP_SEED", how))
        runs = self.reached = 0
        for step, side in STEPS:
            if os.environ.get("TSOCKET_SWEEP", step) != step or chance.random() > max(SCALE * 2, 0.25):
                continue
            with self.subTest(step=step, how=how):
                self.happened = False
                try:
                    self.sweep_one(step, side, how, chance)
                finally:
                    self.clear()
            runs += 1
        print(f"{how} at {runs} steps, {self.reached} seen", flush=True)
        if how != TERM:  # an end by SIGTERM may look like any other; and not every run passes every step
            self.assertGreaterEqual(self.reached, runs * 3 // 4)

    def test_sigkill_at_any_step(self):
        self.sweep(KILL)

    def test_sigterm_at_any_step(self):
        self.sweep(TERM)

    def test_a_stop_at_any_step(self):
        self.sweep(SHORT)

    def test_a_stop_for_longer_than_max_hold_at_any_step(self):
        self.sweep(LONG)


if __name__ == "__main__":
    unittest.main()
