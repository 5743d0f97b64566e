# SPDX-License-Identifier: Apache-2.0
"""The loader that takes a DataLoader's place."""
import os
import unittest

import torch
import tsocket
import tsocket.torch as tt
from pythontest import PythonTest

IMAGENET = ("--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225")


class TorchTest(PythonTest):
    def torch_loader(self, *args, **options):
        return self.loader(*args, kind=tt.Loader, **options)

    def pair(self, **options):
        """The same epoch twice: as bytes, and through a loader with these options."""
        self.start_daemon("synthetic:13x8x6", "--epochs", "1", "--wait-for", "2")
        loader = self.torch_loader(batch_size=5, **options)
        raw = self.loader(batch_size=5)
        return [(tt.view(batch["image"]).clone(), batch.index.tolist(), batch["label"].tolist(), item)
                for batch, item in zip(raw, loader)]

    def test_pictures_are_normalised_as_torchvision_does(self):
        mean, std = torch.tensor(tt.IMAGENET_MEAN).view(3, 1, 1), torch.tensor(tt.IMAGENET_STD).view(3, 1, 1)
        pairs = self.pair(mean=tt.IMAGENET_MEAN, std=tt.IMAGENET_STD)
        self.assertEqual(len(pairs), 3)
        for raw, _, label, (images, targets) in pairs:
            expected = raw.permute(0, 3, 1, 2).contiguous().to(torch.float32).div(255).sub(mean).div(std)
            self.assertTrue(torch.equal(images, expected))
            self.assertTrue(images.is_contiguous())
            self.assertEqual((targets.dtype, targets.tolist()), (torch.int64, label))

    def test_the_bits_are_those_of_a_daemon_that_serves_float32(self):
        self.start_daemon("synthetic:13x8x6", "--epochs", "1", name="bytes")
        self.start_daemon("synthetic:13x8x6", "--epochs", "1", "--dtype", "float32", "--layout", "nchw", *IMAGENET,
                          name="floats")
        ours = self.torch_loader("bytes", mean=tt.IMAGENET_MEAN, std=tt.IMAGENET_STD)
        for (images, _), (expected, _) in zip(ours, self.torch_loader("floats")):
            self.assertTrue(torch.equal(images, expected))

    def test_a_daemon_that_serves_halves_has_the_same_bits(self):
        for dtype in (torch.float16, torch.bfloat16):
            name = str(dtype).rpartition(".")[2]
            self.start_daemon("synthetic:13x37x19", "--epochs", "1", name="bytes")
            self.start_daemon("synthetic:13x37x19", "--epochs", "1", "--dtype", name, "--layout", "nchw", *IMAGENET,
                              name="halves")
            ours = self.torch_loader("bytes", dtype=dtype, mean=tt.IMAGENET_MEAN, std=tt.IMAGENET_STD)
            pairs = list(zip(ours, self.torch_loader("halves")))
            self.assertEqual(len(pairs), 3)
            for (images, targets), (expected, labels) in pairs:
                self.assertEqual((expected.dtype, expected.shape[1:]), (dtype, (3, 37, 19)))
                self.assertTrue(torch.equal(images, expected))
                self.assertTrue(torch.equal(targets, labels))
            self.tearDown()
            self.setUp()

    def test_an_iterator_goes_on_after_a_timeout(self):
        self.start_daemon("synthetic:13x8x6", "--wait-for", "2", "--epochs", "1")
        loader = self.torch_loader(batch_size=5, timeout=0.1)
        batches = iter(loader)
        with self.assertRaises(tsocket.Timeout):
            next(batches)
        self.loader(batch_size=5).close()
        self.loader(batch_size=5)
        loader.loader._timeout = 20
        self.assertEqual(next(batches)[0].shape[0], 5)

    def test_a_forked_child_has_tensors_of_its_own(self):
        self.start_daemon("synthetic:13x8x6")
        images, _ = next(iter(self.torch_loader(batch_size=5)))
        before = images.sum().item()
        child = os.fork()
        if child == 0:
            images.numpy().fill(7)
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(images.sum().item(), before)

    def test_half_precision_is_rounded_as_torch_does(self):
        for dtype in (torch.float16, torch.bfloat16):
            for raw, _, _, (images, _) in self.pair(dtype=dtype, mean=0.5, std=0.25, channels_last=True):
                expected = raw.permute(0, 3, 1, 2).to(torch.float32).div(255).sub(0.5).div(0.25).to(dtype)
                self.assertTrue(torch.equal(images, expected))
                self.assertTrue(images.is_contiguous(memory_format=torch.channels_last))
            self.tearDown()
            self.setUp()

    def test_bytes_stay_bytes(self):
        for raw, _, _, (images, _) in self.pair(dtype=torch.uint8):
            self.assertTrue(torch.equal(images, raw.permute(0, 3, 1, 2)))

    def test_targets_are_looked_up_by_index(self):
        table = torch.arange(13) * 10
        for _, index, _, (_, targets) in self.pair(targets=table):
            self.assertEqual(targets.tolist(), [10 * i for i in index])

    def test_targets_may_be_a_function(self):
        for _, index, _, (_, targets) in self.pair(targets=lambda index: {"twice": 2 * index}):
            self.assertEqual(targets["twice"].tolist(), [2 * i for i in index])

    def test_writing_in_place_is_nobody_elses_business(self):
        self.start_daemon("synthetic:13x8x6", "--epochs", "2", "--wait-for", "2")
        mixup, other = self.torch_loader(dtype=torch.uint8), self.loader()
        for images, targets in mixup:
            images.mul_(0)
            targets.zero_()
        sums = [tt.view(batch["image"]).sum().item() for batch in other]
        self.assertTrue(all(sums))

    def test_tensors_that_are_kept_stay_as_they_are(self):
        self.start_daemon("synthetic:101x8x6", "--epochs", "1", "--ring", "16")
        loader = self.torch_loader(batch_size=4)
        kept, copies = [], []
        for images, _ in loader:
            kept.append(images)
            copies.append(images.clone())
        self.assertEqual(loader.loader.held, 0)
        for images, copy in zip(kept, copies):
            self.assertTrue(torch.equal(images, copy))

    def test_zero_copy_gives_views_that_hold_their_batch(self):
        self.start_daemon("synthetic:13x8x6")
        loader = self.torch_loader(zero_copy=True, hold=3)
        batches = iter(loader)
        images, _ = next(batches)
        self.assertEqual((images.shape, images.dtype), ((5, 8, 6, 3), torch.uint8))
        more, _ = next(batches)
        self.assertEqual(loader.loader.held, 2)
        del images
        self.assertEqual(loader.loader.held, 1)

    def test_a_write_through_a_view_ends_the_writer_alone(self):
        daemon = self.start_daemon("synthetic:13x8x6")
        other = self.loader()
        code = """
import tsocket.torch
for images, _ in tsocket.torch.Loader("main", 5, zero_copy=True):
    images.mul_(0)
"""
        child = self.python(code)
        self.assertEqual(child.wait(), -11)
        self.assertEqual(sum(batch.count for batch in other), 13)
        self.assertTrue(daemon.running())

    def test_dlpack_and_exceptions(self):
        self.start_daemon("synthetic:13x8x6")
        loader = self.loader()
        batch = next(iter(loader))
        tensor = torch.from_dlpack(batch["image"])
        self.assertTrue(torch.equal(tensor, tt.view(batch["image"])))
        with self.assertRaises(ZeroDivisionError):
            (torch.from_dlpack(batch["image"]), 1 / 0)
        batch.release()
        self.assertEqual(loader.held, 1)
        del tensor, batch
        self.assertEqual(loader.held, 0)

    def test_bfloat16_by_dlpack(self):
        numbers = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)
        with tsocket.Producer([{"x": numbers}], "bf", epochs=1, join_grace=0) as producer:
            for _ in producer.batches():
                pass
            producer.end_epoch()
            loader = self.loader("bf", 4)
            array = next(iter(loader))["x"]
            self.assertEqual((array.dtype, array.memoryview().format), ("bfloat16", "H"))
            self.assertTrue(torch.equal(torch.from_dlpack(array), numbers))
            self.assertTrue(torch.equal(tt.view(array), numbers))
            with self.assertRaises(TypeError):
                array.numpy()
            del array
            loader.close()

    def test_an_unchanged_training_loop_runs(self):
        self.start_daemon("synthetic:13x8x6")
        loader = self.torch_loader(batch_size=4, last="drop")
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 6, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.assertEqual((len(loader), len(loader.dataset), loader.batch_size), (3, 13, 4))
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            steps = 0
            for steps, (images, targets) in enumerate(loader, 1):
                loss = torch.nn.functional.cross_entropy(model(images), targets % 10)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.assertEqual(steps, 3)

    def test_distributed_data_parallel(self):
        if not torch.distributed.is_available():
            self.skipTest("this PyTorch has no torch.distributed")
        self.start_daemon("synthetic:26x8x6", "--wait-for", "2", "--epochs", "1")
        code = """
import sys, torch, tsocket.torch
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
loader = tsocket.torch.Loader("main", 5, shard=(rank, 2), fields=["image", "index"])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 * 8 * 6, 1))
loader.set_epoch(0)
seen = []
for images, index in loader:
    model(images.flatten(1)).sum().backward()
    seen += index.tolist()
print(len(loader), *seen)
dist.destroy_process_group()
"""
        ranks = [self.python(code, rank, self.folder + "/rendezvous") for rank in range(2)]
        outputs = [[int(word) for word in rank.finish().split()] for rank in ranks]
        self.assertEqual([output[0] for output in outputs], [3, 3])
        self.assertEqual(set(outputs[0][1:]) | set(outputs[1][1:]), set(range(26)))

    def test_it_pauses_and_goes_on_where_it_was(self):
        self.start_daemon("synthetic:13x8x6", "--seed", "3")
        loader = self.loader("main", 4, kind=tt.Loader, fields=["index"], epochs=2)
        indices, = next(iter(loader))
        with loader.paused():
            state = loader.state_dict()
        rest = [index.tolist() for index, in loader]
        again = self.loader("main", 4, kind=tt.Loader, fields=["index"], epochs=2, resume=state)
        self.assertEqual([index.tolist() for index, in again], rest)
        again.close()  # it may have had the only side ring
        loader.load_state_dict(state)
        self.assertEqual([index.tolist() for index, in loader], rest)
        self.assertEqual(sorted(sum(rest, indices.tolist())), list(range(13)))

    def test_what_is_lost_while_it_is_copied_comes_again(self):
        self.start_daemon("synthetic:103x8x6", "--ring", "40", "--max-batch", "10", "--wait-for", "2", "--max-hold", "50ms")
        loader = self.loader("main", 10, kind=tt.Loader, fields=["index"])
        other = tsocket.Loader("main", 10)
        copy = loader._copy

        def slow_copy(tensor):
            loader._copy = copy
            for _ in range(2):  # epochs of another, beyond --max-hold
                for _ in other:
                    pass
            other.close()
            return copy(tensor)

        loader._copy = slow_copy
        self.assertEqual(sorted(i for index, in loader for i in index.tolist()), list(range(103)))
        self.assertEqual(loader.loader.lost, 1)

    def test_what_is_not_possible_is_said(self):
        self.start_daemon("synthetic:13x8x6")
        for options in (dict(dtype=torch.int32), dict(mean=(1, 2)), dict(std=0), dict(fields=["depth"]),
                        dict(zero_copy=True, mean=0.5)):
            with self.subTest(options), self.assertRaises(tsocket.Invalid):
                with tt.Loader("main", 5, **options) as loader:
                    next(iter(loader))


if __name__ == "__main__":
    unittest.main()
