#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a linear classifier with NumPy alone on what a tsocketd serves, and keeps its place in a file.

    tsocketd --epochs 10 --size 64 build/photos/train & examples/train_numpy.py

With --state FILE it goes on where it was when it was interrupted, with this daemon or one that is started again.
"""
import argparse
import json
import os

import numpy
import tsocket

SIDE = 16  # pictures are reduced to so many pixels


def features(images):
    """Means over blocks, [batch, SIDE * SIDE * 3], in -1 to 1. The first time that memory is made: the batch is a view."""
    count, height, width, channels = images.shape
    blocks = images[:, :height // SIDE * SIDE, :width // SIDE * SIDE]
    blocks = blocks.reshape(count, SIDE, height // SIDE, SIDE, width // SIDE, channels)
    return blocks.mean(axis=(2, 4), dtype=numpy.float32).reshape(count, -1) / 127.5 - 1


def step(weights, x, labels, rate):
    """One step of gradient descent on the cross entropy; the loss before it."""
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)
    shares = numpy.exp(scores)
    shares /= shares.sum(axis=1, keepdims=True)
    rows = numpy.arange(len(labels))
    loss = -numpy.log(shares[rows, labels] + 1e-9).mean()
    shares[rows, labels] -= 1
    weights -= rate * x.T @ shares / len(labels)
    return loss


def load(path, weights):
    """The place where the last run ended, or None."""
    if not path or not os.path.exists(path + ".json"):
        return None
    weights[:] = numpy.load(path + ".npy")
    with open(path + ".json", encoding="utf-8") as file:
        return json.load(file)


def save(path, loader, weights):
    if path:
        numpy.save(path + ".npy", weights)
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump(loader.state_dict(), file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("name", nargs="?", default="main", help="DAEMON or DAEMON/STREAM (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--classes", type=int, default=10, help="at least as many as there are (default %(default)s)")
    parser.add_argument("--state", help="file to keep weights and place in")
    options = parser.parse_args()
    weights = numpy.zeros((SIDE * SIDE * 3, options.classes), numpy.float32)
    place = load(options.state, weights)
    with tsocket.Loader(options.name, options.batch, connect_timeout=30, resume=place) as loader:
        try:
            for epoch in loader.epochs():
                losses = [step(weights, features(batch["image"].numpy()), batch["label"].numpy(), options.lr)
                          for batch in loader]
                print(f"epoch {epoch}  loss {numpy.mean(losses):.3f}", flush=True)
        except KeyboardInterrupt:
            save(options.state, loader, weights)


if __name__ == "__main__":
    main()
