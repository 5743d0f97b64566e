# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one module; exit status 77 where it needs a module that is not installed.

    run.py test_NAME [NAME-OF-A-TEST...]
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(SOURCE, "tests", "system"), os.path.join(SOURCE, "python")]

try:
    __import__(sys.argv[1])
except ModuleNotFoundError as error:
    if error.name not in ("numpy", "torch"):
        raise
    print(f"{error.name} is not installed", file=sys.stderr)
    sys.exit(77)
unittest.main(module=sys.argv[1], argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
