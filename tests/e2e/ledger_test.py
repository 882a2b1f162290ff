"""The ledger of hardware counters: an error that the hardware itself tells is a fault, with rank, step and phase."""
from program import *

RUN = ["--layers", "33,64,17", "--batch", "8", "--steps", "30", "--memory", "64MB", "--no-io"]
CONTRACT = ["ecc_corrected", "ecc_uncorrected", "remapped_rows", "remap_pending", "remap_failure", "pcie_replay",
            "nvlink_crc", "nvlink_replay", "nvlink_recovery"]


class Ledger(ProgramTest):
    def inject(self, kind):
        spec = f"{kind}:rank=1,step=5"
        done = self.run_program(*RUN, "--inject", spec, "--output", "run", ranks=2)
        result = self.result()
        told = done.stderr + json.dumps({name: result[name] for name in ("verdict", "reasons", "faults", "injections", "counters")}, indent=1)
        self.assertEqual((done.returncode, result["verdict"]), (1, "fault"), told)
        self.assertEqual([(i["planned"], i["found"], i["mask"]) for i in result["injections"]], [(spec, True, None)], told)
        self.assertGreaterEqual(result["injections"][0]["struck_step"], 5, told)
        self.assertEqual([(f["kind"], f["rank"], f["blame"]) for f in result["faults"]], [(kind, 1, "certain")], told)
        self.assertEqual(done.stderr.count("FAULT on rank "), 1, done.stderr)
        fault = result["faults"][0]
        self.assertGreaterEqual(fault["step"], 5, told)
        self.assertTrue(fault["phase"], told)
        return fault, result, told

    def test_an_uncorrectable_memory_error(self):
        fault, result, told = self.inject("ecc")
        self.assertEqual((fault["expected"], fault["actual"], fault["count"]), ("0", "1", 1), told)
        counter = result["counters"]["1"]["ecc_uncorrected"]
        self.assertEqual((counter["before"], counter["after"], sum(counter["moved"].values())), (0, 1, 1), told)
        self.assertNotIn("moved", result["counters"]["0"]["ecc_uncorrected"], told)

    def test_an_xid(self):
        fault, result, told = self.inject("xid")
        self.assertEqual(fault["actual"], "48", told)
        self.assertIn("Xid 48", fault["where"], told)
        self.assertEqual([(x["xid"], x["step"], x["phase"]) for x in result["counters"]["1"]["xid"]],
                         [(48, fault["step"], fault["phase"])], told)
        self.assertEqual(result["counters"]["0"]["xid"], [], told)

    def test_a_run_without_errors(self):
        done = self.run_program(*RUN, "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        counters = self.result()["counters"]
        self.assertEqual(sorted(counters), ["0", "1"])
        for of_rank in counters.values():
            for name in CONTRACT:
                self.assertEqual(set(of_rank[name]), {"before", "after"}, name)
            self.assertEqual((of_rank["xid"], of_rank["nvlinks"]), (None, []))


if __name__ == "__main__":
    unittest.main()
