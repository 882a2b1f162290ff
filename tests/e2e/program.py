"""Runs the program as a user does, each time in a new empty folder."""
import atexit
import concurrent.futures
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["EGT_PROGRAM"]
MPIRUN = os.environ["EGT_MPIRUN"].split()
SMALL_PARTS = ["--steps", "30", "--memory", "64MB", "--io-size", "8MB", "--io-repeats", "2"]
SMALL = [*SMALL_PARTS, "--layers", "64,96,64,32", "--batch", "32"]  # the default network takes ten times as long
PREFIX = "extreme_gpu_trainer: "
EXTRA_FILES = ["junit.xml", "metrics.prom", "report.html"]
INCOMPLETE, INTERRUPTED = 4, 6
RESULT_FILES = [*EXTRA_FILES, "result.json"]
SCRIPTS = Path(__file__).parents[2] / "scripts"
try:
    import jsonschema
    SCHEMA = jsonschema.Draft202012Validator(json.loads((SCRIPTS.parent / "docs/result.schema.json").read_text()))
except ImportError:  # package python3-jsonschema
    SCHEMA = None
# mpirun removes the common parent of Open MPI's session directories on exit, even while another mpirun creates its own
# there. Hence each test process and each mpirun of command() has its own temporary directory.
TMPDIR = tempfile.mkdtemp(prefix="egt_")
os.chmod(TMPDIR, 0o755)  # munged and other users' programs need to reach their files in it
atexit.register(shutil.rmtree, TMPDIR, ignore_errors=True)
os.environ["TMPDIR"] = tempfile.tempdir = TMPDIR


def has_ended(process):
    """True if all its threads have exited; the first one stays a zombie until its exit code is read."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{process}/task")) == 1
    except OSError:
        return True


def cpu_seconds():
    """Of all ended descendants that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_schema(result):
    """Raises an error if the schema refuses the result."""
    if SCHEMA:
        SCHEMA.validate(result)


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def cases_of(tests):
    return [case for test in tests for case in cases_of(test)] if isinstance(tests, unittest.TestSuite) else [tests]


def measures(case):
    return getattr(case, "measures", False)  # an import failure is also a case


def load_tests(_loader, tests, _pattern):
    """Selects the part of a suite that ctest runs. EGT_PART "2/3": every third case from the second on. "alone":
    classes that measure speed (`measures`). "2/3 others": part of the other classes. Without it: all cases."""
    part, *others = os.environ.get("EGT_PART", "1/1").split()
    cases = cases_of(tests)
    if part == "alone":
        return unittest.TestSuite(case for case in cases if measures(case))
    number, count = map(int, part.split("/"))
    return unittest.TestSuite([case for case in cases if not (others and measures(case))][number - 1::count])


class ProgramTest(unittest.TestCase):
    measures = False  # the class measures speed or has timeouts of 2 s, so it needs the machine exclusively

    def setUp(self):
        begun, cpu = time.monotonic(), cpu_seconds()
        self.addCleanup(lambda: print(f"{self.id()}: {time.monotonic() - begun:.1f} s, of CPUs {cpu_seconds() - cpu:.1f} s", file=sys.stderr))
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
        """(item, run(item, folder), folder) for each item; runs several concurrently, each in its own folder."""
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
        """run.sh with the existing program: nothing is installed or built."""
        scripts = self.folder / "root/scripts"
        scripts.mkdir(parents=True)
        # Links avoid "text file busy": a newly written file may still be open in the child of another thread.
        (scripts / "run.sh").symlink_to(SCRIPTS / "run.sh")
        for name in ("setup.sh", "build.sh"):
            (scripts / name).symlink_to(shutil.which("true"))
        (self.folder / "root/build").mkdir()
        (self.folder / "root/build/extreme_gpu_trainer").symlink_to(PROGRAM)
        return scripts / "run.sh"

    def files(self):
        """Relative paths of all files below the folder."""
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())

    def run_files(self, ranks):
        """Files in a run's directory on a shared disk."""
        return sorted(f"run/{name}" for name in RESULT_FILES + [f"journal.rank{rank}.jsonl" for rank in range(ranks)])

    def result(self, directory="run"):
        result = json.loads((self.folder / directory / "result.json").read_text(), parse_constant=refuse_constant)
        check_schema(result)
        return result

    def check_interrupted(self, directory="run"):
        """Checks a run after a signal to mpirun, which kills its ranks one second later. On a busy machine only journals may remain,
        or a result written shortly before the kill."""
        if (self.folder / directory / "result.json").exists() and self.result(directory)["verdict"] != "interrupted":
            self.assertIn("this was written before the end: the command report judges the journals", self.result(directory)["reasons"])
        self.assertIn(self.run_program("report", directory).returncode, (INCOMPLETE, INTERRUPTED))

    def page(self, done, directory="run"):
        """The run's report.html, as given in the last output lines."""
        self.assertIn(f"Files: {directory}/report.html, {directory}/result.json, ", done.stdout)
        return (self.folder / directory / "report.html").read_text()

    def processes(self):
        """Processes of this test's runs, whose working folder is unique. A process seen once counts until its last thread
        has exited: a thread that waits for the disk outlives the others and keeps the file locks."""
        self.seen |= {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self.is_ours(entry)}
        self.seen = {process for process in self.seen if not has_ended(process)}
        return sorted(self.seen)

    def is_ours(self, process):
        try:
            return (process / "cwd").resolve() == self.folder.resolve()
        except OSError:
            return False  # the process has exited meanwhile

    def part(self, result, name, rank=0):
        return next(p for p in result["results"] if p["test_name"] == name and p["rank"] == rank)

    def wait_for(self, condition, seconds=300):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not come in time")
            time.sleep(0.05)

    def program_lines(self, completed):
        return [line for line in completed.stderr.splitlines() if line.startswith(PREFIX)]


__all__ = ["EXTRA_FILES", "PREFIX", "RESULT_FILES", "SCRIPTS", "SMALL", "SMALL_PARTS", "Path", "ProgramTest", "json", "load_tests", "os", "signal", "subprocess", "time", "unittest"]
