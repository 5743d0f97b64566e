# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and other signals at any time, and the interpreter's exit with everything still alive."""
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
got, item, total = [], None, int(sys.argv[3])
seen, pause = 0, 0.001
while len(got) < total:
    try:
        armed = True
        while len(got) < total:
            for item in loader:
                kept = item["index"].buffer() if sys.argv[1] == "tsocket" else None
                got.append(item)
        armed = False
    except KeyboardInterrupt:
        caught, kept = caught + 1, None
        if item is not None and (not got or got[-1] is not item):
            got.append(item)  # it was handed out
        if sys.argv[2] == "resumed":
            state = loader.state_dict()
            signal.setitimer(signal.ITIMER_REAL, 0)  # or attaching would be interrupted again and again
            loader.load_state_dict(state)
            pause = 0.001 if len(got) > seen else 1.2 * pause  # a slow machine would begin the same batch for ever
            seen = len(got)
            signal.setitimer(signal.ITIMER_REAL, pause, 0.00107)
signal.setitimer(signal.ITIMER_REAL, 0)
print(sent == caught, sent > total // 200, swallowed)
if sys.argv[1] == "tsocket":
    places = [(batch.epoch, batch.first) for batch in got]
    follows = lambda a, b: b in ((a[0], a[1] + 5), (a[0] + 1, 0))
    print([pair for pair in zip(places, places[1:]) if not follows(*pair)])
    del got, item, kept
    loader.flush()
    print(loader.held)
else:
    got = [tensors[0].tolist() for tensors in got]
    print([n for n in range(0, total, 200) if sorted(sum(got[n:n + 200], [])) != list(range(1000))])
loader.close()
"""


# Tensors that come from a pool and go back to it all the time.
POOLED = """
import signal, sys, tsocket.torch
loader = tsocket.torch.Loader("main", 5, fields=["image"])
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
while sent < 2000:
    try:
        armed = True
        for _ in loader:
            pass
        armed = False
    except KeyboardInterrupt:
        caught += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(sent == caught, swallowed)
loader.close()
"""


class CtrlCTest(PythonTest):
    def interrupted(self, *arguments):
        self.start_daemon("synthetic:1000x2x2")
        return self.python(INTERRUPTED, *arguments).finish().splitlines()

    def test_nothing_is_lost_wherever_it_lands(self):
        self.assertEqual(self.interrupted("tsocket", "same", "10000"), ["True True []", "[]", "0"])

    def test_the_state_is_that_of_what_was_handed_out(self):
        self.assertEqual(self.interrupted("tsocket", "resumed", "400"), ["True True []", "[]", "0"])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_nothing_is_lost_while_tensors_are_made(self):
        self.assertEqual(self.interrupted("tsocket.torch", "same", "10000"), ["True True []", "[]"])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_the_state_is_that_of_the_tensors_handed_out(self):
        self.assertEqual(self.interrupted("tsocket.torch", "resumed", "400"), ["True True []", "[]"])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_no_finalizer_of_a_tensor_swallows_it(self):
        self.start_daemon("synthetic:1000x2x2")
        self.assertEqual(self.python(POOLED).finish(), "True []\n")


HANDLED = """
import signal, sys, tsocket

def loader():
    made = tsocket.Loader("main", 5)
    return made, made.state_dict, lambda: next(iter(made))

def producer():
    made = tsocket.Producer([([i],) for i in range(100)], "other", fields=["index"])
    return made, lambda: made.epoch, made.serve

def map_producer():
    made = tsocket.MapProducer([(i, i) for i in range(100)], "other")
    return made, lambda: made.name, made.serve

made, look, wait = globals()[sys.argv[1]]()
signals = 0

def handle(*_):
    global signals
    signals += 1
    look()
    if signals == 5:
        signal.setitimer(signal.ITIMER_REAL, 0)
        made.close()

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
try:
    wait()
except tsocket.Invalid as error:
    assert "closed" in str(error)
print(signals)
"""


class HandlerTest(PythonTest):
    def test_a_handler_may_use_what_it_has_come_into(self):
        self.start_daemon("synthetic:13x8x8", "--wait-for", "2")
        for what in ("loader", "producer", "map_producer"):
            with self.subTest(what):
                self.assertEqual(self.python(HANDLED, what).finish(), "5\n")

    def test_the_state_may_be_taken_in_a_handler_at_any_time(self):
        self.start_daemon("synthetic:1000x2x2")
        child = self.python("""
import signal, tsocket
loader = tsocket.Loader("main", 5, fields=["index"])
states = []
signal.signal(signal.SIGALRM, lambda *_: states.append(loader.state_dict()["token"]))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.00107)
places = []
while len(states) < 1000:
    places += [(batch.epoch, batch.first) for batch in loader]
signal.setitimer(signal.ITIMER_REAL, 0)
print([pair for pair in zip(places, places[1:]) if pair[1] not in ((pair[0][0], pair[0][1] + 5), (pair[0][0] + 1, 0))])
loader.close()
""")
        self.assertEqual(child.finish(), "[]\n")


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
