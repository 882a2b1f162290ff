"""Runs the program as a user would, each time in an empty folder of its own."""
import atexit
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["EGT_PROGRAM"]
MPIRUN = os.environ["EGT_MPIRUN"].split()
SMALL = ["--steps", "30", "--memory", "64MB", "--io-size", "8MB", "--io-repeats", "2"]
PREFIX = "extreme_gpu_trainer: "
EXTRA_FILES = ["junit.xml", "metrics.prom", "report.html"]
INCOMPLETE, INTERRUPTED = 4, 6
RESULT_FILES = [*EXTRA_FILES, "result.json"]
SCRIPTS = Path(__file__).parents[2] / "scripts"
# mpirun removes the common parent of Open MPI's session directories at its end, also while another mpirun creates its
# own there. So each process of tests has its own temporary directory, and each mpirun of command() has one, too.
TMPDIR = tempfile.mkdtemp(prefix="egt_")
atexit.register(shutil.rmtree, TMPDIR, ignore_errors=True)
os.environ["TMPDIR"] = tempfile.tempdir = TMPDIR


def has_ended(process):
    """All its threads have, but for the first, which stays a zombie until somebody asks for its exit code."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{process}/task")) == 1
    except OSError:
        return True


def cases_of(tests):
    return [case for test in tests for case in cases_of(test)] if isinstance(tests, unittest.TestSuite) else [tests]


def measures(case):
    return getattr(case, "measures", False)  # what could not be loaded is a case, too


def load_tests(_loader, tests, _pattern):
    """ctest runs a suite in parts. EGT_PART: "2/3", every third case from the second on; "alone", of those classes that
    measure how fast something is (`measures`); "2/3 others", of the other classes. Without it: all cases."""
    part, *others = os.environ.get("EGT_PART", "1/1").split()
    cases = cases_of(tests)
    if part == "alone":
        return unittest.TestSuite(case for case in cases if measures(case))
    number, count = map(int, part.split("/"))
    return unittest.TestSuite([case for case in cases if not (others and measures(case))][number - 1::count])


class ProgramTest(unittest.TestCase):
    measures = False  # how fast something is, or has timeouts of 2 s: such a class wants the machine for itself

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="egt_e2e_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.seen = set()

    def command(self, arguments, ranks=None):
        launcher = MPIRUN + ["--mca", "orte_tmpdir_base", tempfile.mkdtemp(), "-np", str(ranks)] if ranks else []
        return launcher + [PROGRAM, *map(str, arguments)]

    def run_program(self, *arguments, ranks=None, timeout=300, environment=None, folder=None):
        return subprocess.run(self.command(arguments, ranks), cwd=folder or self.folder, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})

    def side_by_side(self, items, run, at_once=4):
        """(item, run(item, folder), folder) of each: several at once, each in a folder of its own."""
        folders = [Path(tempfile.mkdtemp(prefix="side", dir=self.folder)) for _ in items]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(zip(items, pool.map(run, items, folders), folders))

    def start_program(self, *arguments, ranks=None, environment=None):
        process = subprocess.Popen(self.command(arguments, ranks), cwd=self.folder, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def make_script(self):
        """run.sh with the program that is there: nothing is installed or built."""
        scripts = self.folder / "root/scripts"
        scripts.mkdir(parents=True)
        # Links: a file that was just written is busy while another thread's child starts.
        (scripts / "run.sh").symlink_to(SCRIPTS / "run.sh")
        for name in ("setup.sh", "build.sh"):
            (scripts / name).symlink_to(shutil.which("true"))
        (self.folder / "root/build").mkdir()
        (self.folder / "root/build/extreme_gpu_trainer").symlink_to(PROGRAM)
        return scripts / "run.sh"

    def files(self):
        """All files below the folder, as paths relative to it."""
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())

    def run_files(self, ranks):
        """Those of the directory of a run on a common disk."""
        return sorted(f"run/{name}" for name in RESULT_FILES + [f"journal.rank{rank}.jsonl" for rank in range(ranks)])

    def result(self, directory="run"):
        return json.loads((self.folder / directory / "result.json").read_text())

    def check_interrupted(self, directory="run"):
        """After a signal to mpirun, which kills its ranks a second later: on a busy machine their journals may be all there is, or a
        result that was written when that second was nearly over."""
        if (self.folder / directory / "result.json").exists() and self.result(directory)["verdict"] != "interrupted":
            self.assertIn("this was written before the end: the command report judges the journals", self.result(directory)["reasons"])
        self.assertIn(self.run_program("report", directory).returncode, (INCOMPLETE, INTERRUPTED))

    def page(self, done, directory="run"):
        """Its report.html, which the last words name."""
        self.assertIn(f"Files: {directory}/report.html, {directory}/result.json, ", done.stdout)
        return (self.folder / directory / "report.html").read_text()

    def processes(self):
        """Of this test's runs: their working folder is its own. One that was seen counts until its last thread has ended:
        a thread that waits for the disk outlives the others, and holds the locks of the files."""
        self.seen |= {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self.is_ours(entry)}
        self.seen = {process for process in self.seen if not has_ended(process)}
        return sorted(self.seen)

    def is_ours(self, process):
        try:
            return (process / "cwd").resolve() == self.folder.resolve()
        except OSError:
            return False  # it ended meanwhile

    def part(self, result, name, rank=0):
        return next(p for p in result["results"] if p["test_name"] == name and p["rank"] == rank)

    def wait_for(self, condition, seconds=300):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not come in time")
            time.sleep(0.05)

    def program_lines(self, completed):
        return [line for line in completed.stderr.splitlines() if line.startswith(PREFIX)]


__all__ = ["EXTRA_FILES", "PREFIX", "RESULT_FILES", "SCRIPTS", "SMALL", "Path", "ProgramTest", "json", "load_tests", "os", "signal", "subprocess", "time", "unittest"]
