"""During the examination of a mismatch of two passes, a random event happens: a rank is killed, hangs, hangs until all
ranks restart, or the run is stopped. The fault must be in the result. EGT_MOMENTS=20 tries 20 moments per event; EGT_SEED
selects other moments."""
import random

from program import *

MOMENTS = int(os.environ.get("EGT_MOMENTS", "1"))
RANKS = 3
STRIKE, CHECK = 290, 300  # all steps up to the check are repeated
TIMEOUT_S = 6  # longer than delays on a busy machine
NETWORK = ["--layers", "32,48,16", "--batch", "16", "--extreme-iterations", "1", "--memory", "0", "--no-io", "--check-every", CHECK, "--progress", "none"]


class Examination(ProgramTest):
    def setUp(self):
        super().setUp()
        self.chosen = random.Random(self.id() + os.environ.get("EGT_SEED", ""))

    def faults_on_disk(self, directory):
        """Faults in all journals; the last line may be incomplete."""
        lines = [line for journal in directory.glob("journal.rank*.jsonl") for line in journal.read_text().split("\n")[:-1]]
        return [record["body"] for record in map(json.loads, lines) if record["kind"] == "fault"]

    def process_of(self, rank):
        for process in self.processes():
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                return process
        self.fail(f"rank {rank} has no process")

    def examine(self, number, disturb, *more):
        """Starts a run, waits for a published mismatch, and disturbs the examination at a random moment."""
        struck = self.chosen.randrange(RANKS)
        directory = self.folder / f"run{number}"
        begun = time.monotonic()
        process = self.start_program(*NETWORK, *more, "--duration", "10m", "--inject", f"gemm:rank={struck},step={STRIKE},bit=24,lasting=once", "--output",
                                     directory.name, ranks=RANKS)
        self.wait_for(lambda: self.faults_on_disk(directory) or process.poll() is not None, 120)
        self.assertTrue(any(fault["provisional"] for fault in self.faults_on_disk(directory)), "it is published before it is examined")
        self.assertIsNone(process.poll())
        # The examination takes less than the start and all steps so far.
        time.sleep(self.chosen.uniform(0, 0.5 * (time.monotonic() - begun)))
        disturb(process, directory)
        out, errors = process.communicate(timeout=120)
        self.wait_for(lambda: not self.processes(), 30)
        return directory.name, process.returncode, out + errors

    def check(self, disturb, *more):
        for number in range(MOMENTS):
            with self.subTest(moment=number):
                directory, code, told = self.examine(number, disturb, *more)
                # A killed rank may leave no result; `report` judges the journals of an interrupted run.
                self.run_program("report", directory)
                result = self.result(directory)
                found = [fault for fault in result["faults"] if (fault["kind"], fault["step"]) == ("replay", STRIKE)]
                self.assertTrue(found, told)
                self.assertEqual((result["verdict"], result["exit_code"]), ("fault", 1), told)
                self.assertEqual(len(result["faults"]), len(found), f"only of this step: {result['faults']}")
                self.assertNotEqual(code, 0, told)

    def test_kill(self):
        self.check(lambda *_: os.kill(self.process_of(self.chosen.randrange(RANKS)), signal.SIGKILL))

    def test_hang(self):
        self.check(lambda *_: os.kill(self.process_of(self.chosen.randrange(RANKS)), signal.SIGSTOP), "--collective-timeout", f"{TIMEOUT_S}s")

    def test_restart(self):
        def stop_for_a_while(_, directory):
            process = self.process_of(self.chosen.randrange(RANKS))
            os.kill(process, signal.SIGSTOP)
            time.sleep(TIMEOUT_S + 2)
            try:
                os.kill(process, signal.SIGCONT)
            except ProcessLookupError:
                pass  # the rank has exited meanwhile
            (directory / "stop").touch()
        self.check(stop_for_a_while, "--collective-timeout", f"{TIMEOUT_S}s")

    def test_stop(self):
        self.check(lambda mpirun, _: mpirun.send_signal(signal.SIGTERM))


if __name__ == "__main__":
    unittest.main()
