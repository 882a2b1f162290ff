"""`--history DIR`: a line per GPU and run, a GPU that became slower is degraded, and `compare --history` shows it."""
import socket

from program import *

PASS, ENVIRONMENT, INCOMPLETE, DEGRADED, INTERRUPTED = 0, 3, 4, 5, 6
# A forward/backward pass takes more than 2 ms; shorter ones are not compared.
RUN = ["burn", "--memory", "0", "--no-io", "--progress", "none", "--history", "history"]
SHORT = [*RUN, "--steps", "10"]


class History(ProgramTest):
    def lines(self):
        return {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in sorted((self.folder / "history").iterdir())}

    def test_a_gpu_below_its_past_is_degraded(self):
        done = self.run_program(*SHORT, "--output", "first", ranks=2)
        self.assertEqual(done.returncode, PASS, done.stdout + done.stderr)
        first = self.lines()
        self.assertEqual(len(first), 2, "a file per device")
        for name, (line,) in first.items():
            self.assertEqual(name, f"{line['id']}.jsonl")
            self.assertEqual((line["run_id"], line["verdict"], line["injected"]), (self.result("first")["run_id"], "pass", False))
            self.assertGreater(line["values"]["compute_tflops"], 0)
            self.assertGreater(line["values"]["compute_ms"], 2)
        self.assertEqual(self.run_program("compare", "--history", "history").returncode, INCOMPLETE, "too few runs")
        # Six earlier runs: rank 0's device was a hundred times faster.
        for name, (line,) in first.items():
            factor = 100 if line["rank"] == 0 else 1e-3
            past = []
            for number in range(6):
                values = dict(line["values"], compute_tflops=line["values"]["compute_tflops"] * factor * (1 + 1e-3 * (number % 2)))
                past.append(json.dumps(dict(line, run_id=f"past{number}", values=values)))
            (self.folder / "history" / name).write_text("\n".join(past) + "\nnot a line\n")
        done = self.run_program(*SHORT, "--output", "second", ranks=2)
        self.assertEqual(done.returncode, DEGRADED, done.stdout + done.stderr)
        result = self.result("second")
        self.assertEqual(result["verdict"], "degraded")
        self.assertEqual([(finding["kind"], finding["rank"]) for finding in result["findings"]], [("history", 0)])
        self.assertIn("compute rate 9", result["reasons"][0])
        self.assertIn("below its own past", done.stdout)
        self.assertIn("1 damaged line ignored", done.stderr)
        self.assertIn("below its own past", (self.folder / "second" / "report.html").read_text())
        self.assertIn("egt_run_findings 1", (self.folder / "second" / "metrics.prom").read_text())
        for name in first:
            text = (self.folder / "history" / name).read_text()
            self.assertEqual(text.count(result["run_id"]), 1, "one line per run")
            self.assertTrue(text.endswith("}\n"))
        before = [(self.folder / "history" / name).read_text() for name in first]
        self.assertEqual(self.run_program("report", "second").returncode, DEGRADED, "from the journals alone")
        self.assertEqual([(self.folder / "history" / name).read_text() for name in first], before)
        done = self.run_program("compare", "--history", "history", "--output", "compared.json")
        self.assertEqual(done.returncode, DEGRADED, done.stdout)
        self.assertIn("slower", done.stdout)
        gpus = json.loads((self.folder / "compared.json").read_text())["gpus"]
        self.assertEqual([bool(gpu["findings"]) for gpu in gpus], [True, False])

    def test_what_cannot_be_used_ends_before_the_load(self):
        (self.folder / "history").write_text("a file")
        done = self.run_program(*SHORT, "--output", "run")
        self.assertEqual(done.returncode, ENVIRONMENT, done.stderr)
        self.assertIn("--history history: cannot be", done.stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_a_full_disk_at_the_end_keeps_the_verdict(self):
        journal, file = self.folder / "run" / "journal.rank0.jsonl", self.folder / "history" / f"{socket.gethostname()}-host-0.jsonl"
        process = self.start_program(*RUN, "--steps", "1000000", "--output", "run")
        self.wait_for(lambda: journal.exists() and '"progress"' in journal.read_text())
        file.symlink_to("/dev/full")
        (self.folder / "run" / "stop").touch()
        out, messages = process.communicate(timeout=120)
        self.assertEqual(process.returncode, INTERRUPTED, messages)
        self.assertIn("--history history: ", messages)
        self.assertEqual(self.result()["verdict"], "interrupted")


if __name__ == "__main__":
    unittest.main()
