"""Invalid input: the right exit code, one line from rank 0 only, and no files written."""
from program import *
from program import MPIRUN, PROGRAM

WRONG_USAGE, ENVIRONMENT, INCOMPLETE = 2, 3, 4

# The messages of wrong values are tested in tests/unit/command; these come from all places that refuse something.
CASES = [
    (["--frobnicate"], WRONG_USAGE, "--frobnicate"),
    (["brun"], WRONG_USAGE, "did you mean burn?"),
    (["--memory", "90"], WRONG_USAGE, "--memory 90: a unit is missing (90% or 90GB?)"),
    (["--devices", "1"], WRONG_USAGE, "--devices"),
    (["--config", "nowhere.toml"], WRONG_USAGE, "nowhere.toml"),
    (["--preset", "sok"], WRONG_USAGE, "--preset sok: did you mean soak? use one of acceptance, io"),
    (["--inject", "weight:rank=0,step=1,bit=32"], WRONG_USAGE, "bit=32"),
    (["--inject", "gemm:rank=0,step=30"], WRONG_USAGE, "--steps"),
    (["--inject", "memory:rank=7,step=1"], WRONG_USAGE, "rank 7 is not in this run"),
    (["--inject", "weight:rank=0,step=1", "--coverage", "sampled"], WRONG_USAGE, "at least 2 ranks"),
    (["--io-dir", "/nowhere"], ENVIRONMENT, "/nowhere"),
    (["--backend", "cuda"], ENVIRONMENT, "cuda"),
    (["--precision", "int8"], ENVIRONMENT, "int8 is for memory-resident GEMMs"),
    (["--precision", "fp8", "--layers", "64,24,16"], WRONG_USAGE, "fp8 needs layers of a multiple of 16 neurons, and one has 24"),
    (["--precision", "fp8", "--batch", "24"], WRONG_USAGE, "fp8 needs a multiple of 16 samples per rank, not 24"),
    (["--memory", "900TB"], ENVIRONMENT, "memory"),
    (["--memory", "5KB"], ENVIRONMENT, "so none would be tested"),
    (["--output", "/proc/nowhere"], ENVIRONMENT, "/proc/nowhere"),
]
TWO_RANKS = [
    (["--inject", "kill:rank=2,step=1"], WRONG_USAGE, "rank 2 is not in this run; use 0 to 1"),
]
TINY = ["--layers", "32,16", "--batch", "16", "--steps", "3", "--memory", "0", "--no-io"]


