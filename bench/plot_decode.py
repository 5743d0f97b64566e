#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/decode measures on several folders as one SVG.

    plot_decode.py DECODE FILE.svg [--rounds N] [--files N] FOLDER...
"""
import argparse
import json
import os
import subprocess

import chart

SERIES = ("entropy", "plain", "exact", "fast", "float32")


def measure(a, folder):
    args = [a.decode, "--json", "--rounds", str(a.rounds), "--files", str(a.files), "--only", ",".join(SERIES), folder]
    done = json.loads(subprocess.run(args, check=True, stdout=subprocess.PIPE).stdout)
    return {v["name"]: v for v in done["variants"]}


def label(folder):
    """What tells the sets of make_photos.sh apart: the folder above `train`."""
    path = os.path.abspath(folder)
    return os.path.basename(os.path.dirname(path) if os.path.basename(path) == "train" else path)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("decode")
    ap.add_argument("out")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--files", type=int, default=200)
    ap.add_argument("folders", nargs="+")
    a = ap.parse_args()
    found = [measure(a, folder) for folder in a.folders]

    def panel(title, unit, key):
        return chart.Panel(title, unit, [[by_name[name][key] for by_name in found] for name in SERIES])

    panels = (panel("Rate", "images/s of one core", "images_per_s"),
              panel("Beside entropy decoding alone", "share of its rate", "by_entropy"))
    subtitle = f"medians of {a.rounds} interleaved rounds, up to {a.files} files of each folder"
    with open(a.out, "w", encoding="utf-8") as f:
        f.write(chart.svg("Decoding, one random crop of each picture", subtitle, "", [label(d) for d in a.folders], SERIES,
                          panels))


if __name__ == "__main__":
    main()
