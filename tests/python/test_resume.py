# SPDX-License-Identifier: Apache-2.0
"""state_dict: the runs before and after it together are one unbroken run."""
import json
import unittest

import tsocket
from harness import patient
from pythontest import PythonTest

SAMPLES, EPOCHS = 29, 3


class ResumeTest(PythonTest):
    def start(self, *options, epochs=EPOCHS):
        return self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--epochs", str(epochs), "--seed", "7", *options)

    def read(self, loader, batches=None):
        """(epoch, own epoch, index) of each sample, of so many batches."""
        got = []
        for _ in loader.epochs():
            for batch in loader:
                got += [(batch.epoch, batch.own_epoch, i) for i in batch.index.tolist()]
                batches = batches - 1 if batches is not None else None
                if batches == 0:
                    return got
        return got

    def whole(self):
        daemon = self.start()
        with tsocket.Loader("main", 4) as loader:
            unbroken = self.read(loader)
        self.assertEqual(len(unbroken), SAMPLES * EPOCHS)
        daemon.terminate()
        return unbroken

    def run_in_two(self, batches, before, after, at_once):
        """Reads so many batches, goes on with a daemon that was started again; all samples."""
        daemon = self.start()
        with tsocket.Loader("main", before) as loader:
            got = self.read(loader, batches)
            state = json.loads(json.dumps(loader.state_dict()))
        daemon.terminate()
        daemon = self.start()
        with tsocket.Loader("main", after, resume=state if at_once else None) as loader:
            if not at_once:
                loader.load_state_dict(state)
            self.assertEqual(loader.state_dict(), state)
            got += self.read(loader)
        daemon.terminate()
        return got

    def test_a_batch_of_another_and_a_closed_loader_are_said(self):
        self.start_daemon("synthetic:13x8x8", "--wait-for", "2")
        one, other = self.loader(), self.loader()
        batch = next(iter(one))
        with self.assertRaisesRegex(tsocket.Invalid, "another loader"):
            other.state_dict(batch)
        state = one.state_dict(batch)
        other.close()
        with self.assertRaisesRegex(tsocket.Invalid, "closed"):
            other.load_state_dict(state)

    def test_the_two_runs_are_one(self):
        unbroken = self.whole()
        for batches, before, after in ((1, 5, 5), (7, 5, 5), (8, 5, 3), (6, 5, 7), (2, 29, 4), (13, 5, 8)):
            for at_once in (True, False):
                with self.subTest(batches=batches, before=before, after=after, at_once=at_once):
                    self.assertEqual(self.run_in_two(batches, before, after, at_once), unbroken)

    def test_an_epoch_that_was_read_to_its_end_has_nothing_more(self):
        self.start(epochs=0)
        with tsocket.Loader("main", 29) as loader:
            next(iter(loader))
            state = loader.state_dict()
        with tsocket.Loader("main", 5, resume=state) as loader:
            self.assertEqual(list(loader), [])
            self.assertEqual(next(iter(loader)).epoch, 1)

    def test_what_was_only_looked_at_is_not_behind(self):
        """epochs() fetches an epoch's first batch; nobody has been given it yet."""
        self.start(epochs=0)
        loader = self.loader(batch_size=5)
        epochs = loader.epochs()
        for number in range(2):
            self.assertEqual(next(epochs), number)
            state = loader.state_dict()
            first = next(iter(loader)).index.tolist()
            self.assertNotEqual(loader.state_dict(), state)
            with tsocket.Loader("main", 5, resume=state) as other:
                batch = next(iter(other))
                self.assertEqual((batch.own_epoch, batch.index.tolist()), (number, first))
                del batch
            for _ in loader:
                pass

    def test_a_batch_that_was_fetched_ahead_has_a_state_of_its_own(self):
        self.start(epochs=0)
        loader = self.loader(batch_size=5, hold=3)
        batches = iter(loader)
        ahead = [next(batches).keep() for _ in range(3)]
        states = [loader.state_dict(batch) for batch in ahead]
        self.assertEqual(states[2], loader.state_dict())
        with tsocket.Loader("main", 5, resume=states[0]) as other:
            self.assertEqual(next(iter(other)).index.tolist(), ahead[1].index.tolist())
        ahead[0].release()
        with self.assertRaisesRegex(tsocket.Invalid, "released"):
            loader.state_dict(ahead[0])

    def test_a_loader_can_go_back(self):
        self.start(epochs=0)
        loader = self.loader(batch_size=4)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        second = [next(batches).index.tolist() for _ in range(3)]
        loader.load_state_dict(state)
        self.assertEqual([next(batches).index.tolist() for _ in range(3)], second)
        self.assertEqual(len(loader), 7)

    def test_len_is_what_comes_wherever_one_goes_on(self):
        self.start("--ring", "12", "--max-batch", "5", epochs=0)
        first = self.loader(batch_size=3)
        for _ in zip(range(5), first):
            pass
        late = self.loader(batch_size=4)
        self.assertGreater(late._handle.info.first, 0)
        states, count = [late.state_dict()], len(late)
        first.close()
        for _ in late:
            states.append(late.state_dict())
        self.assertEqual(count, len(states) - 1)
        late.close()
        for state in states:
            for size in (2, 5):
                with tsocket.Loader("main", size, resume=state) as loader:
                    expected = len(loader)
                    self.assertEqual(len([batch.count for batch in loader]), expected, state)
                    self.assertEqual(len(loader), -(-SAMPLES // size))

    def test_a_token_alone_will_do(self):
        self.start(epochs=0)
        loader = self.loader(batch_size=4)
        next(iter(loader))
        other = self.loader(batch_size=4, resume=loader.state_dict()["token"])
        self.assertEqual(next(iter(other)).first, 4)

    def test_epochs_counts_those_of_the_run_before(self):
        daemon = self.start(epochs=0)
        with tsocket.Loader("main", 29, epochs=2) as loader:
            got = self.read(loader, 1)
            half = loader.state_dict()
            got += self.read(loader)
            end = loader.state_dict()
        daemon.terminate()
        self.start(epochs=0)
        with tsocket.Loader("main", 29, epochs=2, resume=half) as loader:
            self.assertEqual(got[:SAMPLES] + self.read(loader), got)
        with tsocket.Loader("main", 29, epochs=2, resume=end) as loader:
            self.assertEqual(list(loader.epochs()), [])

    def test_ranks_go_on_together(self):
        def read(ranks, rounds):
            batches = [iter(rank) for rank in ranks]
            return [[i for i in batch.index.tolist()[:batch.valid]]
                    for _ in range(rounds) for batch in map(next, batches)]

        daemon = self.start("--wait-for", "2")
        ranks = [self.loader(batch_size=3, shard=(rank, 2)) for rank in range(2)]
        before = read(ranks, 2)
        states = [rank.state_dict() for rank in ranks]
        rest = read(ranks, 3)
        for rank in ranks:
            rank.close()
        daemon.terminate()
        self.start("--wait-for", "2")
        again = [self.loader(batch_size=3, shard=(rank, 2), resume=states[rank]) for rank in range(2)]
        self.assertEqual([len(rank) for rank in again], [3, 3])
        self.assertEqual(read(again, 3), rest)
        self.assertEqual(sorted(sum(before + rest, [])), list(range(SAMPLES)))

    def test_another_run_is_refused(self):
        daemon = self.start()
        with tsocket.Loader("main", 4) as loader:
            next(iter(loader))
            state = loader.state_dict()
        daemon.terminate()
        for source, seed, why in ((f"synthetic:{SAMPLES}x8x8", "8", "the seed differs"),
                                  (f"synthetic:{SAMPLES + 1}x8x8", "7", "the dataset differs"),
                                  (f"synthetic:{SAMPLES}x6x6", "7", "the (dataset|recipe) differs")):
            daemon = self.start_daemon(source, "--seed", seed)
            loader = self.loader(batch_size=4)
            with self.assertRaisesRegex(tsocket.Refused, why):
                loader.load_state_dict(state)
            with self.assertRaisesRegex(tsocket.Refused, why):
                self.loader(batch_size=4, resume=state)
            self.assertEqual(next(iter(loader)).first, 0)
            loader.close()
            daemon.terminate()
        with self.assertRaisesRegex(tsocket.ResumeError, "version 1"):
            self.loader(batch_size=4, resume={"version": 1})

    def test_it_goes_on_with_a_daemon_that_comes_back(self):
        unbroken = self.whole()
        daemon = self.start("--ring", "16", "--max-batch", "8")
        loader = self.loader(batch_size=5, reconnect=30)
        got = self.read(loader, 7)
        daemon.kill()
        self.start("--ring", "16", "--max-batch", "8")
        self.assertEqual(got + self.read(loader), unbroken)

    def test_it_does_not_wait_for_ever_for_a_daemon_that_has_gone(self):
        daemon = self.start("--ring", "16", "--max-batch", "8")
        loader = self.loader(batch_size=5, reconnect=0.3)
        self.read(loader, 1)
        daemon.kill()
        with self.assertRaises(tsocket.Gone):
            self.read(loader)


class WithoutTokensTest(PythonTest):
    """A stream of a Python loader, which cannot go back: what lies before the place is received and left unread."""

    SERVE = """
import tsocket
batches = [{"index": list(range(4 * i, 4 * i + 4))} for i in range(7)]
tsocket.Producer(batches, epochs=3, join_grace=0, ring=32, max_batch=8).serve()
"""

    def serve(self):
        self.serving = self.python(self.SERVE)

    def end(self, loader):
        loader.close()
        self.ctl("stop", "main", check=False)
        self.serving.finish()

    def open(self, **options):
        return self.loader(batch_size=4, connect_timeout=patient(20), **options)

    def test_the_two_runs_are_one(self):
        for at_once in (True, False):
            with self.subTest(at_once=at_once):
                self.serve()
                loader = self.open()
                for batch in loader:
                    if batch.first == 8:
                        break
                state = json.loads(json.dumps(loader.state_dict()))
                self.assertIsNone(state["token"])
                self.end(loader)
                self.serve()
                loader = self.open(resume=state if at_once else None)
                if not at_once:
                    loader.load_state_dict(state)
                for _ in range(2):
                    self.assertEqual((loader.state_dict(), len(loader)), (state, 4))
                    self.assertEqual(next(loader.epochs()), 0)
                self.assertEqual([i for batch in loader for i in batch.index.tolist()], list(range(12, 28)))
                self.assertEqual([(batch.own_epoch, batch.first) for batch in loader][0], (1, 0))
                del batch
                self.end(loader)

    def test_a_place_that_is_gone_is_an_error(self):
        self.serve()
        loader = self.open()
        state = loader.state_dict()
        next(iter(loader))
        with self.assertRaisesRegex(tsocket.ResumeError, "too late"):
            loader.load_state_dict(state)
        for _ in range(2):
            for _ in loader:
                pass
        late = self.open()
        with self.assertRaisesRegex(tsocket.ResumeError, "cannot go back"):
            late.load_state_dict(state)
        late.close()
        self.end(loader)


if __name__ == "__main__":
    unittest.main()
