# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at any time, and the interpreter's exit with everything still alive."""
import importlib.util
import unittest

from pythontest import PythonTest

# A signal every millisecond lands between any two steps of the loop, of the loader, and of what finalizers there are.
INTERRUPTED = """
import importlib, signal, sys
loader = importlib.import_module(sys.argv[1]).Loader("main", 5, hold=2, fields=["index"])
armed, sent, caught, swallowed = False, 0, 0, []

def strike(*_):
    global armed, sent
    if armed:
        armed = False
        sent += 1
        raise KeyboardInterrupt

sys.unraisablehook = lambda what: swallowed.append(repr(what.exc_value))
signal.signal(signal.SIGALRM, strike)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.00107)
got, item = [], None
while len(got) < 10000:
    try:
        armed = True
        while len(got) < 10000:
            for item in loader:
                kept = item["index"].buffer() if sys.argv[1] == "tsocket" else None
                got.append(item)
        armed = False
    except KeyboardInterrupt:
        caught, kept = caught + 1, None
        if item is not None and (not got or got[-1] is not item):
            got.append(item)  # it was handed out
signal.setitimer(signal.ITIMER_REAL, 0)
print(sent == caught, sent > 50, swallowed)
if sys.argv[1] == "tsocket":
    places = [(batch.epoch, batch.first) for batch in got]
    follows = lambda a, b: b in ((a[0], a[1] + 5), (a[0] + 1, 0))
    print([pair for pair in zip(places, places[1:]) if not follows(*pair)])
    del got, item, kept
    loader.flush()
    print(loader.held)
else:
    got = [tensors[0].tolist() for tensors in got]
    print([n for n in range(0, 10000, 200) if sorted(sum(got[n:n + 200], [])) != list(range(1000))])
loader.close()
"""


class CtrlCTest(PythonTest):
    def test_nothing_is_lost_wherever_it_lands(self):
        self.start_daemon("synthetic:1000x2x2")
        self.assertEqual(self.python(INTERRUPTED, "tsocket").finish().splitlines(), ["True True []", "[]", "0"])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_nothing_is_lost_while_tensors_are_made(self):
        self.start_daemon("synthetic:1000x2x2")
        self.assertEqual(self.python(INTERRUPTED, "tsocket.torch").finish().splitlines(), ["True True []", "[]"])


AT_EXIT = {
    "a batch alive": "kept = next(iter(loader))",
    "an error on its way": "for batch in loader: kept = batch['image'].memoryview(); raise SystemExit(0)",
    "a cycle": "cycle = [loader, next(iter(loader))]; cycle.append(cycle); del loader, cycle; gc.collect()",
    "a finalizer that reads": "User(loader); gc.collect()"}

EXITING = """
import gc, sys, tsocket

class User:
    def __init__(self, loader):
        self.loader, self.me = loader, self
        self.array = next(iter(loader))["image"].memoryview()

    def __del__(self):
        assert len(self.array.tobytes()) == 5 * 12

def function():
    return loader

loader = tsocket.Loader("main", 5)
exec(sys.argv[1])
"""


class ExitTest(PythonTest):
    def test_whatever_is_alive_or_garbage(self):
        self.start_daemon("synthetic:1000x2x2")
        for what, code in AT_EXIT.items():
            with self.subTest(what):
                child = self.python(EXITING, code)
                self.assertEqual((child.finish(), child.stderr().strip()), ("", ""))


if __name__ == "__main__":
    unittest.main()
