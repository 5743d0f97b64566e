#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How soon trainers read on when one of them or the daemon is killed.

    recovery.py BUILD [--times N] [--json]

one of three is killed      while it holds a batch, and the two others wait because the ring is full: from SIGKILL to their
                            next batch, of the later one
the daemon is killed        while a trainer waits in next, until it is told so
the daemon comes back       killed and started again at once: until all of three trainers, which reconnect, have a batch again

The trainers are processes, with the Python package, and write the time of each batch into a pipe. The machine should be
idle: with its cores busy, what is measured is the scheduler.
"""
import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import tempfile
import time

import tsocket

NAME = "recovery"
SETTLE_S = 0.5  # until the trainers are where they are to be
SOURCE = "synthetic:100000x8x8"


class Daemon:
    def __init__(self, build, state):
        self.command = [f"{build}/tsocketd", "-q", "--name", NAME, "--ring", "64", "--max-batch", "16", "--max-hold", "0",
                        "--join-grace", "0", "--state", state, SOURCE]
        self.start()

    def start(self):
        self.child = subprocess.Popen(self.command)

    def kill(self):
        at = time.monotonic()
        self.child.kill()
        self.child.wait()
        return at

    def stop(self):
        self.child.terminate()
        self.child.wait()


class Trainer:
    """Its process writes the time of each batch; after `stop_at` batches it holds the last and reads no further."""

    def __init__(self, stop_at=None, reconnect=0.0):
        self.pipe, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            self.work(out, stop_at, reconnect)
        os.close(out)
        os.set_blocking(self.pipe, False)

    @staticmethod
    def work(out, stop_at, reconnect):
        if reconnect:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it would say each time that the daemon has died
        try:
            loader = tsocket.Loader(NAME, batch_size=8, hold=1, join="now", reconnect=reconnect, timeout=10,
                                    connect_timeout=10)
            while True:
                for n, _ in enumerate(loader, 1):
                    os.write(out, struct.pack("d", time.monotonic()))
                    if n == stop_at:
                        signal.pause()
        except tsocket.Gone:
            os.write(out, struct.pack("d", time.monotonic()))
        finally:
            os._exit(0)

    def times(self):
        """Of the batches since the last call."""
        data = b""
        while True:
            try:
                more = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                break
            if not more:
                break
            data += more
        return [t for t, in struct.iter_unpack("d", data)]

    def first_after(self, since):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for t in self.times():
                if t > since:
                    return t - since
            time.sleep(0.002)
        raise SystemExit("recovery.py: a trainer got nothing for 20 s")

    def kill(self):
        at = time.monotonic()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return at

    def end(self):
        self.kill()
        os.close(self.pipe)


def one_of_three(build, folder):
    daemon = Daemon(build, f"{folder}/one")
    others = [Trainer(), Trainer()]
    victim = Trainer(stop_at=20)
    time.sleep(SETTLE_S)
    killed = victim.kill()
    took = max(other.first_after(killed) for other in others)
    for other in others:
        other.end()
    daemon.stop()
    return took


def the_daemon(build, folder):
    daemon = Daemon(build, f"{folder}/two")
    holder, waits = Trainer(stop_at=20), Trainer()
    time.sleep(SETTLE_S)
    took = waits.first_after(daemon.kill())
    holder.end()
    waits.end()
    return took


def back(build, folder):
    daemon = Daemon(build, f"{folder}/three")
    trainers = [Trainer(reconnect=20) for _ in range(3)]
    time.sleep(SETTLE_S)
    killed = daemon.kill()
    daemon.start()
    took = max(trainer.first_after(killed) for trainer in trainers)
    for trainer in trainers:
        trainer.end()
    daemon.stop()
    return took


CASES = (("one of three is killed: the others' next batch", one_of_three),
         ("the daemon is killed: a waiting trainer knows", the_daemon),
         ("the daemon is killed and started again: all three train", back))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build")
    ap.add_argument("--times", type=int, default=20)
    ap.add_argument("--json", action="store_true")
    a = ap.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TSOCKET_DIR"] = folder
        for name, case in CASES:
            took = sorted(1000 * case(a.build, folder) for _ in range(a.times))
            results.append({"case": name, "times": a.times, "median_ms": round(statistics.median(took), 1),
                            "longest_ms": round(took[-1], 1)})
    load = round(os.getloadavg()[0], 1)
    if a.json:
        print(json.dumps({"load": load, "cases": results}))
        return
    for r in results:
        print(f"{r['case']:<57} median {r['median_ms']:6.1f} ms, longest {r['longest_ms']:6.1f} ms of {r['times']}")
    print(f"load {load}")


if __name__ == "__main__":
    main()
