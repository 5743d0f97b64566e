# SPDX-License-Identifier: Apache-2.0
"""state_dict: the runs before and after it together are one unbroken run."""
import json
import unittest

import tsocket
from pythontest import PythonTest

SAMPLES, EPOCHS = 29, 3


class ResumeTest(PythonTest):
    def start(self, *options):
        return self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--epochs", str(EPOCHS), "--seed", "7", *options)

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

    def run_in_two(self, batches, before, after):
        """Reads so many batches, goes on with a daemon that was started again; all samples, and the state between."""
        daemon = self.start()
        with tsocket.Loader("main", before) as loader:
            got = self.read(loader, batches)
            state = json.loads(json.dumps(loader.state_dict()))
        daemon.terminate()
        daemon = self.start()
        with tsocket.Loader("main", after) as loader:
            loader.load_state_dict(state)
            self.assertEqual(loader.state_dict(), state)
            got += self.read(loader)
        daemon.terminate()
        return got

    def test_the_two_runs_are_one(self):
        self.start()
        with tsocket.Loader("main", 4) as loader:
            unbroken = self.read(loader)
        self.assertEqual(len(unbroken), SAMPLES * EPOCHS)
        self.processes[0].terminate()
        for batches, before, after in ((1, 5, 5), (7, 5, 5), (8, 5, 3), (6, 5, 7), (2, 29, 4), (13, 5, 8)):
            with self.subTest(batches=batches, before=before, after=after):
                self.assertEqual(self.run_in_two(batches, before, after), unbroken)

    def test_an_epoch_that_was_read_to_its_end_has_nothing_more(self):
        self.start("--join-grace", "30")
        with tsocket.Loader("main", 29) as loader:
            batch = next(iter(loader))
            state = loader.state_dict()
            del batch
        with tsocket.Loader("main", 5, join="wait") as loader:
            if loader.epoch > 0:
                self.skipTest("the epoch has left the ring")
            loader.load_state_dict(state)
            self.assertEqual(list(loader), [])
            self.assertEqual(next(iter(loader)).epoch, 1)

    def test_a_place_that_is_gone_is_an_error(self):
        self.start()
        with tsocket.Loader("main", 5) as loader:
            state = loader.state_dict()
            next(iter(loader))
            with self.assertRaisesRegex(tsocket.ResumeError, "too late"):
                loader.load_state_dict(state)
            for _ in loader:
                pass
            for _ in loader:
                break
            with tsocket.Loader("main", 5) as late:
                if late.epoch > 0:
                    with self.assertRaisesRegex(tsocket.ResumeError, "cannot go back"):
                        late.load_state_dict(state)


if __name__ == "__main__":
    unittest.main()
