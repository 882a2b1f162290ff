"""`report` and `compare` on recorded run directories (tests/corpus) must reproduce the recorded outputs byte for byte. After
an intended change of an output, EGT_RECORD=1 records them again; git shows the difference."""
import lzma
import shutil

from program import *
from program import SCHEMA

CORPUS = Path(__file__).parents[1] / "corpus"
OUTPUTS = ["result.json", "junit.xml", "metrics.prom", "nodes.txt"]
RECORD = os.environ.get("EGT_RECORD") == "1"


class Corpus(ProgramTest):
    maxDiff = 4000

    def unpack(self, recorded):
        run = self.folder / recorded.name
        run.mkdir()
        for journal in recorded.glob("journal.*.xz"):
            (run / journal.stem).write_bytes(lzma.decompress(journal.read_bytes()))
        return run

    def check(self, recorded, outputs):
        for name, text in outputs.items():
            with self.subTest(recorded=recorded.name, output=name):
                if RECORD:
                    (recorded / name).write_text(text)
                self.assertEqual((recorded / name).read_text(), text)

    def report(self, recorded, folder):
        """Prints and writes of `report` for the recorded journals."""
        run = self.unpack(recorded)
        done = self.run_program("report", run.name, "--nodes-file", f"{run.name}/nodes.txt", "--ocp", f"{run.name}/ocp.jsonl", timeout=120)
        printed = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        self.check_ocp([json.loads(line) for line in (run / "ocp.jsonl").read_text().splitlines()], json.loads((run / "result.json").read_text()))
        return {"console.txt": printed, **{name: (run / name).read_text() for name in OUTPUTS}}

    def check_ocp(self, lines, result):
        """What the JSON Schema states, and what the specification adds."""
        if SCHEMA:
            schema = type(SCHEMA)(json.loads((Path(__file__).parent / "ocp.schema.json").read_text()))
            for line in lines:
                schema.validate(line)
        self.assertEqual([line["sequenceNumber"] for line in lines], list(range(len(lines))))
        self.assertIn("schemaVersion", lines[0])
        self.assertEqual([list(line["testRunArtifact"])[0] for line in (lines[1], lines[-1])], ["testRunStart", "testRunEnd"])
        hardware = {info["hardwareInfoId"] for info in lines[1]["testRunArtifact"]["testRunStart"]["dutInfo"]["hardwareInfos"]}
        begun, ended, types = [], [], set()
        for step in (line["testStepArtifact"] for line in lines if "testStepArtifact" in line):
            begun += [step["testStepId"]] * ("testStepStart" in step)
            self.assertEqual(step["testStepId"], begun[-1])
            ended += [step["testStepId"]] * ("testStepEnd" in step)
            types.add(step.get("diagnosis", {}).get("type"))
            for one in step.values():
                self.assertIn(one.get("hardwareInfoId", min(hardware)) if isinstance(one, dict) else min(hardware), hardware)
        self.assertEqual((begun, len(begun)), (ended, len(result["results"]) + 1))
        found = {"pass": ("COMPLETE", "PASS"), "fault": ("COMPLETE", "FAIL"), "degraded": ("COMPLETE", "FAIL"), "incomplete": ("ERROR", "NOT_APPLICABLE"),
                 "interrupted": ("SKIP", "NOT_APPLICABLE")}[result["verdict"]]
        self.assertEqual(tuple(lines[-1]["testRunArtifact"]["testRunEnd"][key] for key in ("status", "result")), found)
        self.assertEqual("PASS" in types and "UNKNOWN" not in types and "FAIL" not in types, result["verdict"] == "pass")
        if result["injected"] or result["command"] == "selftest":
            self.assertNotIn("FAIL", types, "an injected fault is no fault of the hardware")

    def test_reports_and_comparisons(self):
        recorded = sorted(path for path in CORPUS.iterdir() if path.is_dir())
        self.assertGreaterEqual(len(recorded), 14)
        for directory, outputs, _ in self.side_by_side(recorded, self.report):
            self.check(directory, outputs)
        for baseline, candidate in (("burn-one-rank", "burn-two-hosts"), ("bench", "parallel")):
            written = self.folder / "comparison.json"
            done = self.run_program("compare", baseline, candidate, "--output", written, folder=CORPUS)
            printed = f"exit code {done.returncode}\n{done.stdout}{done.stderr}".replace(str(written), "comparison.json")
            self.check(CORPUS / candidate, {"compare.txt": printed, "compare.json": written.read_text()})


if __name__ == "__main__":
    unittest.main(verbosity=2)
