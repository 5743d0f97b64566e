# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: what it needs, how it is installed, and what it says where something is missing."""
import os
import shutil
import subprocess
import sys
import unittest

from harness import BUILD, SOURCE
from pythontest import PythonTest

READ_AN_EPOCH = """
import tsocket
print(tsocket.__file__)
print(tsocket.library_path())
with tsocket.Loader("main", 5) as loader:
    print(sum(len(batch["image"].tolist()) for batch in loader))
"""


class PackageTest(PythonTest):
    def test_neither_numpy_nor_torch_is_needed(self):
        self.start_daemon("synthetic:13x8x8")
        block = "import sys; sys.modules.update(numpy=None, torch=None)\n"
        self.assertEqual(self.python(block + READ_AN_EPOCH).finish().split()[-1], "13")

    def test_a_missing_library_is_said_with_every_place(self):
        self.environment["TSOCKET_LIBRARY"] = "/nowhere/libtsocket.so"
        child = self.python("import tsocket; tsocket.Loader()")
        child.finish(1)
        self.assertIn("/nowhere/libtsocket.so", child.stderr())
        del self.environment["TSOCKET_LIBRARY"]
        child = self.python("import tsocket; tsocket.Loader()")
        if child.wait() != 0:
            self.assertIn("/usr/local/lib/libtsocket.so.0", child.stderr())

    def test_another_version_is_said_with_both_numbers(self):
        child = self.python("import tsocket._library as l; l.__version__ = '9.9.0'; l.load()")
        child.finish(1)
        self.assertRegex(child.stderr(), r"is libtsocket 0\.\d+\.\d+, this package .* is for 9\.9\.0")

    def test_another_library_is_said(self):
        self.environment["TSOCKET_LIBRARY"] = "libc.so.6"
        child = self.python("import tsocket; tsocket.Loader()")
        child.finish(1)
        self.assertIn("some other library", child.stderr())

    def test_installed_by_cmake_and_pip_it_finds_itself(self):
        if subprocess.run([sys.executable, "-c", "import ensurepip, setuptools, wheel"], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest("python3-venv, python3-setuptools or python3-wheel is not installed")
        place = os.path.join(self.folder, "venv")
        package = os.path.join(self.folder, "package")  # pip writes beside the source
        shutil.copytree(os.path.join(SOURCE, "python"), package)
        python = os.path.join(place, "bin", "python")
        for command in ([sys.executable, "-m", "venv", "--system-site-packages", place],
                        ["cmake", "--install", BUILD, "--prefix", place],
                        [python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index", package]):
            done = self.run_program(*command, seconds=120, text=True)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stdout} {done.stderr}")
        del self.environment["PYTHONPATH"], self.environment["TSOCKET_LIBRARY"]
        self.start_daemon("synthetic:13x8x8")
        done = self.run_program(python, "-c", READ_AN_EPOCH, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        where, library, samples = done.stdout.split()
        self.assertTrue(where.startswith(place) and library.startswith(place), done.stdout)
        self.assertEqual(samples, "13")
        done = self.run_program(os.path.join(place, "bin", "tsocket"), "--version", text=True)
        self.assertRegex(done.stdout, r"^tsocket 0\.")


if __name__ == "__main__":
    unittest.main()
