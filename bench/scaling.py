#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What several cores make of the decode: by threads that do nothing else, and by tsocketd, from files to its ring.

    scaling.py BUILD FOLDER [--threads N] [--rounds N] [--seconds S]

Rounds of three take turns: one thread over files in memory, N threads over the same, and tsocketd with N decode threads
for a trainer that does nothing (bench/loader). Counted is the clock, so the machine should be idle.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

NAME = "scaling"


def printed(*args):
    return json.loads(subprocess.run(args, check=True, stdout=subprocess.PIPE).stdout)


def measure(a):
    loader = [f"{a.build}/bench/loader", "--shared", NAME, "--batch", "32", "--seconds", str(a.seconds)]
    decode = [f"{a.build}/bench/decode", "--json", "--rounds", "1", "--files", str(a.files), "--threads", str(a.threads)]
    for _ in range(a.rounds):
        threads = printed(*decode, a.folder)
        yield threads["one"], threads["all"], printed(*loader)["rate"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build")
    ap.add_argument("folder")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--files", type=int, default=2000)
    ap.add_argument("--seconds", type=float, default=2)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["TSOCKET_DIR"] = runtime
        daemon = subprocess.Popen([f"{a.build}/tsocketd", "-q", "--name", NAME, "--join-grace", "0", "--workers",
                                   str(a.threads), a.folder])
        try:
            one, threads, served = zip(*measure(a))
        finally:
            daemon.terminate()
            daemon.wait()
    print(f"images/s: one thread {statistics.median(one):.0f}, {a.threads} threads {statistics.median(threads):.0f}, "
          f"tsocketd with {a.threads} {statistics.median(served):.0f}")
    print(f"{a.threads} threads by one {statistics.median(t / o for o, t, _ in zip(one, threads, served)):.2f}, "
          f"tsocketd by the threads {statistics.median(s / t for _, t, s in zip(one, threads, served)):.2f}; load "
          f"{os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
