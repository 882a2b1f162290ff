"""Hardware error counters: an error that the hardware reports is a fault with rank, step and phase."""
from program import *

RUN = ["--layers", "33,64,17", "--batch", "8", "--steps", "30", "--memory", "64MB", "--no-io"]


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
        self.assertEqual(done.stderr.count("FAULT CPU 1 ("), 1, done.stderr)
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

    def test_a_storm_of_corrected_errors_is_degraded_in_acceptance(self):
        spec = "ecc-corrected:rank=1,step=5,count=200"
        done = self.run_program("--preset", "acceptance", *RUN, "--inject", spec, "--output", "run", ranks=2)
        result = self.result()
        told = done.stdout + done.stderr
        self.assertEqual((done.returncode, result["verdict"]), (5, "degraded"), told)
        self.assertEqual([(i["planned"], i["found"]) for i in result["injections"]], [(spec, True)], told)
        finding = next(f for f in result["findings"] if "limit" in f["text"])
        self.assertEqual((finding["kind"], finding["rank"], finding["expected"]), ("ecc", 1, 100), told)
        self.assertIn("new corrected memory errors (ECC) within an hour, the limit is 100", told)

    def check_device_error(self, ranks, rank, step, count):
        spec = f"device-error:rank={rank},step={step}" + (f",count={count}" if count > 1 else "")
        output = f"run{ranks}.{rank}.{step}"
        done = self.run_program(*RUN, "--inject", spec, "--output", output, ranks=ranks)
        result = self.result(output)
        told = done.stderr + json.dumps({name: result[name] for name in ("verdict", "reasons", "faults", "injections")}, indent=1)
        self.assertEqual((done.returncode, result["exit_code"], result["verdict"]), (1, 1, "fault"), told)
        self.assertEqual([(i["planned"], i["found"]) for i in result["injections"]], [(spec, True)], told)
        uuids = {r["rank"]: r["device"]["uuid"] for r in result["ranks"]}
        self.assertEqual([(f["kind"], f["detector"], f["rank"], f["device_uuid"], f["actual"], f["blame"]) for f in result["faults"]],
                         [("device-error", "CUDA", rank, uuids[rank], "214", "certain")], told)
        self.assertIn("cudaErrorECCUncorrectable", result["faults"][0]["where"], told)
        self.assertTrue(result["faults"][0]["phase"], told)
        self.assertEqual(result["restarts"], [], "a device that failed cannot restart")
        return result["faults"][0]

    def test_an_error_of_the_device(self):
        steps_under_way = 3  # the wait may be for an earlier step
        for ranks, rank, step, count in [(1, 0, 12, 1), (1, 0, 3, 250), (2, 1, 20, 40), (3, 0, 10, 77), (3, 2, 25, 3)]:
            with self.subTest(ranks=ranks, rank=rank, step=step, count=count):
                self.assertGreaterEqual(self.check_device_error(ranks, rank, step, count)["step"], step - steps_under_way)

    def test_an_error_of_the_device_before_the_first_step(self):
        """At the very first call, and while the workloads allocate memory."""
        for ranks, rank, count in [(1, 0, 1), (2, 1, 1), (3, 1, 60)]:
            with self.subTest(ranks=ranks, rank=rank, count=count):
                fault = self.check_device_error(ranks, rank, 0, count)
                self.assertEqual((fault["phase"], fault["step"]), ("start", None))


if __name__ == "__main__":
    unittest.main()
