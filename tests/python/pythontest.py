# SPDX-License-Identifier: Apache-2.0
"""What the Python tests stand on: the system tests' harness, with tsocket in this process and in others.

    class ... (PythonTest)
        loader = self.loader("main", 5)                  closed when the test is over
        child = self.python("import tsocket; ...")       a Python of its own, watched by the harness
"""
import os
import subprocess
import sys

import tsocket
from harness import SOURCE, Process, SystemTest


class Script(Process):
    """A Python process; `lines` are what it has printed."""

    def __init__(self, test, args, name):
        python = [*test.preload, sys.executable, "-B"]
        super().__init__(test, [*python, *args], f"{name}-{test.count()}", stdout=subprocess.PIPE)

    def line(self):
        return self.child.stdout.readline().decode().rstrip("\n")

    def finish(self, code=0, seconds=60):
        output = self.child.stdout.read().decode()
        status = self.wait(seconds)
        self.test.assertEqual(status, code, f"exit status of {self}: {output} {self.stderr()}")
        return output


class PythonTest(SystemTest):
    def setUp(self):
        super().setUp()
        os.environ["TSOCKET_DIR"] = self.runtime
        # a sanitizer's, which Python needs for the library's sake, and programs that have it built in cannot bear
        preload = self.environment.pop("LD_PRELOAD", None)
        self.preload = ["env", f"LD_PRELOAD={preload}"] if preload else []
        self.environment["PYTHONPATH"] = os.path.join(SOURCE, "python")
        self.environment["PYTHONUNBUFFERED"] = "1"
        self.opened = []

    def tearDown(self):
        for loader in self.opened:
            loader.close()
        self.opened.clear()
        super().tearDown()

    def loader(self, name="main", batch_size=5, kind=tsocket.Loader, **options):
        loader = kind(name, batch_size, **options)
        self.opened.append(loader)
        return loader

    def python(self, code, *args):
        script = Script(self, ["-c", code, *map(str, args)], "python")
        self.processes.append(script)
        return script

    def script(self, *args):
        script = Script(self, [str(arg) for arg in args], "script")
        self.processes.append(script)
        return script

    def end_daemons(self):
        """Scripts first: they hold the daemons' consumers."""
        for process in self.processes:
            if isinstance(process, Script) and process.running():
                process.kill()
        super().end_daemons()
