"""A fault keeps its operation in the run directory, and `reproduce` repeats it with the same counts."""
import re

from program import *

FAULT, WRONG_USAGE, INCOMPLETE = 1, 2, 4


class Reproduce(ProgramTest):
    @classmethod
    def setUpClass(cls):
        if len(os.sched_getaffinity(0)) < 2:
            raise unittest.SkipTest("one CPU has nothing to be compared with")

    def faulty_run(self, *options):
        done = self.run_program(*SMALL, *options, "--output", "run",
                                "--inject", "multiprocessor:rank=1,step=20,layer=3,lasting=always", ranks=2)
        self.assertEqual(done.returncode, FAULT, done.stderr)
        return done

    def counts(self, done):
        """(failed, of) by rank."""
        found = re.findall(r"^failed (\d+) of (\d+) on rank (\d+), host \(.+\)$", done.stdout, re.MULTILINE)
        return {int(rank): (int(failed), int(of)) for failed, of, rank in found}

    def test_a_fault_is_repeated_in_the_run_and_later(self):
        ended = self.faulty_run()
        fault, = self.result()["faults"]
        self.assertGreaterEqual(fault["step"], 20)
        self.assertEqual(fault["reproducer"], f"reproduce/multiprocessor-rank1-step{fault['step']}.json")
        accused, peer = fault["reproduced"]
        self.assertEqual((accused["rank"], peer["rank"], peer["failed"]), (1, 0, 0))
        self.assertEqual(accused["failed"], accused["of"])
        self.assertGreater(min(accused["of"], peer["of"]), 0)
        for one, rank in (accused, 1), (peer, 0):
            self.assertIn(f"failed {one['failed']} of {one['of']} on rank {rank} (host); to repeat: mpirun --quiet -np 2 extreme_gpu_trainer reproduce run/reproduce/", ended.stdout + ended.stderr)
        file = self.folder / "run" / fault["reproducer"]
        for _ in range(2):
            done = self.run_program("reproduce", file, ranks=2)
            self.assertEqual(self.counts(done), {0: (0, 100), 1: (100, 100)}, done.stdout + done.stderr)
            self.assertEqual(done.returncode, FAULT)
            self.assertIn("The fault was injected, so it strikes only on rank 1.", done.stdout)
        done = self.run_program("reproduce", file)
        self.assertEqual((self.counts(done), done.returncode), ({0: (0, 100)}, INCOMPLETE), "of one rank, which is not rank 1")
        self.assertIn("Incomplete: the device of the fault, rank 1, is not among the tested ones; start with mpirun --quiet -np 2.\n", done.stdout)
        before = self.result()["faults"]
        self.run_program("report", "run")
        self.assertEqual(self.result()["faults"], before, "the counts are in the journals")
        self.check_damaged(file)

    def check_damaged(self, file):
        text = file.read_text()
        content = json.loads(text)
        unusual = self.folder / "ü\n.json"
        damaged = {"": "", "half": text[:len(text) // 2], "no JSON": "\0\xff", "version": json.dumps({**content, "format": 2}),
                   "operation": json.dumps({**content, "operation": "rm"}), "list": "[" * 100000,
                   "huge": text.replace('"iterations":', '"iterations":9999999999999999999999'),
                   "infinite": text.replace('"iterations":', '"iterations":1e999,"old":')}
        for name, damage in damaged.items():
            with self.subTest(name):
                unusual.write_text(damage)
                self.check_refused(unusual, "is no reproducer: ")
        unusual.unlink()
        self.check_refused(unusual, "No such file or directory")
        self.check_refused(self.folder, "is no regular file; name a file of DIR/reproduce/")
        self.check_refused("", "name a file")
        unusual.write_text(text)
        self.assertEqual(self.run_program("reproduce", unusual).returncode, INCOMPLETE)

    def check_refused(self, path, why):
        done = self.run_program("reproduce", path)
        self.assertEqual((done.returncode, done.stdout), (WRONG_USAGE, ""), done.stderr)
        line, = done.stderr.splitlines()
        self.assertIn(why, line)

    def test_a_rank_that_is_killed_is_not_waited_for(self):
        done = self.run_program("--duration", "10m", *SMALL[2:4], "--no-io", *SMALL[-4:], "--output", "run",
                                "--inject", "multiprocessor:rank=1,step=2,layer=3", "--inject", "kill:rank=0,step=30", ranks=2)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.run_program("report", "run").returncode, FAULT)
        fault, = (one for one in self.result()["faults"] if one["kind"] == "multiprocessor")
        done = self.run_program("reproduce", self.folder / "run" / fault["reproducer"], ranks=2)
        self.assertEqual(self.counts(done), {0: (0, 100), 1: (100, 100)}, done.stderr)


if __name__ == "__main__":
    unittest.main()
