"""Effects of libraries on a process. If no thread can be created, as under a process limit: exit 3 with the reason for any thread, and
no hang. A thread that is needed only after some steps (for a stream's share of the cores) leaves an incomplete run: 4. Also: no memory
for a thread, and GEMMs that hang."""
from program import *

PASS, FAULT, ENVIRONMENT, INCOMPLETE, INTERRUPTED = 0, 1, 3, 4, 6
TINY = ["--layers", "16,8", "--batch", "8", "--memory", "64MB", "--io-size", "1MB", "--io-repeats", "1", "--steps", "20", "--log-file", "log",
        "--output", "run"]
MOST = 40  # far more threads than a rank starts
AT_ONCE = 4  # concurrent runs


class Threads(ProgramTest):
    def steps(self, folder):
        """Number of steps that any rank reached."""
        records = [json.loads(line) for path in folder.glob("run/journal.rank*") for line in path.read_text().splitlines()]
        return max((record["body"]["steps"] for record in records if record["kind"] == "end"), default=0)

    def check_each(self, ranks):
        def run(threads, folder):
            return self.run_program(*TINY, ranks=ranks, timeout=240, folder=folder,
                                    environment={"LD_PRELOAD": os.environ["EGT_FEW_THREADS"], "EGT_THREADS": str(threads)})
        # MPI startup alone needs a dozen threads.
        counts = [0, *range(11, MOST, 1 if "EGT_LONG_TESTS" in os.environ else 3)]
        for first in range(0, len(counts), AT_ONCE):
            for threads, done, folder in self.side_by_side(counts[first:first + AT_ONCE], run, AT_ONCE):
                with self.subTest(threads=threads, ranks=ranks):
                    if done.returncode == PASS:
                        self.assertGreater(threads, 16, "the limit was in nobody's way")
                        return
                    self.check_refused(done, folder)
        self.fail("it never got all the threads that it wants")

    def check_refused(self, done, folder):
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, INCOMPLETE if self.steps(folder) > 0 else ENVIRONMENT, told)
        self.assertRegex(told, "no thread for .*: Resource temporarily unavailable; raise the limit that is reached: ")
        left = {"run", "log"} if "Verdict" in told else set()
        self.assertEqual({path.name for path in folder.iterdir()}, left, told)

    def test_memory_that_a_thread_does_not_get(self):
        for kind, code in [("epoch", INCOMPLETE), ("fault", FAULT)]:
            with self.subTest(kind=kind):
                (self.folder / "now").unlink(missing_ok=True)
                inject = ["--inject", "memory:rank=0,step=5"] if kind == "fault" else []
                process = self.start_program(*TINY[:6], "--no-io", "--duration", "2m", "--output", kind, *inject,
                                             environment={"LD_PRELOAD": os.environ["EGT_FEW_THREADS"], "EGT_NO_MEMORY": "now"})
                journal = self.folder / kind / "journal.rank0.jsonl"
                while not (journal.exists() and f'"kind":"{kind}"' in journal.read_text()):
                    self.assertIsNone(process.poll(), "it ended before its first steps")
                    time.sleep(0.1)
                (self.folder / "now").touch()
                told = process.communicate(timeout=100)[1]
                self.assertEqual(process.returncode, code, told)
                self.assertIn("extreme_gpu_trainer: the host has no memory left for this process; give it more, or look at ulimit -v", told)
                self.assertEqual(self.run_program("report", kind).returncode, code)

    def test_a_signal_ends_a_start_that_hangs_and_nothing_stays(self):
        process = self.start_program(*TINY, environment={"LD_PRELOAD": os.environ["EGT_FEW_THREADS"], "EGT_NO_PRODUCTS": "run/journal.rank0.jsonl"})
        self.wait_for(lambda: (self.folder / "run/journal.rank0.jsonl").exists())
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=40)[1]  # waiting for the GEMMs alone would take longer
        self.assertEqual(process.returncode, INTERRUPTED, told)
        self.assertIn("extreme_gpu_trainer: stopped by SIGTERM before the run began", told)
        self.assertEqual([path.name for path in self.folder.iterdir()], [])

    def test_alone(self):
        self.check_each(None)

    def test_two_ranks(self):
        self.check_each(2)


if __name__ == "__main__":
    unittest.main()
