"""Every fault that the checks should detect is injected, detected, and blamed on the right rank."""
import shutil

from program import *

KINDS = ["weight", "gradient", "activation", "gemm", "extreme", "all-reduce", "collective", "optimizer", "memory", "memory-gemm", "host-copy", "multiprocessor",
         "file-bit", "file-stale", "file-torn", "file-misplaced", "file-lost"]
PERSISTENT = [f"{kind}-persistent" for kind in ("gradient", "activation", "gemm", "extreme", "all-reduce")]
ROWS = KINDS + PERSISTENT
NEED_TWO_RANKS = {"all-reduce", "all-reduce-persistent", "collective"}
LONGEST_LATENCY = 6  # in steps: a period of 4, and 2 until a step is retired
EPOCH = 44  # steps per precision
OWN_PACE = {"memory", "memory-gemm", "host-copy", "multiprocessor", *(kind for kind in KINDS if kind.startswith("file"))}
FOUND_ALL = 0
LIGHT = ["--layers", "32,48,32,32,16", "--extreme-iterations", "1", "--io-size", "1MB", "--memory", "24MB"]


class Selftest(ProgramTest):
    def selftest(self, *arguments, ranks=None):
        done = self.run_program("selftest", "--output", "run", "--io-dir", ".", *arguments, ranks=ranks, timeout=360)
        self.assertEqual(done.returncode, FOUND_ALL, done.stdout + done.stderr)
        return done, self.result()

    def check(self, ranks, kinds, *arguments):
        done, result = self.selftest(*arguments, ranks=ranks)
        self.assertEqual((result["command"], result["verdict"], result["exit_code"]), ("selftest", "pass", 0))
        self.assertTrue(result["injected"], "such a run can never be taken for a clean one")
        entries = {entry["test_name"]: entry for entry in result["results"]}
        self.assertEqual(set(entries), {f"selftest.{kind}" for kind in kinds})
        for kind in kinds:
            self.check_kind(kind, entries[f"selftest.{kind}"], result, ranks or 1)
        self.check_table(done.stdout, kinds)
        self.check_report()
        return result

    def check_report(self):
        text = (self.folder / "run/result.json").read_text()
        (self.folder / "run/result.json").unlink()
        report = self.run_program("report", "run")
        self.assertEqual(report.returncode, FOUND_ALL, report.stdout + report.stderr)
        self.assertEqual((self.folder / "run/result.json").read_text(), text)
        self.assertRegex(self.page(report), "<title>PASS .* selftest [0-9-]+</title>")

    def check_kind(self, kind, entry, result, ranks):
        with self.subTest(kind=kind):
            self.assertTrue(entry["success"])
            self.assertGreater(entry["injected"], 0)
            for count in ("planned", "found", "blamed_rightly"):
                self.assertEqual(entry[count], entry["injected"], count)
            if kind not in OWN_PACE:
                self.assertLessEqual(entry["latency_steps"]["max"], LONGEST_LATENCY)
            struck = [one for one in result["injections"] if one["kind"] + ("-persistent" if "up to the next check" in one["where"] else "") == kind]
            self.assertEqual(len(struck), entry["injected"])
            self.assertEqual({one["rank"] for one in struck}, set(range(ranks)), "every rank had its turn")
            if kind in ("gemm", *PERSISTENT):
                precisions = result["precisions"]
                self.assertEqual({precisions[one["struck_step"] // EPOCH % len(precisions)] for one in struck}, set(precisions))

    def check_table(self, text, kinds):
        for kind in ROWS:
            if kind in PERSISTENT and kind not in kinds:
                continue  # omitted together with its kind
            lines = [line.split() for line in text.splitlines() if line.startswith(f"{kind} ")]
            self.assertEqual(len(lines), 1, text)
            self.assertEqual(lines[0][1] == "left", kind not in kinds, lines[0])

    def check_several(self, ranks, *more):
        result = self.check(ranks, ROWS, *more)
        persistent = sum(entry["injected"] for entry in result["results"] if entry["test_name"].endswith("-persistent"))
        self.assertGreaterEqual(persistent, 100)
        self.assertGreaterEqual(sum(entry["injected"] for entry in result["results"]) - persistent, 500)
        self.assertEqual(result["precisions"], ["bf16", "tf32", "fp16", "fp32", "fp64", "fp8"])
        self.assertEqual(len(result["faults"]), sum(entry["found"] for entry in result["results"]))

    def test_several_ranks(self):
        """With EGT_LONG_TESTS=1 also three and four, a minute or two each."""
        for ranks in (2, 3, 4) if os.environ.get("EGT_LONG_TESTS") else (2,):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.check_several(ranks, *LIGHT)

    def test_one_rank_leaves_out_what_needs_two_and_what_the_options_exclude(self):
        excluded = {kind for kind in KINDS if kind.startswith(("memory", "file"))}
        self.check(None, [kind for kind in ROWS if kind not in NEED_TWO_RANKS | excluded], *LIGHT[:-1], "0", "--no-io", "--precision", "fp32")


if __name__ == "__main__":
    unittest.main()
