# SPDX-License-Identifier: Apache-2.0
"""Rings in GPUs, between processes, as users start them; on the simulated driver."""
import os
import time
import unittest

from harness import BUILD, SystemTest, patient

DATA = ("synthetic:211x16x16", "--epochs", "2", "--ring", "64", "--max-batch", "20", "--join-grace", "0")


class GpuTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.report = os.path.join(self.folder, "simcuda.report")
        self.environment.update(
            TSOCKET_LIBCUDA=os.path.join(BUILD, "simcuda", "libcuda.so.1"),
            SIMCUDA_DELAY_US="200",
            SIMCUDA_DEVICES="2",
            SIMCUDA_STRICT="1",
            SIMCUDA_REPORT=self.report,
        )

    def assert_nothing_is_left(self):
        said = ""
        if os.path.exists(self.report):
            with open(self.report) as f:
                said = f.read()
        self.assertEqual(said, "")

    def read_by(self, *args, taps=((16, ()), (9, ()))):
        """What each tap got: [(epoch, index, hash)]."""
        daemon = self.start_daemon(*DATA, "--wait-for", str(len(taps)), *args)
        places = daemon.status()["streams"][0]["places"]
        taps = [self.tap(daemon, batch, *options) for batch, options in taps]
        for tap in taps:
            tap.finish()
        self.assertEqual(daemon.wait(), 0, daemon.stderr())
        self.assert_nothing_is_left()
        return places, [[(b["epoch"], b["index"], b["hash"]) for b in tap.of_kind("batch")] for tap in taps]

    def test_what_is_read_does_not_depend_on_where_it_lies(self):
        places, on_host = self.read_by("--device", "host")
        self.assertEqual([p["kind"] for p in places], ["host"])
        for args, kinds in (
            (("--device", "cuda"), ["cuda-vmm"]),
            (("--device", "cuda:1", "--share", "ipc"), ["cuda-ipc"]),
            (("--device", "cuda:0,cuda:1"), ["cuda-vmm", "cuda-vmm"]),
            ((), ["cuda-vmm", "host"]),
            (("--share", "host"), ["host"]),
        ):
            places, got = self.read_by(*args)
            self.assertEqual([p["kind"] for p in places], kinds)
            self.assertEqual(got, on_host, args)

    def test_each_reads_where_it_wants(self):
        everywhere = ((16, ("--device", "cuda:0")), (16, ("--device", "cuda:1")), (16, ("--device", "host")))
        _, (first, second, host) = self.read_by("--device", "cuda:0,cuda:1,host", taps=everywhere)
        self.assertEqual(first, host)
        self.assertEqual(second, host)

    def test_who_cannot_read_there_is_told_the_way_out(self):
        daemon = self.start_daemon(*DATA, "--device", "cuda:0")
        tap = self.tap(daemon, 16, "--device", "cuda:1").finish(3)
        self.assertEqual(tap.of_kind("error")[0]["code"], "EREFUSED")
        self.assertIn("--device cuda,host", tap.of_kind("error")[0]["message"])
        daemon.terminate()

    def test_without_a_driver_the_ring_is_in_host_memory(self):
        self.environment["TSOCKET_LIBCUDA"] = os.path.join(self.folder, "none.so")
        daemon = self.start_daemon(*DATA)
        self.assertEqual([p["kind"] for p in daemon.status()["streams"][0]["places"]], ["host"])
        self.assertIn("its ring is in host memory (no GPU: ", daemon.stderr())
        daemon.terminate()

    def test_a_daemon_that_dies_takes_nothing_from_who_reads_and_leaves_nothing(self):
        daemon = self.start_daemon(
            "synthetic:100000x16x16", "--ring", "64", "--max-batch", "20", "--device", "cuda", "--wait-for", "2"
        )
        taps = [self.tap(daemon, 10, "--hold", "2") for _ in range(2)]
        for tap in taps:
            tap.wait_batches(20)
        daemon.kill()
        for tap in taps:
            tap.finish_gone()
        self.assert_nothing_is_left()

    ENDLESS = ("synthetic:100000x16x16", "--ring", "64", "--max-batch", "20", "--wait-for", "2")

    def test_an_orderly_stop_frees_no_memory_that_others_have_open(self):
        daemon = self.start_daemon(*self.ENDLESS, "--device", "cuda", "--share", "ipc")
        taps = [self.tap(daemon, 10, "--hold", "2") for _ in range(2)]
        for tap in taps:
            tap.wait_batches(20)
        begun = time.monotonic()
        self.assertEqual(daemon.terminate(), 0)  # the simulated driver would abort it
        self.assertLess(time.monotonic() - begun, patient(1.5))
        self.assertIn("2 consumers have memory of the GPU open", daemon.stderr())
        for tap in taps:
            tap.finish_gone()
        self.assert_nothing_is_left()

    def test_who_does_not_close_its_memory_delays_a_stop_by_its_grace_alone(self):
        del self.environment["SIMCUDA_STRICT"]
        daemon = self.start_daemon(*self.ENDLESS, "--device", "cuda", "--share", "ipc")
        taps = [self.tap(daemon, 10, "--hold", "2") for _ in range(2)]
        for tap in taps:
            tap.wait_batches(20)
        taps[0].stop()
        begun = time.monotonic()
        self.assertEqual(daemon.terminate(patient(8)), 0)
        self.assertGreater(time.monotonic() - begun, 0.95)
        self.assertIn("1 consumers have not closed it", daemon.stderr())
        with open(self.report) as f:
            self.assertIn("freed while another process has it open", f.read())
        taps[0].go_on()
        for tap in taps:
            tap.finish_gone()

    def test_memory_that_is_shared_by_descriptors_delays_no_stop(self):
        daemon = self.start_daemon(*self.ENDLESS, "--device", "cuda", "--share", "vmm")
        taps = [self.tap(daemon, 10, "--hold", "2") for _ in range(2)]
        for tap in taps:
            tap.wait_batches(20)
        taps[0].stop()
        begun = time.monotonic()
        daemon.terminate()
        self.assertLess(time.monotonic() - begun, patient(1.5))
        taps[0].go_on()
        for tap in taps:
            tap.finish_gone()
        self.assert_nothing_is_left()

    def test_consumers_that_die_hold_up_nobody(self):
        daemon = self.start_daemon(
            "synthetic:100000x16x16", "--ring", "64", "--max-batch", "20", "--join-grace", "0", "--wait-for", "2"
        )
        one, two = (self.tap(daemon, 10, "--hold", "2") for _ in range(2))
        one.wait_batches(20)
        two.kill()
        one.wait_batches(one.seen() + 100)
        self.assertEqual(daemon.status()["streams"][0]["consumers"][0]["device"][:4], "GPU-")
        one.signal(15)
        one.finish(128 + 15)
        daemon.terminate()
        self.assert_nothing_is_left()

    def mode_of(self, **environment):
        """What the status says of a daemon's first GPU there, and the line of the table."""
        before = dict(self.environment)
        self.environment.update(environment)
        daemon = self.start_daemon(*DATA, "--device", "cuda:0,host")
        place, host = daemon.status()["streams"][0]["places"]
        table = self.ctl("status", "main").stdout
        daemon.terminate()
        self.environment.clear()
        self.environment.update(before)
        self.assertEqual(set(host), {"device", "kind"})
        return place["mode"], place["name"], [line for line in table.splitlines() if "cuda-vmm" in line][0]

    def test_the_status_says_how_a_gpu_is_shared(self):
        mode, name, line = self.mode_of()
        self.assertEqual((mode, name), ("plain", "Simulated GPU"))
        self.assertIn("in cuda-vmm, host", line)
        mode, name, line = self.mode_of(SIMCUDA_ATTRIBUTES="133=1")
        self.assertEqual((mode, name), ("mps", "Simulated GPU"))
        self.assertIn("in cuda-vmm (mps), host", line)
        mode, name, line = self.mode_of(SIMCUDA_MIG="2")
        self.assertEqual((mode, name), ("mig", "Simulated GPU MIG 1g.1gb"))
        self.assertIn("in cuda-vmm (mig), host", line)
        self.assertEqual(self.mode_of(SIMCUDA_MIG="2", SIMCUDA_ATTRIBUTES="133=1")[0], "mig+mps")

    def test_another_mig_instance_reads_in_host_memory_or_is_told_the_way_out(self):
        for device, kind in (("cuda", None), ("cuda,host", "host")):
            self.environment["SIMCUDA_MIG"] = "1"
            daemon = self.start_daemon(*DATA, "--device", device)
            self.environment["SIMCUDA_MIG"] = "2"
            tap = self.tap(daemon, 16, "--device", "cuda", "--batches", "3")
            if kind is None:
                tap.finish(3)
                self.assertIn("--device cuda,host", tap.of_kind("error")[0]["message"])
            else:
                tap.finish()
                self.assertEqual(len(tap.of_kind("batch")), 3)
            daemon.terminate()

    def test_the_doctor_says_what_works_and_what_to_change(self):
        said = self.ctl("doctor").stdout
        self.assertIn("ok  runtime folder", said)
        for line in ("ok  cuda:0 ", "ok  cuda:0 vmm", "ok  cuda:1 ipc"):
            self.assertIn(line, said)
        self.assertIn("Everything works here.", said)
        self.assertIn("no control daemon has pipes in ", said)
        os.mkdir(os.path.join(self.folder, "mps"))
        with open(os.path.join(self.folder, "mps", "control"), "w"):
            pass
        self.environment["CUDA_MPS_PIPE_DIRECTORY"] = os.path.join(self.folder, "mps")
        self.environment["SIMCUDA_ATTRIBUTES"] = "102=0,133=1"
        said = self.ctl("doctor").stdout
        self.assertIn("what starts here is its client", said)
        self.assertIn("under MPS", said)
        self.assertIn("no  cuda:0 vmm", said)
        self.environment["SIMCUDA_MIG"] = "1"
        self.assertIn("a MIG instance under MPS", self.ctl("doctor").stdout)
        self.environment["TSOCKET_LIBCUDA"] = os.path.join(self.folder, "none.so")
        said = self.ctl("doctor").stdout
        self.assertIn("no  CUDA driver", said)
        self.assertIn("First: for GPUs: install the NVIDIA driver", said)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
