"""Full, read-only or missing disks: correct verdict, one clear reason, no files left behind."""
import shutil

from program import *

TEST_FILES = "extreme_gpu_trainer.rank*.tmp"
QUIET = ["--layers", "33,64,17", "--batch", "8", "--memory", "0"]
RESTING = QUIET + ["--io-size", "8MB", "--io-repeats", "1"]


class Disk(ProgramTest):
    def mount(self, folder, options):
        """Mounts a tmpfs there, or skips the test."""
        path = self.folder / folder
        path.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, text=True)
        if done.returncode:
            self.skipTest(f"mounting is not permitted here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(path)], capture_output=True)
        return path

    def end(self, process, code):
        output, messages = process.communicate(timeout=240)
        self.assertEqual(process.returncode, code, output + messages)
        return output, messages

    def left_files(self, folder="."):
        return sorted((self.folder / folder).glob(TEST_FILES))

    def check_one_reason(self, result, *pieces):
        told = [reason for reason in result["reasons"] if all(piece in reason for piece in pieces)]
        self.assertEqual(len(told), 1, result["reasons"])

    def test_a_small_file_system_is_refused_before_the_run(self):
        self.mount("small", "size=16m")
        done = self.run_program(*SMALL, "--io-dir", "small", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(len(self.program_lines(done)), 1, done.stderr)
        self.assertIn("--io-dir small: 16.8 MB are free there, of which 1.00 GB must stay free; ", done.stderr)
        self.assertEqual(self.files(), [])

    def test_files_in_memory_test_no_disk(self):
        """A directory in memory given by the user is refused. A working directory in memory is used, but does not count."""
        memory = self.mount("memory", "size=4g")
        done = self.run_program(*SMALL, "--io-dir", "memory", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(self.program_lines(done), ["extreme_gpu_trainer: --io-dir memory: its files are in memory (tmpfs), so no disk would be "
                                                    "tested; name a directory on a disk, or use --no-io"])
        done = self.run_program(*SMALL, "--output", self.folder / "run", ranks=2, folder=memory)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual(result["reasons"], ["io: not a disk test (in memory: tmpfs), on ranks 0, 1", "all other planned work was done and verified on 2 ranks"])
        self.assertEqual(result["verified_work"]["bytes_file_verified"], 0)
        self.assertGreater(self.part(result, "io")["bytes_read"], 0)
        self.assertIn("not a disk test", done.stdout)

    def test_a_full_disk_in_mid_run_ends_the_file_part_only(self):
        done = self.run_program("--inject", "diskfull:rank=1,step=10", "--steps", "300", *SMALL[2:], "--output", "run", ranks=3)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual((result["verdict"], result["faults"], result["injections"][0]["found"]), ("incomplete", [], True))
        self.check_one_reason(result, "rank 1, io: ", "No space left on device; ", " are free there")
        self.assertEqual(done.stderr.count("io: the file part ends: "), 1, done.stderr)
        self.assertEqual([self.part(result, "train", rank)["steps"] for rank in range(3)], [300] * 3)
        self.assertEqual([self.part(result, "io", rank)["success"] for rank in range(3)], [True, False, True])
        self.assertEqual(self.left_files(), [])

    def preloaded(self, **variables):
        return {"LD_PRELOAD": os.environ["EGT_FEW_THREADS"], **variables}

    def test_a_frozen_disk_is_named_with_its_file_and_operation(self):
        done = self.run_program(*SMALL, "--collective-timeout", "5s", "--output", "run", ranks=2,
                                environment=self.preloaded(EGT_FROZEN="run/journal.rank1.jsonl"))
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual((result["verdict"], result["faults"]), ("incomplete", []))
        for reason in result["reasons"]:
            self.assertRegex(reason, r"write of \S+\.rank[01]\.\S+\.tmp has not returned for \d+\.\d s \(task state S\)")
        self.assertNotIn("checks:", " ".join(result["reasons"]))
        self.assertIn("incomplete (exit code 4)", done.stdout)

    def test_a_file_system_without_locks_gives_one_warning_per_host(self):
        done = self.run_program(*SMALL, "--no-io", "--output", "run", ranks=2, environment=self.preloaded(EGT_NO_FLOCK="37"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([line for line in done.stderr.splitlines() if "flock" in line],
                         ["Warning: run/journal.rank0.jsonl: flock: No locks available; use this directory for one run at a time, and report it "
                          "only after its end, or mount the file system with -o flock (Lustre) or -o local_lock=flock (NFS)"])

    def test_denied_copies_between_processes_give_one_warning(self):
        done = self.run_program(*SMALL, "--no-io", "--output", "run", ranks=2, environment=self.preloaded(EGT_NO_CROSS_COPIES="1"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("Read -1", done.stdout + done.stderr)
        self.assertEqual([line for line in done.stderr.splitlines() if "process_vm_readv" in line],
                         ["Warning: process_vm_readv: Operation not permitted; MPI copies through shared memory, which is slower; "
                          "allow the call with --cap-add SYS_PTRACE"])

    def start_and_wait_for_a_resting_file(self):
        process = self.start_program("--steps", "3200", *RESTING, "--io-every", "800", "--output", "run", ranks=2)

        def rests():
            files = [f.stat() for f in self.left_files() if ".rank1." in f.name]
            return len(files) == 2 and all(f.st_size > 3_990_000 and time.time() - f.st_mtime > 0.1 for f in files)
        self.wait_for(rests)
        return process, [f for f in self.left_files() if ".rank1." in f.name]

    def test_a_truncated_file_is_a_fault(self):
        process, files = self.start_and_wait_for_a_resting_file()
        os.truncate(files[0], 409_600)
        self.end(process, 1)
        result = self.result()
        self.assertEqual([(f["kind"], f["rank"], f["offset"]) for f in result["faults"]], [("file-truncated", 1, 409_600)])
        self.check_one_reason(result, "; rank 1, step ", "file-truncated fault", files[0].name)
        self.assertEqual(self.left_files(), [])

    def test_a_deleted_file_ends_the_file_part(self):
        process, files = self.start_and_wait_for_a_resting_file()
        files[0].unlink()
        _, messages = self.end(process, 4)
        result = self.result()
        self.assertEqual((result["verdict"], result["faults"]), ("incomplete", []))
        self.check_one_reason(result, "rank 1, io: ", files[0].name, "the file was deleted or moved while it was in use")
        self.assertEqual(messages.count("io: the file part ends: "), 1, messages)
        self.assertEqual(self.left_files(), [])

    def start_and_wait_for_the_journal(self):
        process = self.start_program("--duration", "4s", *QUIET, "--no-io", "--output", "run", ranks=2)
        journal = self.folder / "run/journal.rank1.jsonl"
        self.wait_for(lambda: journal.exists() and '"progress"' in journal.read_text())
        return process

    def test_an_output_directory_that_becomes_read_only(self):
        process = self.start_and_wait_for_the_journal()
        self.mount("run", "ro")
        output, messages = self.end(process, 4)
        self.assertIn("Verdict: incomplete", output)
        self.assertEqual((output + messages).count("run/result.json: cannot be written: Read-only file system"), 1, output + messages)
        for name in EXTRA_FILES:
            self.assertNotIn(name, output + messages, "what the result's reason tells is told once")
        subprocess.run(["umount", "-l", str(self.folder / "run")], check=True)
        for rank in range(2):
            last = (self.folder / f"run/journal.rank{rank}.jsonl").read_text().splitlines()[-1]
            self.assertEqual(json.loads(last)["kind"], "end")

    def test_files_made_of_the_result_change_no_verdict(self):
        for name in EXTRA_FILES:
            (self.folder / "run" / name / "taken").mkdir(parents=True)
        for arguments, ranks in ((["--steps", "20", *QUIET, "--no-io", "--output", "run"], 2), (["report", "run"], None)):
            done = self.run_program(*arguments, ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("Verdict: pass", done.stdout)
            for name in EXTRA_FILES:
                self.assertEqual(done.stderr.count(f"Warning: run/{name}: cannot be written: "), 1, done.stderr)
            self.assertIn("Files: run/result.json, ", done.stdout)
        self.assertEqual(self.result()["exit_code"], 0)
        self.assertEqual(sorted(os.listdir(self.folder / "run")), sorted([*RESULT_FILES, "journal.rank0.jsonl", "journal.rank1.jsonl"]))

    def test_a_full_disk_keeps_the_result_and_no_file_of_another(self):
        self.mount("run", "size=256k")
        done = self.run_program("--steps", "20", *QUIET, "--no-io", "--output", "run")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in EXTRA_FILES:
            (self.folder / "run" / name).write_text("of another result")
        with open(self.folder / "run/ballast", "wb", buffering=0) as ballast, self.assertRaises(OSError):
            while True:
                ballast.write(bytes(4096))
        done = self.run_program("report", "run")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("run/junit.xml: cannot be written: No space left on device", done.stderr)
        self.assertEqual(self.result()["verdict"], "pass")
        self.assertFalse((self.folder / "run/junit.xml").exists())

    def test_an_output_directory_that_is_removed(self):
        process = self.start_and_wait_for_the_journal()
        shutil.rmtree(self.folder / "run")
        output, messages = self.end(process, 4)
        self.assertIn("Verdict: incomplete", output)
        self.assertEqual(messages.count("journal.rank1.jsonl: deleted or replaced during the run"), 1, messages)
        self.assertIn("run/result.json: cannot be written: No such file or directory", output)

    def test_an_output_directory_that_is_full_is_refused(self):
        disk = self.mount("full", "size=64k")
        (disk / "ballast").write_bytes(bytes(65536 - 8192))
        for ranks in (None, 2):
            with self.subTest(ranks=ranks):
                done = self.run_program("--duration", "30s", *QUIET, "--no-io", "--output", "full/run", ranks=ranks, timeout=20)
                self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
                lines = self.program_lines(done)
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertRegex(lines[0], r"journal\.rank\d\.jsonl: cannot be written: No space left on device")
                self.assertEqual(os.listdir(disk), ["ballast"])

    def test_an_output_directory_that_fills_up(self):
        self.mount("run", "size=32k")
        done = self.run_program("--duration", "6s", *QUIET, "--no-io", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertIn("Verdict: incomplete", done.stdout)
        for rank in range(2):
            self.assertLessEqual(done.stderr.count(f"journal.rank{rank}.jsonl: cannot be written: No space left on device"), 1, done.stderr)
            for line in (self.folder / f"run/journal.rank{rank}.jsonl").read_text().splitlines():
                json.loads(line)
        self.assertIn("cannot be written: No space left on device", done.stderr)

    def kill(self, whom):
        """Sends SIGKILL to some processes of a run while its files are idle. All processes have exited on return."""
        process = self.start_program("--duration", "60s", *RESTING, "--io-every", "1", "--output", "killed", ranks=2)
        self.wait_for(lambda: len(self.left_files()) == 4)
        time.sleep(1.5)
        self.processes()  # processes seen now count until their last thread has exited
        ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        for pid in whom(process.pid, sorted(map(int, ranks))):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=240)
        self.wait_for(lambda: not self.processes(), 120)

    def test_the_files_of_a_killed_rank_are_removed_by_its_neighbours(self):
        for victim in range(2):
            with self.subTest(rank=victim):
                self.setUp()
                self.kill(lambda mpirun, ranks: [ranks[victim]])
                self.assertEqual(self.result("killed")["verdict"], "incomplete")
                self.assertEqual(self.left_files(), [])

    def test_the_files_of_a_run_whose_mpirun_was_killed(self):
        self.kill(lambda mpirun, ranks: [mpirun])
        self.run_program("report", "killed")
        self.assertEqual(self.left_files(), [])

    def test_what_a_killed_run_left_goes_with_the_next_one_or_with_report(self):
        self.kill(lambda mpirun, ranks: [mpirun, *ranks])
        left = {file: file.read_bytes() for file in self.left_files()}
        self.assertEqual(len(left), 4)
        for rank in range(2):
            for line in (self.folder / f"killed/journal.rank{rank}.jsonl").read_text().splitlines():
                json.loads(line)
        done = self.run_program("--steps", "4", *RESTING, "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.left_files(), [])
        for file, content in left.items():
            file.write_bytes(content)
        report = self.run_program("report", "killed")
        self.assertEqual(report.returncode, 4, report.stdout + report.stderr)
        self.assertIn("4 test files of ranks that were killed removed from .", report.stderr)
        self.assertEqual(self.left_files(), [])
        self.assertEqual(self.result("killed")["verdict"], "incomplete")


if __name__ == "__main__":
    unittest.main()
