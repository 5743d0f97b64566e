# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at any time, and the interpreter's exit with everything still alive."""
import unittest

from pythontest import PythonTest

# A signal every millisecond lands between any two steps of the loop, of the loader, and of what finalizers there are.
INTERRUPTED = """
import signal, sys, tsocket
loader = tsocket.Loader("main", 5, hold=2)
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
places, batch = [], None
while len(places) < 20000:
    try:
        armed = True
        while len(places) < 20000:
            for batch in loader:
                kept = batch["image"].buffer()
                places.append((batch.epoch, batch.first))
        armed = False
    except KeyboardInterrupt:
        caught, kept = caught + 1, None
        if batch is not None and places[-1:] != [(batch.epoch, batch.first)]:
            places.append((batch.epoch, batch.first))  # it was handed out
signal.setitimer(signal.ITIMER_REAL, 0)
kept = batch = None
loader.flush()
print(loader.held)
loader.close()
print(sent == caught, sent > 50, swallowed)
follows = lambda a, b: b in ((a[0], a[1] + 5), (a[0] + 1, 0))
print([pair for pair in zip(places, places[1:]) if not follows(*pair)])
"""


class CtrlCTest(PythonTest):
    def test_nothing_is_lost_wherever_it_lands(self):
        self.start_daemon("synthetic:1000x2x2")
        output = self.python(INTERRUPTED).finish().splitlines()
        self.assertEqual(output, ["0", "True True []", "[]"])


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
