"""Ranks that hang, are stopped or killed, and temporary stalls. EGT_STALL_ROUNDS=20 repeats each loss 20 times."""
import shutil

from program import *

ROUNDS = int(os.environ.get("EGT_STALL_ROUNDS", "1"))
TIMEOUT_S = 3
STEP = 20
HOW = {"hang": "stuck", "stop": "silent", "kill": "vanished"}
SMALL_NETWORK = ["--layers", "32,48,16", "--batch", "16", "--io-size", "1MB", "--collective-timeout", f"{TIMEOUT_S}s"]
# If a rank cannot report its phase, its peers know the phase of a moment before.
PHASES = {"hang": ("step",), "stop": ("step", "train", "checks", "collective", "start"), "kill": ("step", "train", "checks", "collective", "start")}


class Stall(ProgramTest):
    def lose(self, kind, rank, *more, memory="0"):
        """With memory in one case only: it takes all spare cores. signal_test.py and hosts_test.py combine it with kills."""
        directory = f"{kind}{rank}"
        done = self.run_program(*SMALL_NETWORK, "--memory", memory, "--duration", "120s", "--inject", f"{kind}:rank={rank},step={STEP}",
                                "--output", directory, *more, ranks=3)
        self.wait_for(lambda: not self.processes(), 30)
        told = done.stdout + done.stderr
        if kind == "kill":  # mpirun detects it before any survivor exits with 4, and reports the signal
            self.assertEqual(done.returncode, 128 + signal.SIGKILL, told)
            if not (self.folder / directory / "result.json").exists():  # mpirun was faster than the surviving ranks
                self.assertEqual(self.run_program("report", directory).returncode, 4)
        else:
            self.assertEqual(done.returncode, 4, told)
            self.assertIn('Verdict: incomplete (exit code 4)', self.page(done, directory))
        result = self.result(directory)
        self.assertEqual((result["verdict"], result["exit_code"]), ("incomplete", 4), told)
        return result, done, directory

    def check_loss(self, kind, rank, result):
        told = json.dumps({name: result[name] for name in ("reasons", "losses", "injections")})
        self.assertEqual([(loss["rank"], loss["how"]) for loss in result["losses"]], [(rank, HOW[kind])], told)
        loss = result["losses"][0]
        self.assertTrue(loss["phase"].startswith(PHASES[kind]), told)
        if kind == "hang":
            self.assertEqual(loss["step"], STEP, told)
        self.assertTrue(loss["hostname"], told)
        self.assertEqual([injection["found"] for injection in result["injections"]], [True], told)
        self.assertEqual(sum(f"rank {rank} " in reason for reason in result["reasons"]), 1, told)
        self.assertFalse(any(f"rank {other} " in reason for other in range(3) if other != rank for reason in result["reasons"]), told)

    def check_report(self, directory):
        report = self.run_program("report", directory)
        self.assertEqual(report.returncode, 4, report.stdout + report.stderr)
        self.assertEqual(self.result(directory)["verdict"], "incomplete")

    def check_rounds_of(self, kind, rank):
        for number in range(ROUNDS):
            shutil.rmtree(self.folder / f"{kind}{rank}", ignore_errors=True)
            with self.subTest(round=number):
                result, _, directory = self.lose(kind, rank, "--max-restarts", "0")
                self.check_loss(kind, rank, result)
                self.check_report(directory)
                if kind == "hang":  # a stopped or killed rank cannot remove its file; the next run removes it
                    self.assertEqual([f for f in self.files() if not f.startswith(kind)], [])

    def test_a_rank_that_hangs_for_good_is_lost_after_the_restart_that_it_does_not_come_to(self):
        result, _, _ = self.lose("hang", 1, memory="64MB")
        self.check_loss("hang", 1, result)

    def check_device_that_hangs(self, rank):
        done = self.run_program(*SMALL_NETWORK, "--memory", "0", "--duration", "120s", "--inject",
                                f"hang:rank={rank},step={STEP},layer=1", "--output", "run", ranks=3)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        losses = self.result()["losses"]
        self.assertEqual([(loss["rank"], loss["phase"]) for loss in losses], [(rank, "train: pass")], done.stdout + done.stderr)

    def test_a_rank_that_is_stopped_at_its_end_record_is_named_and_not_those_that_wait_for_it(self):
        done = self.run_program(*SMALL_NETWORK, "--memory", "0", "--steps", str(STEP), "--output", "run", ranks=3, environment={
            "LD_PRELOAD": os.environ["EGT_FEW_THREADS"], "EGT_STOPPED_RANK": "1", "EGT_STOPPED_AT": '"kind":"end"'})
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual([(loss["rank"], loss["how"]) for loss in result["losses"]], [(1, "silent")], result["reasons"])
        self.assertEqual([node["reasons"] for node in result["nodes"]], [result["reasons"]])
        self.assertIn("rank 1 ", result["reasons"][0])

    def digests(self, directory):
        return [self.part(self.result(directory), "train", rank)["weight_digest"] for rank in range(3)]

    def test_a_stall_that_passes_costs_one_restart_and_changes_no_result(self):
        steps = [*SMALL_NETWORK, "--steps", "120"]
        clean = self.run_program(*steps, "--memory", "0", "--output", "clean", ranks=3)
        self.assertEqual(clean.returncode, 0, clean.stderr)
        for kind, rank in (("hang", 1), ("stop", 2), ("stop", 0)):
            with self.subTest(kind=kind, rank=rank):
                directory = f"{kind}{rank}"
                done = self.run_program(*steps, "--memory", "64MB" if kind == "hang" else "0", "--inject", f"{kind}:rank={rank},step=50,ms=5000", "--output", directory, ranks=3)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                result = self.result(directory)
                self.assertEqual(result["verdict"], "pass")
                self.assertEqual([(restart["rank"], restart["number"]) for restart in result["restarts"]], [(rank, 1)])
                self.assertEqual(self.digests(directory), self.digests("clean"))

    def test_a_stop_while_a_rank_hangs_leaves_what_that_one_found_and_who_hangs(self):
        self.check_stop_while_one_hangs(1, ("incomplete", 4))  # rank 0 has not detected it yet

    def test_a_stop_while_a_rank_hangs_leaves_what_the_waiting_one_found(self):
        self.check_stop_while_one_hangs(0, ("fault", 1))

    def check_stop_while_one_hangs(self, struck, verdict):
        """mpirun would kill all ranks a second later."""
        process = self.start_program(*SMALL_NETWORK[:-1], "100s", "--memory", "64MB", "--duration", "300s", "--inject", "hang:rank=1,step=20",
                                     "--inject", f"memory:rank={struck},step=19", "--output", "run", ranks=2)
        self.wait_for(lambda: '"kind":"hang"' in self.journal(1))
        time.sleep(5)  # the flip is detected, but not yet written to the journal
        self.assertFalse((self.folder / "run/result.json").exists())
        process.send_signal(signal.SIGUSR2)
        self.wait_for(lambda: (self.folder / "run/result.json").exists() and '"kind":"fault"' in self.journal(struck), 30)
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"]), verdict)
        told = "\n".join(result["reasons"])
        self.assertRegex(told, "rank 1 was lost: it left no end record; after SIGUSR2 it was in step for [0-9.]+ s, at step 20")
        self.assertRegex(told, "rank 0 was lost: it left no end record; after SIGUSR2 it waited for others in ")
        self.wait_for(lambda: [name for name in self.files() if not name.startswith("run/")] == [], 30)
        for rank in self.processes():
            os.kill(rank, signal.SIGKILL)
        _, messages = process.communicate(timeout=300)
        self.assertRegex(messages, "Warning: rank 1: after SIGUSR2 it was in step for ")
        self.assertEqual(self.run_program("report", "run").returncode, 1)
        self.assertEqual([fault["rank"] for fault in self.result()["faults"]], [struck])

    def journal(self, rank):
        path = self.folder / f"run/journal.rank{rank}.jsonl"
        return path.read_text() if path.exists() else ""


# One test case per kind: ctest runs them concurrently. Rank 1 is the one that hangs for good, above.
for kind in HOW:
    for rank in (0, 2):
        setattr(Stall, f"test_a_rank_lost_{kind}_{rank}", lambda self, kind=kind, rank=rank: self.check_rounds_of(kind, rank))
for rank in (0, 2):
    setattr(Stall, f"test_a_device_that_hangs_is_told_from_those_that_wait_for_it_{rank}", lambda self, rank=rank: self.check_device_that_hangs(rank))


if __name__ == "__main__":
    unittest.main()
