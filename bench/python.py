#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python package adds to the library's costs, as ratios of what is measured in turn in one run.

    bench/python.py [--build DIR] [--rounds N] [consumer] [convert] [producer]

    consumer   batches per second of a Loader that takes views and does nothing, on a stream without data
    convert    tsocket.torch.Loader from bytes to normalised float32 [64, 3, 224, 224], by tsocket_convert alone
    producer   a Producer of ready float32 batches of that shape, by one copy of them in memory

Rounds of what is compared take turns, and medians of the ratios are printed, with the load of the machine beside.
"""
import argparse
import ctypes
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
BATCH, CHANNELS, SIDE = 64, 3, 224
RING = 8 * BATCH


class Daemon:
    """A tsocketd in the runtime folder of this process."""

    def __init__(self, build, *args):
        self.child = subprocess.Popen([os.path.join(build, 'tsocketd'), '-q', '--name', 'bench', '--join-grace', '0s', *args])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(timeout=20)


def load():
    return 'load ' + ' '.join(f'{value:.1f}' for value in os.getloadavg())


def say(what, value):
    print(f'{what:60} {value:>22}   {load()}', flush=True)


def spread(values, form='{:.2f}'):
    low, high = min(values), max(values)
    return f'{form} ({form} to {form})'.format(statistics.median(values), low, high)


def consumer(options):
    import tsocket

    with Daemon(options.build, f'null:100000x{SIDE}x{SIDE}'), \
            tsocket.Loader('bench', BATCH, connect_timeout=20) as loader:
        batches = itertools.chain.from_iterable(loader for _ in loader.epochs())
        clock, cpu = [], []
        for _ in range(options.rounds):
            before, used = time.monotonic(), time.process_time()
            for batch in itertools.islice(batches, 20000):
                batch['image']
            clock.append(20000 / (time.monotonic() - before))
            cpu.append(20000 / (time.process_time() - used))
    say('consumer: batches/s of CPU time', spread(cpu, '{:.0f}'))
    say('consumer: batches/s by the clock', spread(clock, '{:.0f}'))


def convert(options):
    import torch
    import tsocket.torch as tt
    from tsocket import _library

    torch.set_num_threads(1)
    with Daemon(options.build, f'synthetic:640x{SIDE}x{SIDE}', '--resident', '--max-batch', str(BATCH)), \
            tt.Loader('bench', BATCH, mean=tt.IMAGENET_MEAN, std=tt.IMAGENET_STD, connect_timeout=20) as loader:
        with tt.loader.Loader('bench', BATCH, hold=10) as raw:
            arrays = [batch['image'] for batch in raw]  # the very memory that the other loader reads
            conversion = loader._conversions['image']
            result = torch.zeros(BATCH, CHANNELS, SIDE, SIDE)
            c_alone, ratios = [], []
            for _ in range(options.rounds):
                times = {}
                for way in ('c', 'python'):
                    before = time.thread_time()
                    if way == 'c':
                        for array in arrays:
                            _library.load().tsocket_convert(conversion, array._address, BATCH, SIDE * SIDE, result.data_ptr())
                    else:
                        for _ in loader:
                            pass  # 10 batches
                    times[way] = time.thread_time() - before
                c_alone.append(times['c'] * 100)
                ratios.append(times['python'] / times['c'])
            del array, arrays
    say('convert: tsocket_convert, ms a batch', spread(c_alone))
    say('convert: tsocket.torch.Loader by tsocket_convert', spread(ratios))


def producer(options):
    import numpy
    import tsocket

    sample_bytes = CHANNELS * SIDE * SIDE * 4
    made = [numpy.random.rand(BATCH, CHANNELS, SIDE, SIDE).astype(numpy.float32) for _ in range(2)]
    target = numpy.zeros(RING * sample_bytes, numpy.uint8)  # as large as the ring
    rounds = options.rounds
    copied, ratios, cpu_ratios = [], [], []

    def source():
        """Batches, and after each round of them copies of as many, while nothing else is done."""
        for _ in range(rounds + 1):
            before, used = time.monotonic(), time.thread_time()
            for i in range(16):
                yield {'image': made[i % 2]}
            served, served_cpu = time.monotonic() - before, time.thread_time() - used
            before, used = time.monotonic(), time.thread_time()
            for i in range(16):
                ctypes.memmove(target.ctypes.data + i % 8 * made[0].nbytes, made[i % 2].ctypes.data, made[0].nbytes)
            once, once_cpu = time.monotonic() - before, time.thread_time() - used
            copied.append(16 / once)
            ratios.append(once / served)
            cpu_ratios.append(once_cpu / served_cpu)

    reader = subprocess.Popen([sys.executable, '-c', f"""
import tsocket
for epoch in (loader := tsocket.Loader('bench', {BATCH}, connect_timeout=20)).epochs():
    for batch in loader:
        batch.release()
"""])
    tsocket.Producer(source(), 'bench', epochs=1, epoch_samples=(rounds + 1) * 16 * BATCH, ring=RING, wait_for=1,
                     join_grace=0).serve()
    reader.wait(timeout=20)
    say('producer: copies of a batch in memory, 1/s', spread(copied[1:], '{:.0f}'))
    say('producer: tsocket.Producer by a copy, by the clock', spread(ratios[1:]))
    say('producer: tsocket.Producer by a copy, CPU time', spread(cpu_ratios[1:]))


PARTS = {'consumer': consumer, 'convert': convert, 'producer': producer}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--build', default=os.path.join(SOURCE, 'build'))
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('parts', nargs='*', choices=[[], *PARTS], default=[])
    options = parser.parse_args()
    sys.path.insert(0, os.path.join(SOURCE, 'python'))
    os.environ['TSOCKET_LIBRARY'] = os.path.join(options.build, 'libtsocket.so')
    os.environ['PYTHONPATH'] = os.path.join(SOURCE, 'python')
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix='tsocket-bench-') as folder:
            os.environ['TSOCKET_DIR'] = folder
            PARTS[part](options)


if __name__ == '__main__':
    main()
