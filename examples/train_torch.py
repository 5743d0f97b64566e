#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network with PyTorch on what a tsocketd serves; start as many as there are settings to try.

    tsocketd --wait-for 2 --epochs 10 --size 64 build/photos/train &
    examples/train_torch.py --lr 0.05 --batch 32 & examples/train_torch.py --lr 0.01 --batch 48
"""
import argparse

import torch
from torch import nn
from tsocket.torch import IMAGENET_MEAN, IMAGENET_STD, Loader


def network(classes):
    """Three convolutions, each of which halves the picture, and a mean over what is left of it."""
    layers = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def train_epoch(model, optimizer, loader):
    """Mean loss and accuracy."""
    loss_sum = right = seen = 0
    for images, targets in loader:
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(targets)
        right += (scores.argmax(1) == targets).sum().item()
        seen += len(targets)
    return loss_sum / seen, right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("name", nargs="?", default="main", help="DAEMON or DAEMON/STREAM (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--classes", type=int, default=10, help="at least as many as there are (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="that PyTorch may use (default %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    model = network(options.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    with Loader(options.name, options.batch, mean=IMAGENET_MEAN, std=IMAGENET_STD, connect_timeout=30) as loader:
        for epoch in loader.epochs():
            loss, accuracy = train_epoch(model, optimizer, loader)
            print(f"lr {options.lr:g}  epoch {epoch}  loss {loss:.3f}  accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
