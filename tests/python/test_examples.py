# SPDX-License-Identifier: Apache-2.0
"""The examples run, and their networks learn."""
import os
import signal
import unittest

from harness import SOURCE
from pythontest import PythonTest

EXAMPLES = os.path.join(SOURCE, "examples")


def losses(output):
    return [float(line.split("loss ")[1].split()[0]) for line in output.splitlines()]


class ExamplesTest(PythonTest):
    seconds = 180

    def example(self, name, *args):
        return self.script(os.path.join(EXAMPLES, name), *args)

    def test_two_trainers_share_a_data_loader(self):
        producer = self.example("producer_torch.py", "drawn")
        trainers = [self.example("train_torch.py", "drawn", "--classes", 4, "--lr", lr, "--batch", batch)
                    for lr, batch in ((0.05, 32), (0.01, 48))]
        for trainer in trainers:
            seen = losses(trainer.finish(seconds=120))
            self.assertEqual(len(seen), 3)
            self.assertLess(seen[-1], seen[0])
        self.assertEqual(producer.finish(), "")

    def test_the_readmes_example_runs_as_it_is_printed(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
            code = f.read().split("```python\n")[1].split("```")[0]
        self.assertEqual(len(code.splitlines()), 5)
        self.start_daemon("synthetic:101x32x32")
        said = self.python("def train(images, targets):\n    print(list(images.shape), list(targets.shape))\n" + code).finish()
        self.assertEqual(said.splitlines(), ["[64, 32, 32, 3] [64]", "[37, 32, 32, 3] [37]",
                                             "[64, 3, 32, 32] [64]", "[37, 3, 32, 32] [37]"])

    def test_numpy_alone_learns(self):
        self.start_daemon("synthetic:101x32x32", "--epochs", "3")
        seen = losses(self.example("train_numpy.py", "--classes", 1000).finish())
        self.assertEqual(len(seen), 3)
        self.assertLess(seen[-1], seen[0])

    def test_an_interrupted_run_goes_on(self):
        self.start_daemon("synthetic:1009x32x32", "--epochs", "12")
        state = os.path.join(self.folder, "state")
        first = self.example("train_numpy.py", "--classes", 1000, "--state", state)
        self.assertIn("epoch 0 ", first.line())
        first.signal(signal.SIGINT)
        rest = [int(line.split()[1]) for line in first.finish().splitlines()]
        rest += [int(line.split()[1]) for line in
                 self.example("train_numpy.py", "--classes", 1000, "--state", state).finish().splitlines()]
        self.assertEqual(rest, list(range(1, 12)))


if __name__ == "__main__":
    unittest.main()
