#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long time with trainers that come, crash, pause and go all the time; at the end the ledger is verified.

    tests/soak.py BUILD [SECONDS [SEED]]        1800 s by default; not part of the tests

Prints a line a minute: resident memory and descriptors of the daemon, and what has happened so far. Fails if the ledger
is not proven, if the daemon's memory or descriptors grew, or if anything is left.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TRAINERS = 8
BATCHES = (1, 2, 3, 5, 7, 8, 13, 16)
GROWTH_KIB = 1024  # of the daemon's memory, from the end of the first quarter on


class Soak:
    def __init__(self, build, seconds, seed):
        self.build = build
        self.seconds = seconds
        self.chance = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="tsocket-soak-")
        self.environment = dict(os.environ, TSOCKET_DIR=os.path.join(self.folder, "run"))
        self.ledger = os.path.join(self.folder, "ledger")
        self.alive = []
        self.asleep = []  # (until, name, token): gone with a token, to come back
        self.counts = dict.fromkeys(("came", "crashed", "stopped", "left", "resumed", "ended"), 0)
        self.samples = []
        self.daemon = None

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name):
        return os.path.join(self.build, name)

    def start(self):
        with open(self.path("log"), "ab") as log:
            self.daemon = subprocess.Popen(
                [self.program("tsocketd"), "--name", "soak", "synthetic:503x16x16", "--ring", "128", "--max-batch", "16",
                 "--max-hold", "300ms", "--side-rings", "3", "--max-crashes", "0", "--workers", "2", "--ledger", self.ledger,
                 "--join-grace", "0"], env=self.environment, stdout=log, stderr=log)

    def come(self, name=None, token=None):
        self.counts["resumed" if token else "came"] += 1
        name = name or f"trainer{self.counts['came']}"
        join = self.chance.choice(("wait", "now", "catch-up", "catch-up"))
        args = [self.program("tsocketctl"), "tap", "soak", "--batch", str(self.chance.choice(BATCHES)), "--name", name, "--join",
                join, "--hold-ms", str(self.chance.choice((1, 2, 5, 10))), "--wait-ms", "10000", "--epochs",
                str(self.chance.choice((0, 0, 2, 5)))]
        output = open(self.path(name), "w+b")
        child = subprocess.Popen(args + (["--resume", token] if token else []), env=self.environment, stdout=output,
                                 stderr=subprocess.DEVNULL)
        self.alive.append((name, child, output))

    def last_line(self, output):
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - 4096))
        lines = output.read().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def bury(self, trainer):
        name, child, output = trainer
        child.wait(timeout=30)
        output.close()
        os.remove(self.path(name))
        self.alive.remove(trainer)

    def reap(self):
        for trainer in list(self.alive):
            name, child, output = trainer
            if child.poll() is None:
                continue
            if child.returncode not in (0, 128 + signal.SIGTERM, -signal.SIGKILL):
                raise AssertionError(f"{name} ended with {child.returncode}: {self.last_line(output)}")
            self.counts["ended"] += child.returncode == 0
            self.bury(trainer)

    def leave(self, trainer, comes_back):
        name, child, output = trainer
        child.send_signal(signal.SIGCONT)
        child.send_signal(signal.SIGTERM)
        child.wait(timeout=30)
        line = self.last_line(output)
        self.bury(trainer)
        self.counts["left"] += 1
        if comes_back and line.get("event") == "token":
            self.asleep.append((time.monotonic() + self.chance.random() * 5, name, line["token"]))

    def step(self):
        what = self.chance.random()
        if self.asleep and time.monotonic() > self.asleep[0][0]:
            self.come(*self.asleep.pop(0)[1:])
        elif len(self.alive) < TRAINERS and what < 0.4 or not self.alive:
            self.come()
        elif what < 0.55:
            trainer = self.chance.choice(self.alive)
            trainer[1].kill()
            self.bury(trainer)
            self.counts["crashed"] += 1
        elif what < 0.7:
            self.leave(self.chance.choice(self.alive), self.chance.random() < 0.7)
        elif what < 0.85:
            self.chance.choice(self.alive)[1].send_signal(signal.SIGSTOP)
            self.counts["stopped"] += 1
        else:
            self.chance.choice(self.alive)[1].send_signal(signal.SIGCONT)

    def memory_kib(self):
        with open(f"/proc/{self.daemon.pid}/smaps_rollup", encoding="ascii") as f:
            values = {line.split(":")[0]: int(line.split()[1]) for line in f if line.endswith("kB\n")}
        return values["Rss"]

    def measure(self, begun):
        """With nobody there, so that what is measured is what stays."""
        for trainer in list(self.alive):
            self.leave(trainer, True)
        time.sleep(1.5)
        self.samples.append((round(time.monotonic() - begun), self.memory_kib(), len(os.listdir(f"/proc/{self.daemon.pid}/fd"))))
        print("%5d s: %6d KiB, %3d descriptors; %s" % (*self.samples[-1], self.counts), flush=True)

    def run(self):
        self.start()
        begun = time.monotonic()
        measured = begun
        while time.monotonic() < begun + self.seconds:
            if self.daemon.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.daemon.returncode}")
            self.reap()
            self.step()
            if time.monotonic() > measured + min(60, self.seconds / 8):
                measured = time.monotonic()
                self.measure(begun)
            time.sleep(self.chance.random() * 0.4)
        self.measure(begun)
        self.check()

    def check(self):
        self.daemon.terminate()
        assert self.daemon.wait(timeout=10) == 0
        done = subprocess.run([self.program("tsocketctl"), "verify", self.ledger, "--json"], capture_output=True, text=True, check=False)
        said = json.loads(done.stdout)
        print(f"verify: {said['proven']}, {len(said['consumers'])} consumers, {sum(c['epochs'] for c in said['consumers'])} epochs, "
              f"{sum(c['samples'] for c in said['consumers'])} samples, {os.path.getsize(self.ledger)} bytes", flush=True)
        print(json.dumps(said["exceptions"][:10], indent=1))
        assert said["proven"]
        early = self.samples[len(self.samples) // 4]
        assert self.samples[-1][1] <= early[1] + GROWTH_KIB, self.samples
        assert self.samples[-1][2] <= early[2], self.samples
        assert not os.path.exists(self.environment["TSOCKET_DIR"]) or not os.listdir(self.environment["TSOCKET_DIR"])


def main():
    soak = Soak(os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1800, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    try:
        soak.run()
    except BaseException:
        print(f"what it left is in {soak.folder}", flush=True)
        raise
    finally:
        for _, child, _ in soak.alive:
            child.kill()
        if soak.daemon.poll() is None:
            soak.daemon.kill()
    shutil.rmtree(soak.folder)


if __name__ == "__main__":
    main()
