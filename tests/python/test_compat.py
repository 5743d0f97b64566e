# SPDX-License-Identifier: Apache-2.0
"""TensorSocket's published usage, with the import changed, and right where it is wrong."""
import unittest

from pythontest import PythonTest

PRODUCER = """
import sys, torch
from tsocket.compat import TensorProducer

class Loader:
    def __init__(self, length):
        self.length, self.id = length, 0
    def __len__(self):
        return self.length
    def __iter__(self):
        return self
    def __next__(self):
        batch = self.id * torch.ones((8, 3)), torch.arange(8 * self.id, 8 * self.id + 8)
        self.id += 1
        return batch

producer = TensorProducer(Loader(5), sys.argv[1], "5557", rubber_band_pct=0.02)
for epoch in range(3):
    for i, _ in enumerate(producer):
        pass
    print("epoch", producer.epoch, "batches", i + 1, "of", len(producer))
producer.join()
print("finished")
"""

CONSUMER = """
import sys, torch
from tsocket.compat import TensorConsumer

consumer = TensorConsumer(int(sys.argv[1]), 5557, batch_size=int(sys.argv[2]))
print("len", len(consumer))
while not consumer.finished:
    labels_seen = []
    for i, batch in enumerate(consumer):
        index, (inputs, labels) = batch
        assert index == i and consumer.batch_count == i + 1
        assert torch.equal(inputs[:, 0].long(), labels // 8)
        inputs.mul_(0)
        labels_seen += labels.tolist()
    if labels_seen:
        print("epoch", consumer.epoch, *labels_seen)
"""


class CompatTest(PythonTest):
    def check(self, output, batch_size):
        lines = output.splitlines()
        self.assertEqual(lines[0], f"len {-(-40 // batch_size)}")
        for number, line in enumerate(lines[1:]):
            expected = range(40 * number, 40 * number + 40)
            self.assertEqual(line, " ".join(["epoch", str(number + 1), *map(str, expected)]))
        self.assertEqual(len(lines), 4)

    def test_producer_and_consumers_of_any_batch_size(self):
        producer = self.python(PRODUCER, 5556)
        consumers = {size: self.python(CONSUMER, "5556", size) for size in (8, 16, 12)}
        for size, consumer in consumers.items():
            self.check(consumer.finish(), size)
        self.assertEqual(producer.finish(), "".join(f"epoch {e} batches 5 of 5\n" for e in range(3)) + "finished\n")


if __name__ == "__main__":
    unittest.main()
