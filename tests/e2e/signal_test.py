"""A stop in mid-run: quick, clean, and reported."""
from program import *

INTERRUPTED = 6
LONG = ["--duration", "10m", "--memory", "64MB", "--io-size", "64MB", "--io-every", "1", "--io-repeats", "50", "--io-dir", ".", "--output", "run"]


class Signals(ProgramTest):
    def start_and_signal(self, number, ranks, delay=2.0):
        process = self.start_program(*LONG, ranks=ranks)
        self.wait_for(lambda: any(".tmp" in name for name in self.files()))
        time.sleep(delay)
        started = time.monotonic()
        process.send_signal(number)
        process.wait(timeout=20)
        self.seconds = time.monotonic() - started
        return process

    def check_left_behind(self, size):
        self.assertLess(self.seconds, 5.0)
        self.assertEqual(set(self.files()), {"run/result.json"} | {f"run/journal.rank{r}.jsonl" for r in range(size)})
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"]), ("interrupted", INTERRUPTED))
        steps = {self.part(result, "train", rank)["steps"] for rank in range(size)}
        self.assertEqual(len(steps), 1, "all ranks left after the same step")
        self.assertGreater(steps.pop(), 0)

    def test_alone(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                self.setUp()
                process = self.start_and_signal(number, None)
                self.assertEqual(process.returncode, INTERRUPTED)
                self.check_left_behind(1)

    def test_mpirun(self):
        # Open MPI's own mpirun, signalled itself, gives the ranks one second and always ends with 1.
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                self.setUp()
                process = self.start_and_signal(number, 2)
                self.assertIn(process.returncode, (1, INTERRUPTED))
                self.check_left_behind(2)

    def test_a_signal_that_mpirun_forwards_keeps_the_code(self):
        process = self.start_and_signal(signal.SIGUSR1, 2)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.check_left_behind(2)

    def test_one_rank_of_two(self):
        process = self.start_program(*LONG, ranks=2)
        self.wait_for(lambda: (self.folder / "run/journal.rank1.jsonl").exists())
        time.sleep(2)
        ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        started = time.monotonic()
        os.kill(int(ranks[-1]), signal.SIGTERM)
        process.wait(timeout=20)
        self.seconds = time.monotonic() - started
        self.assertEqual(process.returncode, INTERRUPTED)
        self.check_left_behind(2)


if __name__ == "__main__":
    unittest.main()
