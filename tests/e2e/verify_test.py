"""`verify`: every device computes, holds memory and exchanges data. An idle device is detected and reported."""
import re

from program import *

OPERATIONS = ["Training Forward", "Training Backward", "Optimizer Step", "Evaluation Encoding", "Similarity Computation", "Memory Cleanup",
              "Collective", "File Cycle"]
COMPUTING = OPERATIONS[:5]
QUICK = ["--duration", "3s"]


class Verify(ProgramTest):
    def verify(self, *arguments, ranks=None):
        quick = [] if "--duration" in arguments else QUICK
        done = self.run_program("verify", *quick, "--output", "run", *arguments, ranks=ranks)
        return done, self.result(), done.stdout + done.stderr

    def rows(self, text):
        """Rows of the table: the statement per operation."""
        cells = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
        return {row[0]: row[1] for row in cells if len(row) == 3 and row[0] in OPERATIONS}

    def check_report(self, done):
        summary = done.stdout[done.stdout.index("MULTI-CPU"):]
        text = (self.folder / "run/result.json").read_text()
        (self.folder / "run/result.json").unlink()
        report = self.run_program("report", "run")
        self.assertEqual(report.returncode, done.returncode)
        self.assertEqual(report.stdout.strip(), summary.strip())
        self.assertEqual((self.folder / "run/result.json").read_text(), text)

    def test_four_ranks_that_all_work(self):
        done, result, told = self.verify(ranks=4)
        self.assertEqual(done.returncode, 0, told)
        for line in ("MULTI-CPU CONFIGURATION:", "Total CPUs Available: 4", "Multi-CPU Training: ENABLED", "CPU Utilization Check:",
                     "   All 4 CPUs are actively being used!"):
            self.assertIn(line, done.stdout.splitlines())
        for rank in range(4):
            self.assertRegex(done.stdout, rf"\n   CPU {rank}: \d+\.\d\d GB / \d+\.\d GB \(\d+\.\d%\) ACTIVE\n.*computes \d")
        self.assertEqual(self.rows(done.stdout), {operation: "YES" for operation in OPERATIONS})
        self.assertNotIn("\x1b", done.stdout)
        self.assertEqual((result["command"], result["verdict"], result["exit_code"]), ("verify", "pass", 0))
        self.assertEqual(result["test_summary"]["requested_duration_seconds"], 3.0)
        self.assertEqual(result["options"]["check-every"], 10)
        self.assertEqual(done.stderr.count("verify: checks every 10 steps; defaults: --layers "), 1, done.stderr)
        for rank in range(4):
            readiness = self.part(result, "readiness", rank)
            self.assertTrue(readiness["success"])
            for figure in ("evaluations", "similarities", "optimizer_steps", "cleanups"):
                self.assertGreaterEqual(readiness[figure], 2, figure)
        self.assertEqual([file for file in self.files() if not file.startswith("run/")], [])
        self.check_report(done)

    def test_an_idle_rank_is_named(self):
        done, result, told = self.verify("--inject", "idle:rank=2,step=0", ranks=4)
        self.assertEqual(done.returncode, 1, told)
        self.assertRegex(done.stdout, r"\n   CPU 2: .* IDLE\n")
        self.assertRegex(done.stdout, r"\n   1 of 4 CPUs is NOT being used: CPU 2 \(rank 2 on \S+\): a pass took it \S+ ms of computing, and its peers")
        self.assertEqual(len(re.findall("^   CPU [013]: .* ACTIVE$", done.stdout, re.MULTILINE)), 3)
        rows = self.rows(done.stdout)
        self.assertEqual({name for name in OPERATIONS if rows[name] == "NO: rank 2"}, set(COMPUTING), rows)
        self.assertTrue(any(re.match(r"rank 2 on \S+: CPU 2 is not being used", reason) for reason in result["reasons"]), result["reasons"])
        self.assertEqual({fault["rank"] for fault in result["faults"]}, {2})
        self.assertEqual([injection["found"] for injection in result["injections"]], [True])
        self.check_report(done)

    def test_one_rank_without_files(self):
        done, result, told = self.verify("--no-io")
        self.assertEqual(done.returncode, 0, told)
        self.assertIn("Total CPUs Available: 1\nMulti-CPU Training: DISABLED\n", done.stdout)
        self.assertEqual(self.rows(done.stdout), {operation: "-" if operation in ("Collective", "File Cycle") else "YES" for operation in OPERATIONS})

    def test_one_rank_that_is_idle(self):
        done, result, told = self.verify("--inject", "idle:rank=0,step=1")
        self.assertEqual(done.returncode, 1, told)
        self.assertIn("1 of 1 CPUs is NOT being used: CPU 0 (rank 0 on ", done.stdout)
        self.assertEqual([injection["found"] for injection in result["injections"]], [True])

    def test_a_rank_that_hangs_is_named(self):
        done, result, told = self.verify("--duration", "60s", "--collective-timeout", "3s", "--max-restarts", "0", "--inject", "hang:rank=1,step=20",
                                         ranks=3)
        self.assertEqual(done.returncode, 4, told)
        self.assertEqual([loss["rank"] for loss in result["losses"]], [1], told)
        self.assertIn("NOT being used: CPU 1 (rank 1 on ", done.stdout)
        self.assertEqual([reason for reason in result["reasons"] if re.search(r"rank [02] ", reason)], [])

    def test_burn_finds_an_idle_device_too(self):
        done = self.run_program(*SMALL, "--inject", "idle:rank=1,step=10", "--output", "run", ranks=3)
        result = self.result()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual({fault["rank"] for fault in result["faults"]}, {1}, result["faults"])
        self.assertIn("replay", {fault["kind"] for fault in result["faults"]})
        self.assertEqual([injection["found"] for injection in result["injections"]], [True])


if __name__ == "__main__":
    unittest.main()
