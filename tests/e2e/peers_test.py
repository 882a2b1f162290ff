"""A rank whose device is 5 % slower than its peers is reported; equal ranks are not."""
from program import ProgramTest, json, load_tests, os, time, unittest

OTHERS_S = 10  # no other rank may be reported in this time
LIGHT = ["--no-io", "--memory", "0", "--progress", "none"]


class PeersTest(ProgramTest):
    measures = True

    def start_burn(self, seconds, *arguments):
        return self.start_program("burn", "--duration", f"{seconds}s", "--output", "run", *LIGHT, *arguments, ranks=4)

    def outliers(self):
        """Bodies and times of all findings of this kind in rank 0's journal."""
        journal = self.folder / "run" / "journal.rank0.jsonl"
        lines = journal.read_text().split("\n")[:-1] if journal.exists() else []  # the last line may be incomplete
        records = [json.loads(line) for line in lines]
        return [record for record in records if record["kind"] == "finding" and record["body"]["kind"] == "outlier"]

    def struck_at(self, rank):
        lines = (self.folder / "run" / f"journal.rank{rank}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record["time"] for record in records if record["kind"] == "injection"]

    def test_a_rank_that_computes_slower_by_5_percent_is_named(self):
        """After 30 s."""
        process = self.start_burn(180, "--inject", "slow:rank=2,step=20")
        self.wait_for(lambda: self.outliers() or process.poll() is not None)
        time.sleep(OTHERS_S)
        (self.folder / "run" / "stop").touch()
        _, messages = process.communicate(timeout=240)
        result = self.result()
        struck = self.struck_at(2)
        self.assertEqual(len(struck), 1, "it strikes once")
        outliers = self.outliers()
        self.assertEqual([record["body"]["rank"] for record in outliers], [2], messages)
        self.assertEqual(outliers[0]["body"]["where"], "step compute time")
        self.assertGreater(outliers[0]["time"], struck[0])
        self.assertEqual(result["verdict"], "degraded")
        self.assertEqual(process.returncode, 5)
        self.assertIn("rank 2", " ".join(result["reasons"]))

    @unittest.skipUnless(os.environ.get("EGT_LONG_TESTS"), "two minutes; EGT_LONG_TESTS=1 runs it")
    def test_equal_ranks_are_not_named(self):
        _, messages = self.start_burn(60).communicate(timeout=360)
        self.assertEqual(self.outliers(), [])
        self.assertEqual(self.result()["verdict"], "pass", messages)


if __name__ == "__main__":
    unittest.main()
