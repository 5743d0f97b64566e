#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a PyTorch DataLoader to any number of trainers, of any batch size: here of small pictures that it draws.

    examples/producer_torch.py drawn & examples/train_torch.py drawn --classes 4

The loader is an ordinary one; put your own into its place. `tsocket serve examples/producer_torch.py:make_loader` does
the same from the command line.
"""
import sys

import torch
import tsocket
from torch.utils.data import DataLoader, Dataset

SIDE = 32
CLASSES = 4


class Stripes(Dataset):
    """Noisy stripes, in a direction that is the class: bytes of [SIDE, SIDE, 3]."""

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        label = index % CLASSES
        angle = torch.tensor(label * torch.pi / CLASSES)
        generator = torch.Generator().manual_seed(index)
        y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        wave = torch.sin((x * torch.cos(angle) + y * torch.sin(angle)) * 0.8 + 6 * torch.rand(1, generator=generator))
        noise = torch.randn(SIDE, SIDE, 3, generator=generator)
        return (128 + 50 * wave[:, :, None] + 30 * noise).clamp(0, 255).to(torch.uint8), label


def make_loader():
    return DataLoader(Stripes(), batch_size=64, shuffle=True)


if __name__ == "__main__":
    tsocket.Producer(make_loader(), sys.argv[1] if len(sys.argv) > 1 else "main", fields=["image", "label"], epochs=3,
                     wait_for=1).serve()
