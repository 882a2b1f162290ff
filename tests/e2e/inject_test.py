"""Injected faults of each kind that changes data: detected once, blamed on the right rank, and never a passing run."""
from program import *

STRUCK_RANK, ASKED_STEP = 1, 20
NETWORK = ["--layers", "64,96,64,32", "--batch", "32"]
LAYER, BIT = ",layer=2", ",bit=5"

# kind: (other options, matching fault kinds, contents of `where`, value of `xor`)
KINDS = {
    "weight": (LAYER, {"replica"}, "layer 2", None),
    "optimizer": (LAYER, {"replica"}, "layer 2", None),
    "gradient": (LAYER, {"replay"}, "layer 2", None),
    "activation": (LAYER, {"replay"}, "layer 2", None),
    "gemm": (LAYER, {"replay", "gemm"}, "layer 2", None),
    "extreme": ("", {"extreme"}, "", None),
    "collective": ("", {"collective"}, "", None),
    "memory": (BIT, {"memory"}, "", "0x00000020"),
    "host-copy": (BIT, {"link"}, "device and its host", "0x00000020"),
    "file-bit": (BIT, {"file-bit"}, "", "0x00000020"),
    "file-stale": ("", {"file-stale"}, "", None),
    "file-torn": ("", {"file-torn"}, "", None),
    "file-misplaced": ("", {"file-misplaced"}, "", None),
    "file-lost": ("", {"file-lost"}, "", None),
}


class Inject(ProgramTest):
    def inject(self, *specs, options=SMALL):
        asked = [argument for spec in specs for argument in ("--inject", spec)]
        done = self.run_program(*asked, *options, "--output", "run", ranks=3)
        return done, self.result()

    def check(self, kind):
        rest, fault_kinds, where, xor = KINDS[kind]
        spec = f"{kind}:rank={STRUCK_RANK},step={ASKED_STEP}{rest}"
        done, result = self.inject(spec, options=[*SMALL, *NETWORK])
        told = json.dumps({name: result[name] for name in ("verdict", "reasons", "faults", "fault_repeats", "injections")}, indent=1)
        self.assertEqual(done.returncode, 1, done.stderr + told)
        self.assertEqual((result["verdict"], result["injected"]), ("fault", True))
        self.assertIn("--inject", result["reasons"][0])
        self.assertEqual(len(result["injections"]), 1)
        injection = result["injections"][0]
        self.assertEqual((injection["planned"], injection["found"]), (spec, True), told)
        self.assertGreaterEqual(injection["struck_step"], ASKED_STEP)
        self.assertEqual(len(result["faults"]), 1, f"one record, not a flood: {told}")
        fault = result["faults"][0]
        self.assertEqual(fault["rank"], STRUCK_RANK, told)
        self.assertIn(fault["blame"], ("certain", "majority"))
        self.assertIn(fault["kind"], fault_kinds)
        self.assertIn(where, fault["where"])
        if xor:
            self.assertEqual(fault["xor"], xor, told)
        self.assertEqual(done.stderr.count(f"Injected on rank {STRUCK_RANK}, step "), 1, done.stderr)
        self.assertEqual(done.stderr.count("FAULT on rank "), 1, done.stderr)
        self.assertEqual(self.kinds_in_journal(STRUCK_RANK).count("injection"), 1)

    def kinds_in_journal(self, rank):
        return [json.loads(line)["kind"] for line in (self.folder / f"run/journal.rank{rank}.jsonl").read_text().splitlines()]

    def test_several_in_one_run(self):
        done, result = self.inject("memory:rank=0,step=3", "weight:rank=2,step=20", "file-bit:rank=1,step=0")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([(i["kind"], i["rank"], i["found"]) for i in result["injections"]],
                         [("memory", 0, True), ("weight", 2, True), ("file-bit", 1, True)])
        self.assertEqual({(f["kind"], f["rank"]) for f in result["faults"]}, {("memory", 0), ("replica", 2), ("file-bit", 1)})

    def test_a_copy_from_a_peer_is_wrong(self):
        done, result = self.inject("collective:rank=1,step=20,peer=0,bit=5", options=[*SMALL, *NETWORK])
        self.assertEqual(done.returncode, 1, done.stderr)
        fault, = result["faults"]
        self.assertEqual((fault["kind"], fault["rank"], fault["blame"], fault["suspects"], fault["xor"]), ("link", 1, "ambiguous", [0, 1], "0x00000020"))
        self.assertIn("what rank 1 copied from rank 0", fault["where"])
        self.assertEqual([one["found"] for one in result["injections"]], [True])

    def test_fail_fast_ends_the_run_at_the_first_fault(self):
        # Otherwise the run would exceed the timeout of run_program.
        done, result = self.inject("weight:rank=1,step=20", options=["--duration", "300s", "--check-every", "10", "--memory", "0", "--no-io", "--fail-fast"])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(result["faults"]), 1)

    def test_a_moment_before_the_first_step_keeps_what_is_flipped(self):
        small = ["--layers", "32,32,16", "--batch", "16", "--memory", "0", "--no-io", "--check-every", "5", "--steps", "40"]
        done, result = self.inject("optimizer:rank=1,step=0", options=small)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([fault["rank"] for fault in result["faults"]], [1])

    def test_one_that_never_strikes_is_incomplete(self):
        done, result = self.inject("memory:rank=1,step=1000000000", options=["--duration", "2s", "--memory", "64MB", "--no-io"])
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertEqual((result["verdict"], result["injected"], result["faults"]), ("incomplete", True, []))
        self.assertEqual(result["injections"][0]["struck_step"], None)
        self.assertIn("--inject", result["reasons"][0])
        self.assertEqual(result["reasons"][1:], ["injected fault never struck: memory on rank 1, step 1000000000: the run was too short"])


for kind in KINDS:
    setattr(Inject, f"test_{kind.replace('-', '_')}", lambda self, kind=kind: self.check(kind))


if __name__ == "__main__":
    unittest.main()
