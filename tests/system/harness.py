# SPDX-License-Identifier: Apache-2.0
"""What the system tests stand on: real daemons, real consumers, and a look around after each test.

    class ... (SystemTest)
        daemon = self.start_daemon("synthetic:13x8x8", "--epochs", "2")     ready when this returns
        tap = self.tap(daemon, batch=5)                                     a `tsocketctl tap` process
        tap.finish()                                                        its exit status is 0, all lines are read
        self.assert_whole_epochs(tap, samples=13, batch=5, epochs=range(2))

Every test has a runtime folder of its own and a time after which it fails, wherever it stands. When it is over, the
harness stops the daemons that still run and then looks for what may not be left: processes, files in the runtime
folder, names in /dev/shm, descriptors that a living daemon opened for consumers which are gone, and any word of a
sanitizer. test_harness.py proves that each of these is noticed.

Nothing here sleeps for a fixed time: what is waited for is looked at until it holds or its time is up.

    TSOCKET_BUILD        where tsocketd and tsocketctl are; default: build/ of the source tree
    TSOCKET_TEST_SCALE   share of the repeats to run, 1 by default. Less than 1 also means that the programs are slow
                         (sanitizers), so waiting gets more patient by as much.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.abspath(os.environ.get("TSOCKET_BUILD", os.path.join(SOURCE, "build")))
TSOCKETD = os.path.join(BUILD, "tsocketd")
TSOCKETCTL = os.path.join(BUILD, "tsocketctl")
SCALE = float(os.environ.get("TSOCKET_TEST_SCALE", "1"))
PATIENCE = min(max(1.0, 1.0 / SCALE), 4.0)
SHM = "/dev/shm"
OTHERS_SHM = ("torch_", "sem.mp-", "psm_")  # of Python programs that run at the same time

# For tests that are two users, which only root can be: nobody, and the words that make a command its.
OTHER_UID = 65534
OTHER_USER = ("setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups")


def repeats(times):
    """How often to do what the test wants to do `times` times."""
    return max(2, round(times * SCALE))


def patient(seconds):
    """A time limit, for programs as slow as these may be."""
    return seconds * PATIENCE


def wait_until(condition, seconds=10, what="the condition"):
    """Looks until condition() is true and returns its value."""
    end = time.monotonic() + patient(seconds)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {patient(seconds):g} s")
        time.sleep(0.002)


def processes_with(variable, value):
    """Numbers of the living processes that were started with this environment variable."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if wanted in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Process:
    """A program under test. Its output goes to files, so that it never waits for us to read."""

    def __init__(self, test, args, name, **popen):
        self.test = test
        self.args = args
        self.name = name
        self.log = test.log_path(name)
        with open(self.log, "ab") as err:
            popen.setdefault("stdout", err)
            self.child = subprocess.Popen(args, stdin=subprocess.DEVNULL, stderr=err, env=test.environment, **popen)
        self.pid = self.child.pid

    def __repr__(self):
        return f"{self.name} (pid {self.pid})"

    def stderr(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def running(self):
        return self.child.poll() is None

    def wait(self, seconds=30):
        """Its exit status; -N where signal N ended it."""
        try:
            return self.child.wait(patient(seconds))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} still runs after {patient(seconds):g} s; it said: {self.stderr()}") from None

    def signal(self, number):
        if self.running():
            self.child.send_signal(number)

    def kill(self):
        """SIGKILL, and gone when this returns."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def stop(self):
        """SIGSTOP, and really stopped when this returns, or at its end."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: not self.running() or self.state() == "T", what=f"stop of {self}")

    def go_on(self):
        """
        SIGCONT, if it is stopped. Never to one that runs: when a process ends, LeakSanitizer attaches to it as a debugger
        does, and a SIGCONT then takes away the very stop that it waits for, and it waits for ever.
        """
        if self.running() and self.state() == "T":
            self.signal(signal.SIGCONT)

    def state(self):
        with open(f"/proc/{self.pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0]

    def close(self):
        """Nothing is read from it any more."""
        if self.child.stdout is not None:
            self.child.stdout.close()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory_kib(self, key="VmRSS"):
        with open(f"/proc/{self.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(key + ":"))


class Daemon(Process):
    """A tsocketd, perhaps behind a `wrapper` that ends in exec. `clean` is false once it cannot tidy up any more."""

    def __init__(self, test, name, args, wrapper=(), **popen):
        args = [*wrapper, TSOCKETD, "--name", name, *args]
        super().__init__(test, args, f"tsocketd-{name}-{test.count()}", **popen)
        self.daemon_name = name
        self.folder = os.path.join(test.runtime, name)
        self.clean = True
        self.baseline = None

    def kill(self):
        self.clean = False
        return super().kill()

    def terminate(self, seconds=2):
        """SIGTERM, and the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait_ready(self, seconds=20):
        def ready():
            if not self.running():
                raise AssertionError(f"{self} ended with {self.child.returncode}: {self.stderr()}")
            return self.test.ctl("status", self.daemon_name, check=False).returncode == 0

        wait_until(ready, seconds, f"readiness of {self}")
        self.baseline = self.settled_descriptors()
        return self

    def settled_descriptors(self):
        """The number of descriptors once it no longer changes: the answer to `status` may still be on its way out."""
        before, seen = -1, self.descriptors()
        while seen != before:
            time.sleep(0.01)
            before, seen = seen, self.descriptors()
        return seen

    def wait_baseline(self, seconds=2):
        """Until all that was opened for consumers is closed again; sooner than silent peers are thrown out (10 s)."""
        with contextlib.suppress(AssertionError, FileNotFoundError):
            wait_until(lambda: not self.running() or self.descriptors() <= self.baseline, seconds)
        if self.running() and self.descriptors() > self.baseline:
            names = [os.readlink(f"/proc/{self.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{self.pid}/fd")]
            raise AssertionError(f"{self} had {self.baseline} descriptors, now {len(names)}: {sorted(names)}")

    def status(self):
        return json.loads(self.test.ctl("status", self.daemon_name, "--json").stdout)

    def sockets(self):
        """Paths of its sockets in the runtime folder."""
        paths = [os.path.join(self.folder, entry) for entry in sorted(os.listdir(self.folder))]
        return [path for path in paths if stat.S_ISSOCK(os.stat(path).st_mode)]

    def connect_lifeline(self):
        """A bare connection to the lifeline socket, as a consumer has it before it says HELLO."""
        for path in self.sockets():
            line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            line.settimeout(patient(5))
            try:
                line.connect(path)
                return line
            except OSError:
                line.close()
        raise AssertionError(f"no lifeline socket among {self.sockets()}")


class Epoch:
    """What one consumer got of one epoch."""

    def __init__(self):
        self.batches = []
        self.ended_with = []  # `samples` of each epoch_end: exactly one, if all is well

    def indices(self):
        return [i for batch in self.batches for i in batch["index"]]

    def labels(self):
        return [label for batch in self.batches for label in batch["label"]]

    def sizes(self):
        return [batch["count"] for batch in self.batches]

    def hashes(self):
        return [batch["hash"] for batch in self.batches]


class Tap(Process):
    """
    A `tsocketctl tap`, with its JSON lines and the moment each arrived. One that comes late waits for the next epoch,
    unless the test says otherwise.
    """

    def __init__(self, test, daemon, batch, options, wrapper=(), **popen):
        name = daemon if isinstance(daemon, str) else daemon.daemon_name
        if "--join" not in options:
            options = ("--join", "wait", *options)
        args = [*wrapper, TSOCKETCTL, "tap", name, "--batch", str(batch), *options]
        super().__init__(test, args, f"tap-{test.count()}", stdout=subprocess.PIPE, **popen)
        self.batch_size = batch
        self.events = []  # (time, event)
        self.kinds = {}  # the same by kind
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            event = json.loads(line)
            with self.changed:
                moment = time.monotonic()
                self.events.append((moment, event))
                self.kinds.setdefault(event["event"], []).append((moment, event))
                self.changed.notify_all()
        with self.changed:
            self.reader = None
            self.changed.notify_all()

    def of_kind(self, kind):
        with self.changed:
            return [event for _, event in self.kinds.get(kind, ())]

    def times_of(self, kind):
        with self.changed:
            return [moment for moment, _ in self.kinds.get(kind, ())]

    def seen(self):
        """How many batches have come."""
        return len(self.kinds.get("batch", ()))

    def wait_for(self, kind, count=1, seconds=20):
        """The count-th event of this kind."""

        def there():
            return self.reader is None or len(self.kinds.get(kind, ())) >= count

        with self.changed:
            self.changed.wait_for(there, patient(seconds))
            found = self.kinds.get(kind, ())
            if len(found) >= count:
                return found[count - 1][1]
            last = self.events[-1][1] if self.events else None
        raise AssertionError(f"{self}: {len(found)} of {count} '{kind}' came, the last line was {last}; {self.stderr()}")

    def wait_batches(self, count, seconds=20):
        self.wait_for("batch", count, seconds)

    def attached(self):
        return self.wait_for("attached")

    def finish(self, code=0, seconds=60):
        """Its end, with the exit status that is expected and every line read."""
        status = self.wait(seconds)
        with self.changed:
            read = self.changed.wait_for(lambda: self.reader is None, patient(5))
        self.close()
        self.test.assertTrue(read, f"{self} has ended, but something else holds its output")
        self.test.assertEqual(status, code, f"exit status of {self}: {self.of_kind('error')} {self.stderr()}")
        return self

    def finish_gone(self, seconds=60):
        """Its end after the daemon's: status 3 and one line that says so."""
        self.finish(3, seconds)
        errors = self.of_kind("error")
        self.test.assertEqual([e["code"] for e in errors], ["GONE"])
        self.test.assertTrue(errors[0]["message"])
        return self

    def epochs(self):
        """{epoch: Epoch} in the order of their coming."""
        found = {}
        with self.changed:
            lines = [event for _, event in self.events]
        for event in lines:
            if event["event"] == "batch":
                found.setdefault(event["epoch"], Epoch()).batches.append(event)
            elif event["event"] == "epoch_end":
                found.setdefault(event["epoch"], Epoch()).ended_with.append(event["samples"])
        return found


def promised_windows(samples, batch, last="keep"):
    """(first, count) of each batch of an epoch."""
    windows = [(first, min(batch, samples - first)) for first in range(0, samples, batch)]
    if last == "drop":
        return [(first, count) for first, count in windows if count == batch]
    if last == "pad":
        return [(first, batch) for first, _ in windows]
    return windows


class SystemTest(unittest.TestCase):
    """A test with its own runtime folder, its own processes and a look around afterwards."""

    seconds = 60  # hard limit of a test
    maxDiff = 2000

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tsocket-test-")
        os.chmod(self.folder, 0o755)  # other users may be asked to look inside
        self.runtime = os.path.join(self.folder, "run")
        self.processes = []
        self.counter = 0
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("TSOCKETD_", "XDG_RUNTIME"))}
        self.environment["TSOCKET_DIR"] = self.runtime
        self.shm_before = set(os.listdir(SHM))
        signal.signal(signal.SIGALRM, self.too_late)
        signal.setitimer(signal.ITIMER_REAL, patient(self.seconds))

    def too_late(self, *_):
        raise AssertionError(f"the test was not done after {patient(self.seconds):g} s")

    def tearDown(self):
        # A second limit, for the look around itself.
        signal.setitimer(signal.ITIMER_REAL, patient(30))
        try:
            complaints = self.look_around()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.kill_all()
            shutil.rmtree(self.folder, ignore_errors=True)
        self.assertEqual(complaints, [])

    # --- things to start

    def count(self):
        self.counter += 1
        return self.counter

    def log_path(self, name):
        folder = os.path.join(self.folder, "log")
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, name)

    def launch_daemon(self, *args, name="main", **popen):
        """A daemon that may not be ready yet. Nobody waits for late joiners unless the test asks for it."""
        if not any(os.fsdecode(a).startswith("--join-grace") for a in args):
            args = ("--join-grace", "0", *args)
        if not any(os.fsdecode(a).startswith("--max-crashes") for a in args):
            args = ("--max-crashes", "0", *args)  # tests kill a lot
        daemon = Daemon(self, name, args, **popen)
        self.processes.append(daemon)
        return daemon

    def start_daemon(self, *args, name="main", **popen):
        return self.launch_daemon(*args, name=name, **popen).wait_ready()

    def tap(self, daemon, batch, *options, **popen):
        tap = Tap(self, daemon, batch, options, **popen)
        self.processes.append(tap)
        return tap

    def run_program(self, *args, seconds=20, **popen):
        return subprocess.run(
            args, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=patient(seconds), **popen
        )

    def ctl(self, *args, check=True):
        done = self.run_program(TSOCKETCTL, *args, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"tsocketctl {' '.join(args)} ended with {done.returncode}: {done.stderr}")
        return done

    # --- promises

    def assert_whole_epochs(self, tap, samples, batch, epochs, last="keep"):
        """Each of these epochs, and no other, came whole: every sample once, in the windows promised, with one end."""
        got = tap.epochs()
        self.assertEqual(list(got), list(epochs), f"epochs of {tap}")
        for number, epoch in got.items():
            self.assert_whole_epoch(epoch, samples, batch, last, f"epoch {number} of {tap}")

    def assert_whole_epoch(self, epoch, samples, batch, last="keep", what="the epoch"):
        windows = [(b["first"], b["count"]) for b in epoch.batches]
        self.assertEqual(windows, promised_windows(samples, batch, last), what)
        self.assertEqual([len(b["index"]) for b in epoch.batches], epoch.sizes(), what)
        self.assertEqual([len(b["label"]) for b in epoch.batches], epoch.sizes(), what)
        indices = epoch.indices()
        real = len(indices) if last == "drop" else samples
        self.assertEqual(len(set(indices)), real, f"{what}: samples that came twice")
        self.assertTrue(set(indices) <= set(range(samples)), what)
        self.assertEqual(epoch.ended_with, [samples], f"{what}: its one end, with its length")

    def assert_contiguous(self, tap):
        """No gap and no repeat between the first batch that came and the last."""
        expected = None
        for _, event in tap.events:
            if event["event"] == "batch":
                if expected is not None:
                    self.assertEqual((event["epoch"], event["first"]), expected, f"a gap in {tap}")
                expected = (event["epoch"], event["first"] + event["count"])
            elif event["event"] == "epoch_end":
                self.assertEqual((event["epoch"], event["samples"]), expected, f"a gap in {tap}")
                expected = (event["epoch"] + 1, 0)

    # --- the look around

    def look_around(self):
        complaints = []
        for step in (self.end_taps, self.check_descriptors, self.end_daemons, self.check_processes, self.check_folder,
                     self.check_shm, self.check_sanitizers):
            try:
                step()
            except AssertionError as e:
                complaints.append(str(e))
        return complaints

    def end_taps(self):
        """Taps that the test left running end with the daemon; these here only get out of the way."""
        for process in self.processes:
            if isinstance(process, Tap):
                process.signal(signal.SIGKILL)
        for process in self.processes:
            if isinstance(process, Tap):
                process.wait(5)

    def check_descriptors(self):
        for process in self.processes:
            if isinstance(process, Daemon) and process.running() and process.baseline is not None:
                process.wait_baseline()

    def end_daemons(self):
        for process in self.processes:
            if isinstance(process, Daemon) and process.running():
                process.go_on()
                status = process.terminate(5)
                if status != 0:
                    raise AssertionError(f"{process} ended with {status}: {process.stderr()}")

    def check_processes(self):
        left = processes_with("TSOCKET_DIR", self.runtime)
        if left:
            raise AssertionError(f"processes that are left: {left}")

    def check_folder(self):
        """Daemons that ended by themselves leave nothing; what a killed one left belongs to the next of its name."""
        last = {p.daemon_name: p for p in self.processes if isinstance(p, Daemon)}
        killed = {name for name, daemon in last.items() if not daemon.clean}
        left = set(os.listdir(self.runtime)) - killed if os.path.isdir(self.runtime) else set()
        if left:
            tree = [os.path.join(d, f) for d, _, files in os.walk(self.runtime) for f in files]
            raise AssertionError(f"left in the runtime folder: {sorted(left)} {tree}")

    def check_shm(self):
        left = {name for name in set(os.listdir(SHM)) - self.shm_before if not name.startswith(OTHERS_SHM)}
        if left:
            raise AssertionError(f"left in {SHM}: {sorted(left)}")

    def check_sanitizers(self):
        for process in self.processes:
            text = process.stderr()
            if "Sanitizer" in text or "runtime error:" in text:
                raise AssertionError(f"{process}: {text[:4000]}")

    def kill_all(self):
        """After the look around nothing is asked any more."""
        for process in self.processes:
            process.signal(signal.SIGKILL)
            process.child.wait()
            process.close()
        for pid in processes_with("TSOCKET_DIR", self.runtime):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
