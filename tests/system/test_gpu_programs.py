# SPDX-License-Identifier: Apache-2.0
"""Programs that use rings in GPUs: the benchmark, the example trainer, the pack for a machine with a card. On the
simulated driver: what they say is looked at, not how fast it was."""
import json
import os
import subprocess
import unittest

from harness import BUILD, SOURCE, SystemTest

BENCH = os.path.join(BUILD, "bench", "gpu")
TRAINER = os.path.join(BUILD, "examples", "trainer")
TRAINER_CUDA = os.path.join(BUILD, "examples", "trainer_cuda")
SMALL = ("--seconds", "0.1", "--samples", "20", "--sample-bytes", "1024", "--consumers", "1,2", "--ring", "256")
PICTURES = ("synthetic:100x48x40", "--size", "40", "--max-batch", "32", "--ring", "64", "--join-grace", "0")


class GpuProgramsTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.environment.update(
            TSOCKET_LIBCUDA=os.path.join(BUILD, "simcuda", "libcuda.so.1"), SIMCUDA_DELAY_US="100", SIMCUDA_STRICT="1"
        )

    # --- bench/gpu

    def test_figures_of_the_simulated_driver_have_to_be_asked_for(self):
        done = self.run_program(BENCH, *SMALL, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stdout, "")
        self.assertIn("--simulated", done.stderr)

    def test_the_benchmark_says_all_it_measures(self):
        done = self.run_program(BENCH, "--json", "--simulated", *SMALL, text=True, seconds=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertIs(said["simulated"], True)
        self.assertEqual(said["card"], "Simulated GPU")
        self.assertEqual(len(said["copies"]), 5)
        for kind in said["copies"]:
            self.assertEqual(list(kind["bytes_per_s"]), ["262144", "1048576", "4194304", "16777216"])
            self.assertTrue(all(rate > 0 for rate in kind["bytes_per_s"].values()), kind)
        self.assertEqual(set(said["ring"]), {"bytes_per_s", "pinned_bytes_per_s", "ratio"})
        self.assertLessEqual(said["latency"]["p50_us"], said["latency"]["p99_us"])
        self.assertEqual([(c["consumers"], c["rings"]) for c in said["consumers"]], [(1, 1), (1, 1), (2, 1), (2, 2)])
        self.assertTrue(all(c["gpu_mib"] is None for c in said["consumers"]))

    def test_the_benchmark_teaches(self):
        done = self.run_program(BENCH, "--help", text=True)
        self.assertEqual(done.returncode, 0)
        for word in ("--simulated", "--consumers", "Exit status"):
            self.assertIn(word, done.stdout)
        self.assertEqual(self.run_program(BENCH, "--batch", "0").returncode, 2)

    # --- examples/trainer_cuda

    def train(self, program, *options):
        done = self.run_program(program, "main", "--epochs", "0", "--classes", "1000", "--json", *options, text=True,
                                seconds=120)
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    def launch(self, *args):
        program = subprocess.Popen(args, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(program.stdout.close)
        return program

    def test_it_learns_on_the_gpu_what_the_other_learns_on_the_cpu(self):
        if not os.path.exists(TRAINER):
            self.skipTest("examples/trainer is not built: OpenBLAS is not installed")
        losses = []
        for program in (TRAINER, TRAINER_CUDA):
            daemon = self.start_daemon(*PICTURES, "--epochs", "2", "--device", "cuda,host")
            done, epochs = self.train(program)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(daemon.wait(), 0)
            self.assertEqual([e["samples"] for e in epochs], [100, 100])
            losses.append([e["loss"] for e in epochs])
        self.assertLess(losses[1][1], losses[1][0])
        for on_cpu, on_gpu in zip(*losses):
            self.assertAlmostEqual(on_cpu, on_gpu, delta=1e-3)

    def test_what_it_cannot_use_is_told(self):
        daemon = self.start_daemon(*PICTURES, "--device", "host,cuda:0")
        self.environment["SIMCUDA_FAIL"] = "cuModuleGetFunction:1:500"
        done, _ = self.train(TRAINER_CUDA)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot run the kernel mlp_reduce", done.stderr)
        del self.environment["SIMCUDA_FAIL"]
        daemon.terminate()

    def test_a_ring_in_host_memory_is_copied(self):
        daemon = self.start_daemon(*PICTURES, "--epochs", "1", "--device", "cuda,host", "--wait-for", "2")
        there = self.launch(TRAINER_CUDA, "main", "--epochs", "0", "--classes", "1000", "--json")
        done, epochs = self.train(TRAINER_CUDA, "--device", "host")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("each batch is copied", done.stderr)
        self.assertEqual(epochs[0]["loss"], json.loads(there.communicate(timeout=60)[0])["loss"])
        self.assertEqual(daemon.wait(), 0)

    def test_labels_that_are_no_class_are_told(self):
        daemon = self.start_daemon(*PICTURES, "--epochs", "1", "--device", "cuda")
        done, _ = self.train(TRAINER_CUDA, "--classes", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not below --classes 2", done.stderr)
        daemon.wait()

    # --- bench/collocate.sh

    def collocate(self, *args):
        return self.run_program(
            os.path.join(SOURCE, "bench", "collocate.sh"), "--trainers", "2", "--epochs", "2", "--batch", "32",
            "--data", "synthetic:64x64x64", *args, text=True, seconds=120)

    def test_trainers_are_counted_in_each_way_of_sharing_that_is_there(self):
        os.mkdir(os.path.join(self.folder, "mps"))
        with open(os.path.join(self.folder, "mps", "control"), "w"):
            pass
        self.environment.update(BUILD=BUILD, TSOCKET_NO_BUILD="1")
        self.environment["CUDA_MPS_PIPE_DIRECTORY"] = os.path.join(self.folder, "mps")
        done = self.collocate("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertIs(said["simulated"], True)
        self.assertEqual([run["mode"] for run in said["runs"]], ["plain", "mps"])
        for run in said["runs"]:
            self.assertEqual((run["trainers"], len(run["samples_per_s"])), (2, 2))
            self.assertEqual(run["sum"], sum(run["samples_per_s"]))

    def test_one_epoch_is_refused(self):
        self.environment.update(BUILD=BUILD, TSOCKET_NO_BUILD="1")
        done = self.collocate("--epochs", "1")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--epochs 1: 2 or more", done.stderr)

    def test_in_mig_instances_each_trainer_has_its_own(self):
        tools = os.path.join(self.folder, "tools")
        os.mkdir(tools)
        with open(os.path.join(tools, "nvidia-smi"), "w") as f:
            f.write("#!/bin/sh\n")
            for instance in ("01", "02", "03"):
                f.write(f"echo '  MIG 1g.1gb Device: (UUID: MIG-73696d75-6c61-7465-6420-47505520{instance}00)'\n")
        os.chmod(os.path.join(tools, "nvidia-smi"), 0o755)
        self.environment.update(BUILD=BUILD, TSOCKET_NO_BUILD="1")
        self.environment["PATH"] = tools + ":" + os.environ["PATH"]
        done = self.collocate()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([line[1] for line in lines if line[0] == "mig"], ["3"])
        self.assertIn("not here: the GPU is in MIG mode", done.stdout)

    # --- scripts/gpu-test.sh

    def test_the_pack_runs_by_itself_and_reports(self):
        folder = os.path.join(self.folder, "pack")
        self.environment.update(BUILD=BUILD, TSOCKET_NO_BUILD="1")
        del self.environment["SIMCUDA_STRICT"]  # some of the pack's tests do what is forbidden
        done = self.run_program(os.path.join(SOURCE, "scripts", "gpu-test.sh"), folder, text=True, seconds=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_program(os.path.join(folder, "gpu-test.sh"), "--quick", text=True, seconds=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SIMULATED", done.stdout)
        with open(os.path.join(folder, "gpu-report.json")) as f:
            report = json.load(f)
        self.assertIs(report["simulated"], True)
        self.assertEqual([t["name"] for t in report["tests"] if t["result"] == "passed"],
                         ["driver", "questions", "sharing", "arena", "copier", "convert"])
        self.assertEqual(report["observed"]["vmm: from another user"][:5], "CUDA_" if os.geteuid() == 0 else "not a")
        self.assertIs(report["bench"]["simulated"], True)
        self.assertEqual(report["trainer"]["samples"], 64)


if __name__ == "__main__":
    unittest.main()
