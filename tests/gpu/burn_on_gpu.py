"""The burn command on GPUs, with one rank and with one rank per GPU. Skipped (77) if no GPU is available."""
import re
import sys

from program import *
from program import PROGRAM

ENVIRONMENT, SKIPPED = 3, 77
# 12 GB: the default network, its optimizer, the communicators and CUDA need up to 9 GB; the memory test gets the rest.
SHORT = ["--steps", "60", "--memory", "12GB", "--io-size", "64MB", "--io-repeats", "2"]
TIMEOUT = 240  # the first start on a machine may compile or load kernels for a long time


def devices():
    """Devices as reported by the program; ends the test if a device is unusable."""
    done = subprocess.run([PROGRAM, "devices"], capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"failed: {done.stdout}{done.stderr}")
    return done.stdout


def gpu_count(text):
    return len(re.findall(r"^  GPU \d+ \(", text, re.MULTILINE))


class BurnOnGpu(ProgramTest):
    gpus = 0

    def check_clean_run(self, ranks):
        done = self.run_program(*SHORT, "--output", "run", "--io-dir", ".", ranks=ranks, timeout=TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.files(), self.run_files(ranks))
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"], result["faults"]), ("pass", 0, []))
        self.assertEqual([r["backend"] for r in result["ranks"]], ["cuda"] * ranks)
        uuids = {r["device"]["uuid"] for r in result["ranks"]}
        self.assertNotIn(None, uuids)
        self.assertEqual(len(uuids), ranks, "every rank has a GPU of its own")
        for rank in range(ranks):
            self.check_parts(result, rank)
            self.check_telemetry(result["telemetry"][str(rank)], rank)
        digests = {self.part(result, "train", r)["weight_digest"] for r in range(ranks)}
        self.assertNotIn(None, digests)
        self.assertEqual(len(digests), 1, "the weights of all ranks are equal")
        self.check_verified_work(result["verified_work"], ranks)
        for name in ("driver_version", "cuda_version", "nccl_version", "cublas_version"):
            self.assertTrue(result["system_info"][name], name)

    def check_parts(self, result, rank):
        train = self.part(result, "train", rank)
        self.assertTrue(train["success"])
        self.assertEqual(train["steps"], 60)
        self.assertLess(train["loss_last"], train["loss_first"])
        memory = self.part(result, "memory", rank)
        self.assertGreaterEqual(memory["minimum_visits"], 1)
        self.assertGreaterEqual(memory["used_bytes"], 0.95 * 12e9)
        self.assertGreaterEqual(memory["bytes_verified"], memory["filled_bytes"])
        files = self.part(result, "io", rank)
        self.assertGreaterEqual(files["passes"], 1)
        self.assertEqual(files["mismatches"], 0)

    def check_telemetry(self, telemetry, rank):
        for name in ("gpu_utilization_percent", "power_w", "temperature_c", "memory_used_bytes"):
            with self.subTest(rank=rank, figure=name):
                figure = telemetry[name]
                self.assertIsNotNone(figure)
                self.assertGreater(figure["max"], 0)
                self.assertLessEqual(figure["min"], figure["avg"])
                self.assertLessEqual(figure["avg"], figure["max"])
        with self.subTest(rank=rank, figure="power_limit_w"):
            self.assertGreater(telemetry["power_limit_w"] or 0, 0)

    def check_verified_work(self, work, ranks):
        for name in ("bytes_patrolled", "bytes_file_verified", "replica_checks"):
            self.assertGreater(work[name], 0, name)
        name = "collective_elements_checked"
        (self.assertGreater if ranks > 1 else self.assertEqual)(work[name], 0, name)

    def check_refusal(self, arguments, named, ranks):
        done = self.run_program(*arguments, ranks=ranks, timeout=TIMEOUT)
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
        lines = self.program_lines(done)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(named, lines[0])
        self.assertEqual(self.files(), [])

    def test_one_gpu(self):
        self.check_clean_run(1)

    def test_all_gpus(self):
        if self.gpus < 2:
            self.skipTest("one GPU answers, so this is test_one_gpu")
        self.check_clean_run(self.gpus)

    def test_fp8_trains(self):
        done = self.run_program(*SHORT, "--no-io", "--precision", "fp8", "--output", "run", timeout=TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual((result["verdict"], result["faults"]), ("pass", []))
        train = self.part(result, "train", 0)
        self.assertGreater(train["replays"], 0)
        self.assertLess(train["loss_last"], train["loss_first"])

    def test_more_ranks_than_gpus_are_refused(self):
        # A rank that sees one GPU uses it: a launcher may have assigned each rank its own.
        reason = f"device {self.gpus} does not exist" if self.gpus > 1 else "two ranks have the same device"
        self.check_refusal(SHORT, reason, self.gpus + 1)


if __name__ == "__main__":
    there = devices()
    BurnOnGpu.gpus = gpu_count(there)
    if BurnOnGpu.gpus == 0:
        print(f"skipped: no GPU answers:\n{there}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
