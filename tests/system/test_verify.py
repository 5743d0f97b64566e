# SPDX-License-Identifier: Apache-2.0
"""tsocketctl verify: what it says of a ledger, and its exit status. The rules behind it: tests/unit/test_audit.c."""
import json
import os
import unittest

import ledgers
from harness import TSOCKETCTL, SystemTest


class VerifyTest(SystemTest):
    def write(self, content):
        path = os.path.join(self.folder, "ledger")
        with open(path, "wb") as f:
            f.write(content)
        return path

    def verify(self, path, *options):
        return self.run_program(TSOCKETCTL, "verify", path, *options, text=True)

    def good(self):
        return ledgers.seal(ledgers.stream("train", 2, 13), ledgers.reader(1, "trial", (0, 10), (2, 0)),
                            ledgers.record(ledgers.END))

    def test_a_good_ledger_is_proven(self):
        path = self.write(self.good())
        done = self.verify(path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"trial +train +- +1 +2 +26 ")
        self.assertIn("proven: in each of the 2 epochs", done.stdout)
        done = self.verify(path, "--json")
        self.assertEqual(done.returncode, 0)
        said = json.loads(done.stdout)
        self.assertTrue(said["proven"])
        self.assertEqual((said["exceptions"], said["notes"]), ([], []))
        self.assertEqual([(c["name"], c["epochs"], c["samples"]) for c in said["consumers"]], [("trial", 2, 26)])

    def test_exceptions_are_named(self):
        skip = ledgers.record(ledgers.SKIPPED, consumer=1, a=0, b=5, c=10)
        reader = ledgers.reader(1, "slow", (0, 5), (1, 0))
        path = self.write(ledgers.seal(ledgers.stream("train", 1, 13), reader[:-80], skip, reader[-80:]))
        done = self.verify(path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("EXCEPTION: stream train, slow, epoch 0: it was moved past samples 5 to 10", done.stdout)
        self.assertIn("NOT proven: 1 exceptions", done.stdout)
        said = json.loads(self.verify(path, "--json").stdout)
        self.assertFalse(said["proven"])
        self.assertEqual([(e["what"], e["from"], e["to"]) for e in said["exceptions"]], [("skipped", 5, 10)])

    def test_a_torn_end_is_noted_and_damage_is_an_exception(self):
        path = self.write(self.good() + b"\0" * 11)
        done = self.verify(path)
        self.assertEqual(done.returncode, 0)
        self.assertIn("note: the file ends with 11 bytes", done.stdout)
        with open(path, "r+b") as f:
            f.seek(40 * 3 + 20)
            f.write(b"x")
        done = self.verify(path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 records are damaged", done.stdout)
        self.assertIn("the first at byte 120", done.stdout)

    def test_a_record_that_is_missing_moved_or_put_in_is_noticed(self):
        good = self.good()
        for at in range(40, len(good) - 40, 40):
            one, other = good[at:at + 40], good[at + 40:at + 80]
            for middle, byte in ((other, at), (other + one, at), (one + one + other, at + 40)):
                done = self.verify(self.write(good[:at] + middle + good[at + 80:]))
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"the first at byte {byte}", done.stdout)

    def test_a_run_that_is_cut_out_is_noticed(self):
        run = ledgers.stream("train", 2, 13) + ledgers.reader(1, "trial", (2, 0)) + ledgers.record(ledgers.END)
        three = ledgers.seal(run, run, run)
        self.assertEqual(self.verify(self.write(three)).returncode, 0)
        done = self.verify(self.write(three[:40 + len(run)] + three[40 + 2 * len(run):]))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"the first at byte {40 + len(run)}", done.stdout)

    def test_names_are_fit_for_a_terminal(self):
        path = self.write(ledgers.seal(ledgers.stream("train", 1, 13), ledgers.reader(1, "\x1b[2Jx", (0, 5))))
        self.assertNotIn("\x1b", self.verify(path).stdout)
        self.assertEqual(json.loads(self.verify(path, "--json").stdout)["consumers"][0]["name"], "\x1b[2Jx")

    def test_what_is_no_ledger_is_said_to_be_none(self):
        for content, says in ((b"", "too short"), (b"x" * 100, "not a ledger"),
                              (b"tsledger\x01" + bytes(31), "another version"),
                              (ledgers.HEAD[:-1] + b"\x01", "another version")):
            done = self.verify(self.write(content))
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr)
        self.assertIn("No such file", self.verify("/no/such/file").stderr)

    def test_what_is_no_regular_file_is_not_waited_for(self):
        path = os.path.join(self.folder, "pipe")
        os.mkfifo(path)
        for other in (path, self.folder, "/dev/null"):
            done = self.verify(other)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(done.stderr,
                             f"tsocketctl verify: {other}: not a regular file; tsocketd --ledger FILE writes one\n")

    def test_a_ledger_in_which_nothing_happened_proves_nothing(self):
        for parts in ((), (ledgers.stream("train", 2, 13),)):
            done = self.verify(self.write(ledgers.seal(*parts)))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("nothing to prove: no consumer has completed an epoch", done.stdout)
            self.assertNotIn("proven", done.stdout)

    def test_each_command_has_a_help(self):
        whole = self.run_program(TSOCKETCTL, "help", text=True).stdout
        for command in ("status", "list", "stop", "drain", "set", "tap", "verify", "provenance", "doctor"):
            for args in (("--help",), ("-h",), ("main", "--help")):
                done = self.run_program(TSOCKETCTL, command, *args, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), command)
                self.assertTrue(done.stdout.startswith(f"usage: tsocketctl {command}"), done.stdout)
                self.assertIn(done.stdout.removeprefix("usage: tsocketctl "), whole)
        self.assertIn("--hold-ms", self.run_program(TSOCKETCTL, "tap", "--help", text=True).stdout)

    def test_wrong_calls_are_explained(self):
        for args in ((), ("a", "b"), ("a", "--nonsense")):
            done = self.run_program(TSOCKETCTL, "verify", *args, text=True)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn("tsocketctl verify:", done.stderr)


if __name__ == "__main__":
    unittest.main()
