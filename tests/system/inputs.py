# SPDX-License-Identifier: Apache-2.0
"""The tricky inputs of ../make_inputs.py, made once per build folder."""
import functools
import json
import os
import shutil
import subprocess
import sys

from harness import BUILD, SOURCE

INPUTS = os.path.join(BUILD, "tests", "inputs")


@functools.lru_cache
def expected():
    """What make_inputs.py says about its own files; makes them if they are not there."""
    path = os.path.join(INPUTS, "expected.json")
    if not os.path.exists(path):
        make()
    with open(path) as f:
        return json.load(f)


def make():
    """Into a folder of our own first, so that two tests that start together do not meet."""
    mine = f"{INPUTS}.{os.getpid()}"
    maker = os.path.join(SOURCE, "tests", "make_inputs.py")
    subprocess.run([sys.executable, maker, mine, "--only", "images,folders"], check=True, stdout=subprocess.DEVNULL)
    try:
        os.rename(mine, INPUTS)
    except OSError:
        shutil.rmtree(mine)


def input_path(relative):
    expected()
    return os.path.join(INPUTS, relative)
