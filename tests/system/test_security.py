# SPDX-License-Identifier: Apache-2.0
"""Nobody else gets in, and whatever comes through the sockets, the daemon stays up."""
import contextlib
import json
import os
import random
import re
import socket
import stat
import struct
import sys
import unittest

from harness import OTHER_UID, OTHER_USER, SOURCE, TSOCKETCTL, SystemTest, patient, repeats, wait_until


with open(os.path.join(SOURCE, "src", "ipc", "wire.h")) as wire:
    PROTOCOL = int(re.search(r"#define TSI_PROTOCOL +(\d+)", wire.read())[1])
WANT, READY, RELEASE, SKIPPED, LEFT, AHEAD, LOST, AGAIN, PASSED = range(1, 10)  # enum tsi_kind


def hot(kind, a, b=0, ring=0):
    return struct.pack("<BBHIQQ", kind, PROTOCOL, 0, ring, a, b)


class PermissionsTest(SystemTest):
    def test_folders_are_0700_and_files_0600_whatever_the_umask(self):
        for umask in (0o000, 0o022, 0o077):
            with self.subTest(umask=oct(umask)):
                daemon = self.launch_daemon("synthetic:13x8x8", preexec_fn=lambda umask=umask: os.umask(umask))
                daemon.wait_ready()
                for path in (self.runtime, daemon.folder):
                    self.assertEqual(oct(stat.S_IMODE(os.stat(path).st_mode)), oct(0o700), path)
                for name in os.listdir(daemon.folder):
                    mode = os.stat(os.path.join(daemon.folder, name)).st_mode
                    self.assertEqual(oct(stat.S_IMODE(mode)), oct(0o600), name)
                self.assertEqual(daemon.terminate(), 0)

    def test_a_link_in_the_place_of_a_runtime_folder_is_not_followed(self):
        """In /tmp anybody could make one, to a folder of root's in which anybody can be the daemon: /tmp itself."""
        self.start_daemon("synthetic:13x8x8", name="linked")
        link = os.path.join(self.folder, "xdg", "tsocket")
        os.makedirs(os.path.dirname(link))
        os.symlink(self.runtime, link)
        wrapper = ("env", "--unset=TSOCKET_DIR", f"XDG_RUNTIME_DIR={os.path.dirname(link)}")
        tap = self.tap("linked", 5, "--epochs", "1", wrapper=wrapper).finish(3)
        self.assertEqual([e["code"] for e in tap.of_kind("error")], ["ENOTFOUND"])

    def as_other_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        return OTHER_USER

    def test_another_user_cannot_attach(self):
        wrapper = self.as_other_user()
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64")
        tap = self.tap(daemon, 5, wrapper=wrapper)
        tap.finish(3)
        self.assertEqual([e["event"] for _, e in tap.events], ["error"])
        # Even if somebody opens the folders: the lifeline looks at who is there.
        for folder in (self.runtime, daemon.folder):
            os.chmod(folder, 0o711)
        for name in os.listdir(daemon.folder):
            os.chmod(os.path.join(daemon.folder, name), 0o666)
        tap = self.tap(daemon, 5, wrapper=wrapper)
        tap.finish(3)
        self.assertEqual([e["event"] for _, e in tap.events], ["error"])
        owner = self.tap(daemon, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(owner, 13, 5, range(1))

    def greeting_for(self, daemon, wrapper):
        """What a bare connection to the lifeline is told, and how many descriptors come with it."""
        path = os.path.join(daemon.folder, "lifeline")
        code = ("import array, socket, sys\n"
                "line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                f"line.connect({path!r})\n"
                "text, parts, _, _ = line.recvmsg(65536, 4096)\n"
                "print(len(parts), text.decode(), line.recv(1), sep='\\n')\n")
        done = self.run_program(*wrapper, sys.executable, "-c", code, text=True)
        self.assertEqual(done.stderr, "")
        descriptors, text, rest = done.stdout.splitlines()
        self.assertEqual(rest, "b''", "nothing comes after it")
        return int(descriptors), json.loads(text)

    def test_another_user_is_refused_before_anything_is_shared(self):
        wrapper = self.as_other_user()
        daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64")
        for path, mode in ((self.runtime, 0o711), (daemon.folder, 0o711), (os.path.join(daemon.folder, "lifeline"), 0o666)):
            os.chmod(path, mode)
        descriptors, greeting = self.greeting_for(daemon, wrapper)
        self.assertEqual(descriptors, 0)
        self.assertIn(f"user {OTHER_UID} may not attach", greeting["refused"])
        self.assertFalse({"socket", "token"} & set(greeting), "where messages go, and what opens the door, is not told")
        self.assertIn(f"of user {OTHER_UID} is refused", daemon.stderr())

    def test_users_who_are_named_may_attach_and_no_others(self):
        wrapper = self.as_other_user()
        stranger = ("setpriv", f"--reuid={OTHER_UID - 1}", f"--regid={OTHER_UID - 1}", "--clear-groups")
        for number, allow in enumerate((("--allow-uid", str(OTHER_UID)), ("--allow-gid", "7,4711"))):
            guest = wrapper if number == 0 else (*stranger[:2], f"--regid={OTHER_UID - 1}", "--groups=4711")
            daemon = self.start_daemon("synthetic:13x8x8", "--ring", "64", *allow, name=f"shared{number}")
            tap = self.tap(daemon, 5, "--epochs", "1", wrapper=guest).finish()
            self.assert_whole_epochs(tap, 13, 5, range(1))
            self.assertEqual(self.tap(daemon, 5, wrapper=stranger).finish(3).of_kind("error")[0]["code"], "EREFUSED")
            self.assertEqual(oct(stat.S_IMODE(os.stat(daemon.folder).st_mode)), oct(0o711))
            self.assertEqual(oct(stat.S_IMODE(os.stat(os.path.join(daemon.folder, "lock")).st_mode)), oct(0o600))

    def test_two_users_have_daemons_of_the_same_name(self):
        """Where nothing names a folder, each user has one of its own."""
        wrapper = self.as_other_user()
        mine = self.start_daemon("synthetic:13x8x8", "--ring", "64")
        del self.environment["TSOCKET_DIR"]
        self.environment["TMPDIR"] = self.folder
        folder = f"/tmp/tsocket-{OTHER_UID}"
        self.assertFalse(os.path.exists(folder), f"{folder} is in use")
        theirs = self.launch_daemon("synthetic:17x8x8", "--ring", "64", wrapper=wrapper)
        wait_until(lambda: self.run_as(wrapper, "status").returncode == 0, what="readiness of the other user's daemon")
        tap = self.tap("main", 5, "--epochs", "1", wrapper=wrapper).finish()
        self.assert_whole_epochs(tap, 17, 5, range(1))
        self.assertEqual(theirs.terminate(), 0)
        self.assertEqual(os.listdir(folder), [])
        os.rmdir(folder)
        self.environment["TSOCKET_DIR"] = self.runtime
        tap = self.tap(mine, 5, "--epochs", "1").finish()
        self.assert_whole_epochs(tap, 13, 5, range(1))

    def run_as(self, wrapper, command):
        return self.run_program(*wrapper, TSOCKETCTL, command, "main", text=True)

    def test_a_runtime_folder_that_others_may_write_is_refused(self):
        os.mkdir(self.runtime)
        os.chmod(self.runtime, 0o777)
        daemon = self.launch_daemon("synthetic:13x8x8")
        self.assertEqual(daemon.wait(5), os.EX_CANTCREAT)
        self.assertIn(self.runtime, daemon.stderr())


class Zmtp:
    """As much of ZeroMQ's wire protocol (ZMTP 3.0, NULL) as it takes to be a DEALER that sends anything."""

    def __init__(self, path):
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.settimeout(patient(5))
        self.line.connect(path)
        self.line.sendall(b"\xff" + b"\0" * 8 + b"\x7f\x03\0NULL" + b"\0" * 48)
        self.line.recv(64, socket.MSG_WAITALL)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        self.line.sendall(b"\x04" + bytes([len(ready)]) + ready)
        theirs = self.line.recv(2, socket.MSG_WAITALL)
        self.line.recv(theirs[1], socket.MSG_WAITALL)  # libzmq hangs up on a peer that does not wait for its READY

    def send(self, *parts):
        for number, part in enumerate(parts):
            more = 1 if number + 1 < len(parts) else 0
            head = struct.pack(">BB", more, len(part)) if len(part) < 256 else struct.pack(">BQ", 2 | more, len(part))
            self.line.sendall(head + part)

    def close(self):
        self.line.close()


class GarbageTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(7)
        self.daemon = self.start_daemon("synthetic:101x8x8", "--ring", "64")
        self.witness = self.tap(self.daemon, 5)
        self.witness.wait_batches(5)

    def assert_unharmed(self):
        """The witness goes on, and newcomers are served."""
        self.witness.wait_batches(self.witness.seen() + 40)
        self.assert_contiguous(self.witness)
        fresh = self.tap(self.daemon, 7, "--join", "now", "--epochs", "1").finish()
        self.assertEqual(len(fresh.of_kind("epoch_end")), 1)
        self.assertTrue(self.daemon.running())

    def garbage(self, longest):
        return self.random.randbytes(self.random.randrange(1, longest))

    def test_garbage_on_the_lifeline_harms_nobody(self):
        for _ in range(repeats(100)):
            with self.daemon.connect_lifeline() as line:
                with contextlib.suppress(OSError):  # it may hang up on us
                    for _ in range(self.random.randrange(4)):
                        line.send(self.garbage(600))
        self.assert_unharmed()

    def test_connections_that_say_nothing_harm_nobody(self):
        lines = [self.daemon.connect_lifeline() for _ in range(repeats(50))]
        self.assert_unharmed()
        for line in lines:
            line.close()

    def greeted(self):
        """A lifeline, and what the daemon said on it: where its ZeroMQ socket is, and a token for a HELLO."""
        line = self.daemon.connect_lifeline()
        self.addCleanup(line.close)
        return line, json.loads(line.recv(4096))

    def test_garbage_on_the_zeromq_socket_harms_nobody(self):
        line, greeting = self.greeted()
        for _ in range(repeats(100)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
                stranger.connect(greeting["socket"])
                with contextlib.suppress(OSError):
                    stranger.sendall(self.garbage(2000))
        line.close()
        self.assert_unharmed()

    def test_messages_of_strangers_harm_nobody(self):
        line, greeting = self.greeted()
        for _ in range(repeats(20)):
            peer = Zmtp(greeting["socket"])
            with contextlib.suppress(OSError):
                for _ in range(self.random.randrange(20)):
                    peer.send(*[self.garbage(100) for _ in range(self.random.randrange(1, 4))])
            peer.close()
        line.close()
        self.assert_unharmed()

    def test_a_message_larger_than_any_of_ours_harms_nobody(self):
        line, greeting = self.greeted()
        peer = Zmtp(greeting["socket"])
        with contextlib.suppress(OSError):
            peer.send(b"x" * (1 << 20))
            peer.line.sendall(struct.pack(">BQ", 2, 1 << 62))
        peer.close()
        line.close()
        self.assert_unharmed()

    def hello(self, token):
        return {"type": "HELLO", "token": token, "stream": "train", "name": "liar", "fields": "", "device": "",
                "batch": 5, "hold": 2, "rank": 0, "world": 1, "join": 1, "last": 0, "on_lag": 0, "max_lag": 0}

    def wrong_hellos(self):
        """HELLOs that are wrong in one place each, as functions of the token."""
        for field in self.hello(""):
            for value in (None, -1, 0.5, 1e308, 2**64, "x" * 70000, [], {}, [[]], True, "../..", "\0", "\u00e9"):
                yield lambda token, field=field, value=value: json.dumps({**self.hello(token), field: value}).encode()
            yield lambda token, field=field: json.dumps({k: v for k, v in self.hello(token).items() if k != field}).encode()
        for text in (b"", b"{}", b"[]", b"null", b"[" * 5000, b'{"type"', b"\xff\xfe", b'"' + b"x" * 100000 + b'"'):
            yield lambda token, text=text: text

    def test_hellos_that_make_no_sense_harm_nobody(self):
        for hello in self.wrong_hellos():
            line, greeting = self.greeted()
            peer = Zmtp(greeting["socket"])
            with contextlib.suppress(OSError):
                peer.send(hello(greeting["token"]))
            peer.close()
            line.close()
        self.assert_unharmed()

    def test_a_consumer_that_floods_is_dropped_and_named(self):
        line, greeting = self.greeted()
        peer = Zmtp(greeting["socket"])
        peer.send(json.dumps(self.hello(greeting["token"])).encode())
        wait_until(lambda: len(self.daemon.status()["streams"][0]["consumers"]) == 2, what="its welcome")
        nothing_new = hot(RELEASE, 0)
        with contextlib.suppress(OSError):
            while "floods the daemon" not in self.daemon.stderr():
                peer.line.sendall(1000 * (struct.pack(">BB", 0, len(nothing_new)) + nothing_new))
        line.close()
        peer.close()
        self.assert_unharmed()

    def test_hot_messages_that_make_no_sense_harm_nobody_but_their_sender(self):
        """From a consumer that is welcome: it claims to have read what does not exist, wants what will never be."""
        line, greeting = self.greeted()
        peer = Zmtp(greeting["socket"])
        peer.send(json.dumps(self.hello(greeting["token"])).encode())
        wait_until(lambda: len(self.daemon.status()["streams"][0]["consumers"]) == 2, what="the liar's welcome")
        with contextlib.suppress(OSError):
            for kind in (0, *range(WANT, PASSED + 2), RELEASE):  # a wrong release is the end
                for a in (0, 1, 2**32, 2**53, 2**63, 2**64 - 1):
                    for b in (0, 2**64 - 1):
                        for ring in (0, 1, 2**32 - 1):
                            peer.send(hot(kind, a, b, ring))
        line.close()
        peer.close()
        self.assert_unharmed()

    def test_a_liar_is_dropped_and_named(self):
        line, greeting = self.greeted()
        peer = Zmtp(greeting["socket"])
        peer.send(json.dumps(self.hello(greeting["token"])).encode())
        wait_until(lambda: len(self.daemon.status()["streams"][0]["consumers"]) == 2, what="the liar's welcome")
        peer.send(hot(RELEASE, 2**50))
        wait_until(lambda: len(self.daemon.status()["streams"][0]["consumers"]) == 1, what="the liar's end")
        self.assertRegex(self.daemon.stderr(), rf"consumer liar \(process {os.getpid()}\) releases position {2**50}")
        self.assertRegex(self.daemon.stderr(), "consumer liar .* broke the protocol")
        peer.close()
        self.assert_unharmed()

    def test_who_claims_a_loss_that_cannot_be_is_dropped_and_named(self):
        """Nothing that it was given, too much at once, of no epoch, or given again before it was lost."""
        for kind, epoch, index, n in ((LOST, 0, 0, 5), (LOST, 0, 0, 2**32 - 1), (LOST, 2**64 - 1, 0, 5), (AGAIN, 0, 0, 5),
                                      (LOST, 0, 2**64 - 1, 5), (AGAIN, 0, 0, 0)):
            line, greeting = self.greeted()
            peer = Zmtp(greeting["socket"])
            peer.send(json.dumps({**self.hello(greeting["token"]), "name": f"liar{n}"}).encode())
            wait_until(lambda: len(self.daemon.status()["streams"][0]["consumers"]) == 2, what="the liar's welcome")
            line.send(hot(kind, epoch, index, n))
            wait_until(lambda: len(self.daemon.status()["streams"][0]["consumers"]) == 1, what="the liar's end")
            what = "lost" if kind == LOST else "been given again"
            self.assertIn(f"it cannot have {what} {n} samples at {index} of epoch {epoch}", self.daemon.stderr())
            self.assertRegex(self.daemon.stderr(), f"consumer liar{n} .* broke the protocol")
            line.close()
            peer.close()
        self.assert_unharmed()


if __name__ == "__main__":
    unittest.main()
