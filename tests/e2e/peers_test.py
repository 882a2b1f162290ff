"""A rank whose device is 5 % slower is named beside its peers; equal ranks are not."""
from program import ProgramTest, json, os, unittest

LIGHT = ["--no-io", "--memory", "0", "--progress", "none"]


class PeersTest(ProgramTest):
    def burn(self, seconds, *arguments):
        completed = self.run_program("burn", "--duration", f"{seconds}s", "--output", "run", *LIGHT, *arguments,
                                     ranks=4, timeout=4 * seconds + 120)
        return completed, self.result()

    def outliers(self):
        """The bodies and times of all findings of this kind in rank 0's journal."""
        lines = (self.folder / "run" / "journal.rank0.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record for record in records if record["kind"] == "finding" and record["body"]["kind"] == "outlier"]

    def struck_at(self, rank):
        lines = (self.folder / "run" / f"journal.rank{rank}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record["time"] for record in records if record["kind"] == "injection"]

    def test_a_rank_that_computes_slower_by_5_percent_is_named_within_a_minute(self):
        completed, result = self.burn(75, "--inject", "slow:rank=2,step=20")
        struck = self.struck_at(2)
        self.assertEqual(len(struck), 1, "it strikes once")
        outliers = self.outliers()
        self.assertEqual([record["body"]["rank"] for record in outliers], [2], completed.stderr)
        self.assertEqual(outliers[0]["body"]["where"], "step compute time")
        self.assertLess(outliers[0]["time"] - struck[0], 60)
        self.assertEqual(result["verdict"], "degraded")
        self.assertEqual(completed.returncode, 5)
        self.assertIn("rank 2", " ".join(result["reasons"]))

    @unittest.skipUnless(os.environ.get("EGT_LONG_TESTS"), "two minutes; EGT_LONG_TESTS=1 runs it")
    def test_equal_ranks_are_not_named(self):
        completed, result = self.burn(60)
        self.assertEqual(self.outliers(), [])
        self.assertEqual(result["verdict"], "pass", completed.stderr)


if __name__ == "__main__":
    unittest.main()
