"""An injected fault for each detector of wrong data: detected once, blamed on the right rank, and never a passing run. Every
kind: selftest_test.py, and on every rank tests/mpi/training_checks_test.cpp."""
import re

from program import *

NETWORK = ["--layers", "64,96,64,32", "--batch", "32"]
# kind: (rank, step, other options, matching fault kinds, contents of `where`, value of `xor`). Of two faults of one kind and
# rank, the second would only be counted.
FAULTS = {
    "weight": (2, 20, ",layer=2", {"replica"}, "layer 2", None),
    "gemm": (0, 40, ",layer=2", {"replay", "gemm"}, "layer 2", None),
    "extreme": (1, 60, "", {"extreme"}, "", None),
    "collective": (1, 80, "", {"collective"}, "", None),
    "memory": (1, 20, ",bit=5", {"memory"}, "", "0x00000020"),
    "memory-gemm": (2, 20, ",bit=5", {"gemm"}, "product", None),
    "host-copy": (1, 20, ",bit=5", {"link"}, "device and its host", "0x00000020"),
    "multiprocessor": (2, 20, ",layer=3,lasting=always", {"multiprocessor"}, "fp32", None),
    "file-bit": (0, 0, ",bit=5", {"file-bit"}, "", "0x00000020"),
}


class Inject(ProgramTest):
    def inject(self, *specs, options=SMALL):
        asked = [argument for spec in specs for argument in ("--inject", spec)]
        done = self.run_program(*asked, *options, "--output", "run", ranks=3)
        return done, self.result()

    def test_each_detector(self):
        specs = {kind: f"{kind}:rank={rank},step={step}{rest}" for kind, (rank, step, rest, *_) in FAULTS.items()}
        done, result = self.inject(*specs.values(), options=["--steps", "100", "--memory", "64MB", "--io-size", "8MB", "--io-repeats", "4", *NETWORK])
        shown = json.dumps({name: result[name] for name in ("verdict", "reasons", "faults", "fault_repeats", "injections")}, indent=1)
        self.assertEqual(done.returncode, 1, done.stderr + shown)
        self.assertEqual((result["verdict"], result["injected"]), ("fault", True))
        self.assertIn("--inject", result["reasons"][0])
        self.assertEqual({one["planned"]: one["found"] for one in result["injections"]}, dict.fromkeys(specs.values(), True), shown)
        self.assertEqual(len(result["faults"]), len(FAULTS), f"one record each, not a flood: {shown}")
        for kind, (rank, step, _, fault_kinds, where, xor) in FAULTS.items():
            with self.subTest(kind):
                injection, = (one for one in result["injections"] if one["kind"] == kind)
                self.assertGreaterEqual(injection["struck_step"], step)
                fault, = (one for one in result["faults"] if one["kind"] in fault_kinds and one["rank"] == rank)
                self.assertIn(fault["blame"], ("certain", "majority"))
                self.assertIn(where, fault["where"])
                if xor:
                    self.assertEqual(fault["xor"], xor, shown)
        for rank in range(3):
            own = sum(one[0] == rank for one in FAULTS.values())
            self.assertEqual(done.stderr.count(f"Injected on rank {rank}, step "), own, done.stderr)
            self.assertEqual(len(re.findall(rf"FAULT CPU {rank} .*\n  rank {rank}, ", done.stderr)), own, done.stderr)
            self.assertEqual(self.kinds_in_journal(rank).count("injection"), own)

    def kinds_in_journal(self, rank):
        return [json.loads(line)["kind"] for line in (self.folder / f"run/journal.rank{rank}.jsonl").read_text().splitlines()]

    def test_a_copy_from_a_peer_is_wrong(self):
        done, result = self.inject("collective:rank=1,step=20,peer=0,bit=5", options=SMALL)
        self.assertEqual(done.returncode, 1, done.stderr)
        fault, = result["faults"]
        self.assertEqual((fault["kind"], fault["rank"], fault["blame"], fault["suspects"], fault["xor"]), ("link", 1, "ambiguous", [0, 1], "0x00000020"))
        self.assertIn("what rank 1 copied from rank 0", fault["where"])
        self.assertEqual([one["found"] for one in result["injections"]], [True])

    def test_fail_fast_ends_the_run_at_the_first_fault(self):
        # Otherwise the run would exceed the timeout of run_program.
        done, result = self.inject("weight:rank=1,step=20", options=["--duration", "300s", "--check-every", "10", "--memory", "0", "--no-io", "--fail-fast", *NETWORK])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(result["faults"]), 1)

    def test_a_moment_before_the_first_step_keeps_what_is_flipped(self):
        small = ["--layers", "32,32,16", "--batch", "16", "--memory", "0", "--no-io", "--check-every", "5", "--steps", "40"]
        done, result = self.inject("optimizer:rank=1,step=0", options=small)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([fault["rank"] for fault in result["faults"]], [1])

    def test_one_that_never_strikes_is_incomplete(self):
        done, result = self.inject("memory:rank=1,step=1000000000", options=["--duration", "2s", "--memory", "64MB", "--no-io", *NETWORK])
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertEqual((result["verdict"], result["injected"], result["faults"]), ("incomplete", True, []))
        self.assertEqual(result["injections"][0]["struck_step"], None)
        self.assertIn("--inject", result["reasons"][0])
        self.assertEqual(result["reasons"][1:], ["injected fault never struck: memory on rank 1, step 1000000000: the run was too short"])


if __name__ == "__main__":
    unittest.main()
