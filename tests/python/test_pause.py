# SPDX-License-Identifier: Apache-2.0
"""Loaders that pause, lag and come late: nothing is lost unsaid, and nobody waits for them."""
import os
import threading
import unittest
import warnings

import tsocket
from harness import TSOCKETCTL, wait_until
from pythontest import PythonTest

SAMPLES = 103


class PauseTest(PythonTest):
    def start(self, *options):
        return self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--ring", "40", "--max-batch", "10", *options)

    def indices(self, loader, epochs=1):
        return [i for _ in range(epochs) for batch in loader for i in batch.index.tolist()]

    def test_who_pauses_holds_nobody_up_and_goes_on_where_it_was(self):
        self.start("--wait-for", "2")
        loader, other = self.loader(batch_size=7), self.loader(batch_size=10)
        indices = [next(iter(loader)).index.tolist() for _ in range(5)]
        with loader.paused():
            for _ in range(3):
                self.assertEqual(sorted(self.indices(other)), list(range(SAMPLES)))
        indices = sum(indices, []) + self.indices(loader)
        self.assertEqual(sorted(indices), list(range(SAMPLES)))
        other.close()
        self.assertEqual(sorted(self.indices(loader)), list(range(SAMPLES)))
        self.assertEqual(loader.lost, 0)

    def test_between_two_epochs_as_for_a_validation(self):
        self.start()
        loader = self.loader(batch_size=10, epochs=3)
        for _ in loader.epochs():
            self.assertEqual(sorted(self.indices(loader)), list(range(SAMPLES)))
            with loader.paused():
                pass

    def test_before_an_epochs_first_batch_and_for_as_long_as_one_likes(self):
        self.start("--wait-for", "2", "--max-hold", "50ms")
        loader, other = self.loader(batch_size=10, epochs=2), self.loader(batch_size=10)
        epochs = []
        for epoch in loader.epochs():
            self.assertEqual(loader.held, 0)
            with loader.paused():
                self.assertEqual(sorted(self.indices(other)), list(range(SAMPLES)))
            epochs.append(epoch)
            self.assertEqual(sorted(self.indices(loader)), list(range(SAMPLES)))
            if epoch == 0:
                other.close()
                other = self.loader(batch_size=10)
        self.assertEqual((epochs, loader.lost), ([0, 1], 0))

    def test_what_is_kept_stands_in_its_way(self):
        self.start()
        loader = self.loader(batch_size=10)
        kept = next(iter(loader)).keep()
        with self.assertRaisesRegex(tsocket.Held, "release"):
            loader.pause()
        kept.release()
        loader.pause()
        loader.resume()
        self.assertEqual(next(iter(loader)).first, 10)

    def test_without_a_side_ring_it_is_refused(self):
        self.start("--side-rings", "0")
        loader = self.loader(batch_size=10)
        with self.assertRaisesRegex(tsocket.Refused, "--side-rings"):
            loader.pause()
        self.assertEqual(next(iter(loader)).first, 0)

    def test_who_is_parked_at_the_end_of_its_second_lap_is_proven(self):
        """All is released, but the daemon has not heard of it, nor does it take it from one that is parked."""
        options = ("--epochs", "2", "--ledger", os.path.join(self.folder, "ledger"), "--max-hold", "100ms")
        daemon = self.start(*options)
        first = self.loader(batch_size=5)
        for _ in range(12):
            next(iter(first)).release()
        late = self.loader(batch_size=1, join="catch-up", consumer_name="late")
        other = threading.Thread(target=self.indices, args=(first,))
        other.start()
        batches = iter(late)
        lap = next(batches).first
        self.assertGreater(lap, 0)
        while next(batches).first != 0:
            pass
        other.join()
        states = [loader.state_dict() for loader in (late, first)]
        late.close()
        first.close()
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.start(*options, "--wait-for", "2")
        late = self.loader(batch_size=1, consumer_name="late", resume=states[0])
        first = self.loader(batch_size=5, resume=states[1])
        batch = next(iter(late))
        while batch.first + len(batch.index) < lap:
            batch = next(iter(late))
        batch.release()
        self.assertEqual(sorted(self.indices(first)), list(range(SAMPLES)))
        self.assertEqual(sorted(self.indices(late, 2)), list(range(SAMPLES)))
        late.close()
        first.close()
        self.assertEqual(daemon.wait(), 0)
        proof = self.run_program(TSOCKETCTL, "verify", options[3])
        self.assertEqual(proof.returncode, 0, proof.stdout.decode())

    def test_what_was_written_over_is_said_and_comes_again(self):
        self.start("--wait-for", "2", "--max-hold", "50ms")
        loader, other = self.loader(batch_size=10), self.loader(batch_size=10)
        batches = iter(loader)
        first = next(batches).index.tolist()
        self.indices(other, 2)
        with self.assertRaisesRegex(tsocket.Lost, "written over"):
            next(batches)
        self.assertEqual(loader.lost, 1)
        again = next(batches)
        self.assertEqual((again.first, again.index.tolist()), (0, first))
        other.close()
        self.assertEqual(sorted(first + self.indices(loader)), list(range(SAMPLES)))
        self.assertEqual(loader.ended_epoch, (0, 0, SAMPLES, SAMPLES, 0))

    def test_a_release_by_hand_says_so_at_once(self):
        self.start("--wait-for", "2", "--max-hold", "50ms")
        loader, other = self.loader(batch_size=10), self.loader(batch_size=10)
        batch = next(iter(loader))
        state = loader.state_dict(batch)
        self.indices(other, 2)
        with self.assertRaises(tsocket.Lost):
            batch.release()
        batch.release()
        self.assertNotEqual(loader.state_dict(), state)
        self.assertEqual(next(iter(loader)).first, 0)
        self.assertEqual(loader.state_dict(), state)

    def test_closing_does_not_hide_it(self):
        self.start("--wait-for", "2", "--max-hold", "50ms")
        loader, other = self.loader(batch_size=10), self.loader(batch_size=10)
        next(iter(loader))
        self.indices(other, 2)
        with self.assertWarnsRegex(RuntimeWarning, "written over"):
            loader.close()

    def test_who_is_detached_is_told(self):
        self.start("--wait-for", "2", "--max-hold", "50ms")
        loader, other = self.loader(batch_size=10, on_lag="detach"), self.loader(batch_size=10)
        batches = iter(loader)
        next(batches).release()
        self.indices(other, 2)
        with self.assertRaisesRegex(tsocket.Elapsed, "detached"):
            for _ in range(SAMPLES):
                next(batches)
        again = self.loader(batch_size=10, resume=loader.state_dict())
        self.assertGreater(next(iter(again)).first, 0)

    def test_who_may_skip_leaves_samples_out_and_counts_them(self):
        daemon = self.start("--wait-for", "2")
        loader, other = self.loader(batch_size=5, on_lag="skip", max_lag=5), self.loader(batch_size=10)
        wait_until(lambda: daemon.status()["streams"][0]["head"] == 40, what="a full ring")
        reads_on = threading.Thread(target=self.indices, args=(other,))
        reads_on.start()
        batches = list((batch.skipped, batch.count) for batch in loader)
        reads_on.join()
        skipped, received = map(sum, zip(*batches))
        self.assertEqual(batches[0], (35, 5))
        ended = loader.ended_epoch
        self.assertEqual((ended.received, ended.skipped, ended.samples), (received, SAMPLES - received, SAMPLES))
        self.assertLessEqual(skipped, ended.skipped)  # more may be left out at the epoch's end, behind the last batch
        other.close()

    def test_who_comes_late_catches_up_within_the_epoch(self):
        self.start()
        first = self.loader(batch_size=10)
        batches = iter(first)
        for _ in range(5):
            next(batches)
        late = self.loader(batch_size=5)
        self.assertEqual(len(late), 21)
        got = [next(iter(late))]
        self.assertGreater(got[0].first, 0)
        indices = got[0].index.tolist()
        first.close()
        counts = []
        for batch in late:
            counts.append(batch.count)
            indices += batch.index.tolist()
        self.assertEqual(len(counts) + 1, len(late))
        self.assertEqual(sorted(indices), list(range(SAMPLES)))

    def test_a_resident_stream_waits_for_nobody(self):
        self.start_daemon(f"synthetic:{SAMPLES}x8x8", "--resident")
        loader, other = self.loader(batch_size=10), self.loader(batch_size=7)
        self.assertTrue(loader.resident)
        next(iter(other))
        for _ in range(3):
            self.assertEqual(sorted(self.indices(loader)), list(range(SAMPLES)))


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    unittest.main()
