#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares k trainers that share one tsocketd with k trainers that each load for themselves. See bench/compare.sh.

Every part is run alone, for the same time. All processes of a part are up and warm before the time begins; CPU time is
what they and their children used within it, memory the largest sum of their proportional set sizes (PSS: a page that
n processes share counts as 1/n in each).
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time

import chart

HERE = os.path.dirname(os.path.abspath(__file__))
LOADERS = {'shared': 'one tsocketd, shared', 'private': 'private loaders, same pipeline',
           'torch': 'private PyTorch DataLoaders', 'tsocket.torch': 'PyTorch on one tsocketd',
           'producer': 'PyTorch on one shared DataLoader'}
PYTHON = ('torch', 'tsocket.torch', 'producer')
DAEMON = 'compare'
START_S = 120
TICKS_PER_S = os.sysconf('SC_CLK_TCK')


class Part:
    """k trainers with one way of loading, in a runtime folder of their own."""

    def __init__(self, options, loader, k):
        self.options, self.loader, self.k = options, loader, k
        self.folder = tempfile.TemporaryDirectory(prefix='tsocket-compare-')
        self.env = dict(os.environ, TSOCKET_DIR=self.folder.name, TSOCKET_LIBRARY=self.tool('libtsocket.so'),
                        PYTHONPATH=os.path.join(os.path.dirname(HERE), 'python'))
        self.processes, self.trainers = [], []

    def start(self, command, **how):
        process = subprocess.Popen(command, env=self.env, text=True, **how)
        self.processes.append(process)
        return process

    def tool(self, name):
        return os.path.join(self.options.build, name)

    def start_daemon(self):
        o = self.options
        self.start([self.tool('tsocketd'), '-q', '--name', DAEMON, '--max-batch', str(o.batch), '--workers',
                    str(o.cores), '--wait-for', str(self.k), '--join-grace', '0s', o.folder])

    def start_producer(self):
        o = self.options
        self.start([sys.executable, os.path.join(HERE, 'torch_loader.py'), o.folder, '--serve', DAEMON, '--batch',
                    str(o.batch), '--workers', str(o.cores), '--wait-for', str(self.k)])

    def start_trainers(self, begin):
        o = self.options
        shared_torch = [sys.executable, os.path.join(HERE, 'torch_loader.py'), '--shared', DAEMON]
        workers = str(max(1, o.cores // self.k))
        common = ['--batch', str(o.batch), '--step-ms', str(o.step_ms), '--seconds', str(o.seconds),
                  '--from', str(begin)]
        command = {'shared': [self.tool('bench/loader'), '--shared', DAEMON],
                   'private': [self.tool('bench/loader'), '--private', o.folder, '--workers', workers],
                   'torch': [sys.executable, os.path.join(HERE, 'torch_loader.py'), o.folder, '--workers', workers],
                   'tsocket.torch': shared_torch, 'producer': shared_torch,
                   }[self.loader]
        self.trainers = [self.start(command + common, stdout=subprocess.PIPE) for _ in range(self.k)]

    def made(self):
        """How many samples the loaders of this part have decoded; a private loader is a daemon of its own name."""
        daemons = {'shared': [DAEMON], 'private': [f'private-{trainer.pid}' for trainer in self.trainers], 'torch': [],
                   'tsocket.torch': [DAEMON], 'producer': [DAEMON]}
        return sum(self.made_by(daemon) for daemon in daemons[self.loader])

    def made_by(self, daemon):
        return json.loads(self.status(daemon, check=True).stdout)['streams'][0]['made']

    def status(self, daemon, check=False):
        return subprocess.run([self.tool('tsocketctl'), 'status', daemon, '--json'], env=self.env, text=True, check=check,
                              stdout=subprocess.PIPE, stderr=None if check else subprocess.DEVNULL)

    def wait_for_daemon(self):
        """Its import of PyTorch takes as long as it takes."""
        until = time.monotonic() + START_S
        while self.status(DAEMON).returncode != 0:
            if time.monotonic() > until or self.processes[-1].poll() is not None:
                raise SystemExit(f'compare.sh: the producer was not there after {START_S} s')
            time.sleep(0.1)

    def run(self):
        """The results of the part, as a dictionary."""
        o = self.options
        warm_up = o.warm_up * (2 + self.k if self.loader in PYTHON else 1)  # Python imports for long, and its workers too
        if self.loader in ('shared', 'tsocket.torch'):
            self.start_daemon()
        if self.loader == 'producer':
            self.start_producer()
            self.wait_for_daemon()
        begin = time.monotonic_ns() + int(warm_up * 1e9)
        self.start_trainers(begin)
        sleep_until(begin / 1e9)
        cpu, machine_cpu, made = self.cpu_seconds(), machine_cpu_seconds(), self.made()
        peak = self.watch_memory(begin / 1e9 + o.seconds)
        cpu, machine_cpu, made = self.cpu_seconds() - cpu, machine_cpu_seconds() - machine_cpu, self.made() - made
        results = [result_of(trainer) for trainer in self.trainers]
        samples = sum(result['samples'] for result in results)
        if samples == 0:
            raise SystemExit('compare.sh: no trainer got a batch in time; use a larger --seconds or --warm-up')
        return {'loader': self.loader, 'trainers': self.k, 'samples': samples, 'seconds': o.seconds,
                'rate_per_trainer': samples / o.seconds / self.k,
                'slowest_trainer': min(result['rate'] for result in results),
                'cpu_seconds_per_1000': 1000 * cpu / samples,
                'cpu_share_of_others': max(0.0, machine_cpu - cpu) / o.seconds / os.cpu_count(),
                'peak_memory_mb': peak / 1e6,
                'decodes_per_sample': 1.0 if self.loader == 'torch' else made / samples}  # PyTorch: each for itself

    def watch_memory(self, until):
        peak = 0
        while time.monotonic() < until:
            peak = max(peak, sum(pss_bytes(pid) for pid in self.pids()))
            time.sleep(min(0.5, max(0.0, until - time.monotonic())))
        return peak

    def cpu_seconds(self):
        return sum(ticks(pid) for pid in self.pids()) / TICKS_PER_S

    def pids(self):
        """The processes of the part and all that they started."""
        parent = {int(pid): parent_of(pid) for pid in os.listdir('/proc') if pid.isdigit()}
        ours = {process.pid for process in self.processes}
        while True:
            more = {pid for pid, up in parent.items() if up in ours} - ours
            if not more:
                return ours
            ours |= more

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(timeout=10)
        self.folder.cleanup()


def result_of(trainer):
    line = trainer.communicate(timeout=60)[0]
    if trainer.returncode != 0:
        raise SystemExit('compare.sh: a trainer failed')
    return json.loads(line)


def sleep_until(when):
    time.sleep(max(0.0, when - time.monotonic()))


def stat_fields(pid):
    """/proc/PID/stat from the third field on (the second, in brackets, may hold spaces)."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as file:
            return file.read().rpartition(')')[2].split()
    except OSError:
        return ['', '0'] + ['0'] * 20


def parent_of(pid):
    return int(stat_fields(pid)[1])


def ticks(pid):
    fields = stat_fields(pid)
    return int(fields[11]) + int(fields[12])


def machine_cpu_seconds():
    """What all processes have used, the kernel and other guests of the host included."""
    with open('/proc/stat', encoding='ascii') as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def pss_bytes(pid):
    try:
        with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith('Pss:'))
    except (OSError, StopIteration):
        return 0


def machine():
    with open('/proc/cpuinfo', encoding='ascii', errors='replace') as file:
        model = next((line.split(':', 1)[1].strip() for line in file if line.startswith('model name')), 'unknown CPU')
    return f'{len(os.sched_getaffinity(0))} cores, {model}'


def has_torch():
    return subprocess.run([sys.executable, '-c', 'import torch, numpy, PIL'], check=False, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def print_table(parts):
    print(f'{"loading":32} {"trainers":>8} {"samples/s each":>15} {"CPU s / 1000":>13} {"peak MB":>8} '
          f'{"decodes / sample":>17}')
    for p in parts:
        print(f'{LOADERS[p["loader"]]:32} {p["trainers"]:8} {p["rate_per_trainer"]:15.0f} '
              f'{p["cpu_seconds_per_1000"]:13.2f} {p["peak_memory_mb"]:8.0f} {p["decodes_per_sample"]:17.2f}')
    others = max(p['cpu_share_of_others'] for p in parts)
    if others > 0.05:
        print(f'not an idle machine: other processes used up to {100 * others:.0f} % of its CPU time meanwhile')


def draw(result, path):
    ks = sorted({part['trainers'] for part in result['parts']})
    loaders = [name for name in LOADERS if any(part['loader'] == name for part in result['parts'])]

    def panel(title, unit, key):
        values = {(part['loader'], part['trainers']): part[key] for part in result['parts']}
        return chart.Panel(title, unit, [[values.get((name, k)) for k in ks] for name in loaders])

    panels = [panel('Samples per second, each trainer', 'samples/s', 'rate_per_trainer'),
              panel('CPU time per 1000 samples delivered', 's', 'cpu_seconds_per_1000'),
              panel('Peak memory of all processes', 'MB', 'peak_memory_mb'),
              panel('Decodes per sample delivered', '', 'decodes_per_sample')]
    subtitle = (f'{result["machine"]}; batch {result["batch"]}, step {result["step_ms"]:g} ms, '
                f'{result["seconds"]:g} s each; {result["date"]}')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(chart.svg('Loading photographs for several trainers at once', subtitle, 'trainers',
                             [str(k) for k in ks], [LOADERS[name] for name in loaders], panels))


def parse():
    parser = argparse.ArgumentParser(prog='compare.sh', description=__doc__.split('\n')[0])
    parser.add_argument('folder', help='photographs, a folder per class')
    parser.add_argument('--build', required=True, help=argparse.SUPPRESS)
    parser.add_argument('--out', required=True, help='where compare.json and compare.svg go (default build/bench)')
    parser.add_argument('--trainers', default='1,2,4', help='how many at once, a list (default 1,2,4)')
    parser.add_argument('--seconds', type=float, default=10, help='how long each part is measured (default 10)')
    parser.add_argument('--warm-up', type=float, default=3, help='time to start in, before that (default 3)')
    parser.add_argument('--batch', type=int, default=32, help='samples per batch (default 32)')
    parser.add_argument('--step-ms', type=float, default=0,
                        help='how long a trainer computes on each batch (default 0: the loading sets the pace)')
    options = parser.parse_args()
    options.trainers = [int(k) for k in options.trainers.split(',')]
    options.cores = len(os.sched_getaffinity(0))
    return options


def main():
    options = parse()
    loaders = ['shared', 'private'] + (list(PYTHON) if has_torch() else [])
    if 'torch' not in loaders:
        print('PyTorch is not installed (scripts/deps.sh bench): its DataLoader is left out', file=sys.stderr)
    parts = []
    for loader in loaders:
        for k in options.trainers:
            print(f'{LOADERS[loader]}, {k} trainers ...', file=sys.stderr)
            part = Part(options, loader, k)
            try:
                parts.append(part.run())
            finally:
                part.close()
    result = {'machine': machine(), 'date': datetime.date.today().isoformat(), 'folder': options.folder,
              'batch': options.batch, 'step_ms': options.step_ms, 'seconds': options.seconds, 'parts': parts}
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, 'compare.json'), 'w', encoding='utf-8') as file:
        json.dump(result, file, indent=1)
    draw(result, os.path.join(options.out, 'compare.svg'))
    print_table(parts)
    print(f'written: {options.out}/compare.json, {options.out}/compare.svg')


if __name__ == '__main__':
    main()