class Refusal(ProgramTest):
    def test_alone(self):
        self.check_all(CASES, None)

    def test_two_ranks(self):
        self.check_all(CASES[:1] + CASES[-5:] + TWO_RANKS, 2)

    def check_all(self, cases, ranks):
        def run(case, folder):
            given = {a for a in case[0] if a.startswith("--")}  # a repeated option would be another error
            small = [a for pair in zip(SMALL[::2], SMALL[1::2]) if pair[0] not in given for a in pair]
            return self.run_program(*case[0], *small, ranks=ranks, folder=folder)
        for (arguments, code, named), done, folder in self.side_by_side(cases, run):
            self.check(arguments, code, named, ranks, done, folder)

    def check(self, arguments, code, named, ranks, done, folder):
        with self.subTest(arguments=arguments, ranks=ranks):
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            lines = self.program_lines(done)
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertIn(named, lines[0])
            if not ranks:
                self.assertEqual(done.stderr.strip(), lines[0], "one line and nothing else")
            self.assertEqual(list(folder.iterdir()), [])

    def test_a_backend_of_the_environment_that_is_none(self):
        for arguments in (["devices"], SMALL):
            done = self.run_program(*arguments, ranks=2, environment={"EGT_BACKEND": "bogus"})
            self.assertEqual(done.returncode, WRONG_USAGE, done.stdout + done.stderr)
            self.assertEqual(self.program_lines(done), [f"{PREFIX}EGT_BACKEND=bogus: auto or host is allowed"])
        self.assertEqual(self.files(), [])

    def test_a_config_file_is_named(self):
        for text, named in (("memory = 90\n", "--config c.toml: --memory 90: a unit is missing"), ("batch = 4\nbatch = 5\n", "--config c.toml: --batch: given twice")):
            (self.folder / "c.toml").write_text(text)
            done = self.run_program("--config", "c.toml", "--steps", "3", ranks=2)
            self.assertEqual(done.returncode, WRONG_USAGE, done.stderr)
            self.assertEqual([named in line for line in self.program_lines(done)], [True], done.stderr)
        self.assertEqual(self.files(), ["c.toml"])

    def test_an_output_that_is_a_file(self):
        (self.folder / "taken").write_text("mine")
        done = self.run_program(*SMALL, "--output", "taken", ranks=2)
        self.assertEqual(done.returncode, WRONG_USAGE, done.stderr)
        self.assertEqual(len(self.program_lines(done)), 1, done.stderr)
        self.assertEqual((self.folder / "taken").read_text(), "mine")
        self.assertEqual(self.files(), ["taken"])

    def test_a_second_run_in_one_directory_leaves_the_first_alone(self):
        first = self.run_program(*TINY, "--output", "run")
        self.assertEqual(first.returncode, 0, first.stderr)
        before = {name: (self.folder / name).read_bytes() for name in self.files()}
        second = self.run_program(*TINY, "--output", "run")
        self.assertEqual(second.returncode, WRONG_USAGE, second.stderr)
        self.assertEqual(len(self.program_lines(second)), 1)
        self.assertEqual({name: (self.folder / name).read_bytes() for name in self.files()}, before)

    def test_ranks_without_enough_descriptors_leave_nothing(self):
        for descriptors, launcher in ((20, []), (20, [*MPIRUN, "-np", "2"])):
            with self.subTest(descriptors=descriptors, launcher=launcher):
                words = launcher + ["sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', PROGRAM, "--steps", "5", "--memory", "0", "--no-io"]
                done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
                self.assertEqual(set(self.program_lines(done)),
                                 {f"{PREFIX}the start of MPI needs 24 open files, and ulimit -n {descriptors} leaves fewer: raise it"})
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_an_address_space_that_libraries_crash_in(self):
        """MPI startup and OpenBLAS buffers; with less memory the loader refuses the program."""
        for kib in (1_400_000, 1_100_000, 800_000, 500_000, 300_000):  # the sufficient amount depends on the libraries
            words = ["sh", "-c", f'ulimit -v {kib}; exec "$0" "$@"', PROGRAM, "--steps", "5", "--memory", "0", "--no-io", "--output", f"{kib}"]
            done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
            if (self.folder / f"{kib}").exists():  # the run started and continued as far as the memory allowed
                self.assertIn(done.returncode, (0, ENVIRONMENT, INCOMPLETE), done.stdout + done.stderr)
                if done.returncode != 0:
                    self.assertIn("ulimit -v", done.stdout + done.stderr)
                continue
            self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
            self.assertIn(f"of address space, and ulimit -v {kib} leaves less: raise it", done.stderr)
            self.assertFalse((self.folder / f"{kib}").exists())
            return
        self.fail("it needs less than any of these")

    def test_names_that_are_not_utf8_are_taken(self):
        (self.folder / os.fsdecode(b"io\xff")).mkdir()
        for ranks in (None, 2):
            words = [word for option in ("output", "log-file", "golden") for word in (f"--{option}", os.fsdecode(f"{option}{ranks}".encode() + b"\xff"))]
            words += [*TINY[:-1], "--io-size", "1MB", "--io-dir", os.fsdecode(b"io\xff")]
            with self.subTest(ranks=ranks):
                done = subprocess.run(self.command(words, ranks), cwd=self.folder, capture_output=True, timeout=240, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                result = json.loads((self.folder / os.fsdecode(f"output{ranks}".encode() + b"\xff") / "result.json").read_text())
                self.assertEqual((result["verdict"], result["options"]["io-dir"]), ("pass", "io\ufffd"))

    def test_ranks_that_disagree_on_options(self):
        command = os.environ["EGT_MPIRUN"].split()
        program = os.environ["EGT_PROGRAM"]
        done = subprocess.run([*command, "-np", "1", program, *SMALL[:-1], "8", ":", "-np", "1", program, *SMALL[:-1], "16"],
                              cwd=self.folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, WRONG_USAGE, done.stderr)
        self.assertEqual(len(self.program_lines(done)), 1, done.stderr)
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main()
