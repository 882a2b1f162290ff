"""`report` and `compare` on recorded run directories (tests/corpus) must reproduce the recorded outputs byte for byte. After
an intended change of an output, EGT_RECORD=1 records them again; git shows the difference."""
import lzma
import shutil

from program import *

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
        done = self.run_program("report", run.name, "--nodes-file", f"{run.name}/nodes.txt", timeout=120)
        printed = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return {"console.txt": printed, **{name: (run / name).read_text() for name in OUTPUTS}}

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
