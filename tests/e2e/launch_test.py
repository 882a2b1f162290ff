"""Starts that fail before the run begins: exit code 3 (2 for usage, 6 for a signal) and a one-line reason, never 0 or 1."""
import shlex
import shutil

from program import *
from program import MPIRUN, PROGRAM

FAULT, WRONG_USAGE, ENVIRONMENT, INCOMPLETE, INTERRUPTED = 1, 2, 3, 4, 6
BURN = ["burn", "--steps", "3", "--memory", "0", "--no-io", "--progress", "none", "--layers", "32,16", "--batch", "16"]
NAMESPACES = ["unshare"] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
HAS_NAMESPACES = subprocess.run([*NAMESPACES, "--mount", "--net", "--uts", "true"], capture_output=True).returncode == 0


class Launch(ProgramTest):
    def run_shell(self, script, namespaces=()):
        """`script` ends with "$@", which is the program with the smallest burn."""
        words = [*([*NAMESPACES, *namespaces] if namespaces else []), "bash", "-c", script, "bash", PROGRAM, *BURN]
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)

    def check(self, done, code, text):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        lines = self.program_lines(done)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(text, lines[0])
        self.assertEqual(self.files(), [])


class MpiInit(Launch):
    @unittest.skipUnless(HAS_NAMESPACES, "unshare is not permitted")
    def test_what_the_machine_lacks(self):
        for namespaces, script, text in (
                (["--mount"], 'mkdir ro && mount -t tmpfs -o ro tmpfs ro && TMPDIR=$PWD/ro "$@"; code=$?; umount ro; rmdir ro; exit $code',
                 "/ro is not usable (Read-only file system); set TMPDIR"),
                (["--net"], '"$@"', "no network interface is up"),
                (["--uts"], 'hostname ' + "a" * 60 + ' && "$@"', "the host name has 60 letters")):
            with self.subTest(text=text):
                self.check(self.run_shell(script, namespaces), ENVIRONMENT, text)

    def test_settings_of_open_mpi(self):
        """mpirun exits with 1, which run.sh converts to 3."""
        self.check(self.run_shell('OMPI_MCA_pml=garbage "$@"'), ENVIRONMENT, "check these variables: OMPI_MCA_pml=garbage")

    def start_that_hangs(self):
        """Without mpirun, MPI_Init starts a daemon and waits for its output."""
        (self.folder / "orted").write_text("#!/bin/sh\ntouch started\nexec sleep 60\n")
        (self.folder / "orted").chmod(0o755)
        process = subprocess.Popen([PROGRAM, *BURN], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "OPAL_BINDIR": str(self.folder)})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.addCleanup(lambda: [os.kill(other, signal.SIGKILL) for other in self.processes() if other != process.pid])
        self.wait_for((self.folder / "started").exists, 60)
        return process

    def test_that_hangs_ends_on_a_signal(self):
        for signals in ([signal.SIGTERM], [signal.SIGINT, signal.SIGINT]):
            with self.subTest(signals=signals):
                process = self.start_that_hangs()
                for number in signals:
                    process.send_signal(number)
                    time.sleep(0.2)
                self.assertEqual(process.wait(timeout=60), INTERRUPTED)
                self.assertIn(f"{PREFIX}stopped by {signals[0].name} before the run began", process.stderr.readline())
                (self.folder / "started").unlink()


class Usage(Launch):
    def test_errors_do_not_start_mpi(self):
        """With a failing daemon, MPI_Init would fail."""
        for words in (["--frobnicate"], ["compare"], ["report"], ["compare", "a.json", "--tolerance", "x"]):
            with self.subTest(words=words):
                done = self.run_program(*words, environment={"OMPI_MCA_pml": "garbage", "OMPI_MCA_plm": "garbage"})
                self.check(done, WRONG_USAGE, "")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for words in (["compare", "a.json", "b.json"], ["report", "run"]):
            done = self.run_program(*words, environment={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"})
            self.check(done, WRONG_USAGE, f"{words[0]} takes one process, but OMPI_COMM_WORLD_SIZE=2 and this is rank 1")
            done = self.run_program(*words, environment={"PMIX_RANK": "1"})  # without a size the variable is stale
            self.assertNotEqual((done.returncode, done.stderr), (0, ""))
        self.check(self.run_program("--frobnicate", ranks=3), WRONG_USAGE, "--frobnicate")


class Scripts(Launch):
    """run.sh and slurm.sbatch: exit code 1 means a fault only if a run reported one."""
    FAULT = ["burn", "--steps", "20", "--check-every", "5", "--memory", "0", "--no-io", "--progress", "none", "--layers", "32,16", "--batch", "16",
             "--inject", "weight:rank=1,step=8"]

    def fake(self, name, text):
        (self.folder / "bin").mkdir(exist_ok=True)
        (self.folder / "bin" / name).write_text("#!/bin/bash\n" + text)
        (self.folder / "bin" / name).chmod(0o755)

    def run_script(self, script, *arguments, **environment):
        return subprocess.run([script, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "EGT_RANKS": "2", "SLURM_JOB_ID": "7",
                                   "SLURM_SUBMIT_DIR": str(self.folder), "EGT_PROGRAM": PROGRAM, **environment})

    def test_an_mpi_that_fails_ends_with_3(self):
        self.fake("mpirun", f'OMPI_MCA_pml=garbage exec {shutil.which("mpirun")} "$@"')
        done = self.run_script(self.make_script(), *BURN)
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
        self.assertIn(f"{PREFIX}MPI_Init failed: check these variables: OMPI_MCA_pml=garbage", done.stderr)

    def test_a_launcher_that_fails_ends_with_3(self):
        for code in (1, 137):
            for script, launcher in ((self.make_script(), "mpirun"), (SCRIPTS / "slurm.sbatch", "srun")):
                with self.subTest(launcher=launcher, code=code):
                    self.fake(launcher, f"echo 'no slots' >&2\nexit {code}\n")
                    done = self.run_script(script, *BURN)
                    self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
                    self.assertIn(f"{launcher} failed with code {code} before the run began", done.stderr)
            shutil.rmtree(self.folder / "root")

    def test_an_earlier_run_in_the_same_place_is_no_verdict(self):
        run = self.make_script()
        done = self.run_script(run, *BURN, "--output", "same")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for code in (1, 137):
            for script, launcher in ((run, "mpirun"), (SCRIPTS / "slurm.sbatch", "srun")):
                with self.subTest(launcher=launcher, code=code):
                    self.fake(launcher, f"exit {code}\n")
                    done = self.run_script(script, *BURN, "--output", "same")
                    self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
                    self.assertIn(f"{launcher} failed with code {code} before the run began", done.stderr)

    def test_a_fault_is_still_1(self):
        (self.folder / "c.toml").write_text('output = "of config"\n')
        (self.folder / "odd.toml").write_text("output = 'q\\y \"z\"'\n")
        self.fake("srun", f"""while [[ $1 == --* ]]; do shift; done\nexec {" ".join(MPIRUN)} -np 2 "$@"\n""")
        run = self.make_script()
        for script, arguments in ((run, ["--config", "c.toml"]), (run, ["--config", "odd.toml"]), (run, []), (run, ["-o", "named"]), (SCRIPTS / "slurm.sbatch", []),
                                  (SCRIPTS / "slurm.sbatch", ["--output=given"])):
            with self.subTest(script=script.name, arguments=arguments):
                done = self.run_script(script, *self.FAULT, *arguments)
                self.assertEqual(done.returncode, FAULT, done.stdout + done.stderr)
        self.assertEqual(self.run_script(run, "report", "of config").returncode, FAULT)
        self.assertTrue((self.folder / "slurm-7/result.json").exists())

    def test_another_run_in_the_same_folder_is_no_verdict(self):
        """The other run starts while this one is running, and ends later."""
        run = self.make_script()
        other = " ".join(map(shlex.quote, ["env", "-u", "EGT_RUN_ID", PROGRAM, *map(str, BURN)]))
        self.fake("mpirun", f"""{shutil.which("mpirun")} "$@"; code=$?\n{other} >other.log 2>&1\nexit $code\n""")
        done = self.run_script(run, *self.FAULT)
        self.assertEqual(done.returncode, FAULT, done.stdout + done.stderr)
        self.assertIn("pass", (self.folder / "other.log").read_text())
        self.assertEqual(len(list((self.folder / "extreme_gpu_trainer_runs").iterdir())), 2)

    def test_another_run_in_the_named_directory_is_no_verdict(self):
        """The launcher fails while a run with the same --output writes there."""
        other = " ".join(map(shlex.quote, ["env", "-u", "EGT_RUN_ID", PROGRAM, *map(str, BURN), "--output", "same"]))
        for script, launcher, code in ((self.make_script(), "mpirun", 1), (SCRIPTS / "slurm.sbatch", "srun", 137), (SCRIPTS / "slurm.sbatch", "srun", 0)):
            with self.subTest(launcher=launcher, code=code):
                self.fake(launcher, f"{other} >other.log 2>&1\nexit {code}\n")
                done = self.run_script(script, *BURN, "--output", "same")
                self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
                self.assertIn("pass", (self.folder / "other.log").read_text())
                shutil.rmtree(self.folder / "same")

    def test_a_run_id_that_is_no_name_is_refused(self):
        done = self.run_program(*BURN, ranks=2, environment={"EGT_RUN_ID": "a/b"})
        self.check(done, WRONG_USAGE, "EGT_RUN_ID=a/b: up to 64 letters, digits and - are allowed")
        self.assertFalse((self.folder / "extreme_gpu_trainer_runs").exists())

    def test_a_launcher_that_starts_nothing_is_no_pass(self):
        self.fake("srun", "exit 0\n")
        self.fake("mpirun", "exit 0\n")
        for script in (SCRIPTS / "slurm.sbatch", self.make_script()):
            for arguments in ([*BURN, "--output", "none"], ["loadtest", "--output", "none.json"]):
                with self.subTest(script=script.name, arguments=arguments):
                    done = self.run_script(script, *arguments)
                    self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
                    self.assertIn("no run began", done.stderr)
            for word in ("devices", "--version"):
                self.assertEqual(self.run_script(script, word).returncode, 0)
        for launcher, script in (("srun", SCRIPTS / "slurm.sbatch"), ("mpirun", self.folder / "root/scripts/run.sh")):
            self.fake(launcher, "exit 1\n")
            for arguments in (["devices"], ["loadtest", "--output", "none.json"], [*BURN, "--output", "report"]):
                with self.subTest(script=script.name, arguments=arguments, code=1):
                    self.assertEqual(self.run_script(script, *arguments).returncode, ENVIRONMENT)

    def test_a_launcher_that_resumes_nothing_is_no_pass(self):
        run = self.make_script()
        for arguments, code in ((self.FAULT, FAULT), (BURN, 0)):
            done = self.run_script(run, *arguments, "--output", f"ended {code}")
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.fake("srun", "exit 0\n")
        self.fake("mpirun", "exit 0\n")
        for script in (run, SCRIPTS / "slurm.sbatch"):
            for directory, code in ((f"ended {FAULT}", ENVIRONMENT), ("ended 0", 0)):  # a complete run is not restarted
                with self.subTest(script=script.name, directory=directory):
                    done = self.run_script(script, "--resume", directory)
                    self.assertEqual(done.returncode, code, done.stdout + done.stderr)

    def test_a_rank_that_is_lost_after_its_result_is_no_pass(self):
        """The rank crashes at exit: the launcher's code contradicts the journals, which contain a pass."""
        for script, launcher, ended in ((self.make_script(), "mpirun", 139), (SCRIPTS / "slurm.sbatch", "srun", 3)):
            pass_then_die = f"{{launch}}\nexit {ended}\n"
            self.fake("mpirun", pass_then_die.format(launch=f'{shutil.which("mpirun")} "$@"'))
            self.fake("srun", "while [[ $1 == --* ]]; do shift; done\n" + pass_then_die.format(launch=f'{" ".join([shutil.which(MPIRUN[0]), *MPIRUN[1:]])} -np 2 "$@"'))
            with self.subTest(launcher=launcher):
                done = self.run_script(script, *BURN, "--output", f"of {launcher}")
                self.assertEqual(done.returncode, INCOMPLETE, done.stdout + done.stderr)
                self.assertEqual(done.stderr.count(f"{launcher} ended with code {ended}, but the journals say pass: incomplete (exit code 4)\n"), 1, done.stderr)
                done = self.run_script(script, *self.FAULT, "--output", f"fault of {launcher}")
                self.assertEqual(done.returncode, FAULT, done.stdout + done.stderr)

    def test_a_job_of_slurm_names_its_directory(self):
        self.fake("srun", """while [[ $1 == --* ]]; do shift; done\necho "srun: ${*:2}"\n""")
        (self.folder / "c.toml").write_text('output = "of config"\n')
        for words, arguments, restarts in (("burn", "burn --output slurm-7", ""), ("burn", "burn --output slurm-7-2", "2"),
                                      ("burn --config c.toml", "burn --config c.toml", ""), ("devices", "devices", ""),
                                      ("--resume r", "--resume r", "1")):
            with self.subTest(words=words, restarts=restarts):
                done = self.run_script(SCRIPTS / "slurm.sbatch", *words.split(), SLURM_RESTART_COUNT=restarts)
                self.assertEqual(done.stdout, f"srun: {arguments}\n", done.stderr)
        done = self.run_script(SCRIPTS / "slurm.sbatch", "report", "nowhere")
        self.assertNotIn("srun", done.stdout)
        self.assertIn("nowhere", done.stderr)


class Deploy(Launch):
    """deploy.sh with a local shell as ssh. Each test defines the output of the program."""

    def setUp(self):
        super().setUp()
        root = self.folder / "root"
        for name in ("scripts", "build", "package", "bin", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "scripts/deploy.sh").symlink_to(SCRIPTS / "deploy.sh")
        (root / "build/extreme_gpu_trainer").symlink_to(PROGRAM)
        (self.folder / "hosts").write_text("one\n")
        self.write("package/extreme_gpu_trainer", "exit 0\n")
        self.write("bin/ssh-add", "exit 0\n")
        self.ssh()

    def write(self, name, text):
        (self.folder / "root" / name).write_text("#!/bin/bash\n" + text)
        (self.folder / "root" / name).chmod(0o755)

    def ssh(self, code=""):
        """`code` replaces the exit code of a job."""
        self.write("bin/ssh", 'while [[ $1 == -* ]]; do [[ $1 != -F ]] || shift; shift; done\nshift\nbash -c "$*"\ncode=$?\n'
                   f'[[ "$*" != *"job.sh"*"run"* && "$*" != *"job.sh"*"launch"* ]] || code={code or "$code"}\nexit $code\n')

    def deploy(self, mpirun, *options, one_job=False, arguments=("burn",)):
        self.write("bin/mpirun", mpirun)
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        options = [*options, *(["--one-job"] if one_job else [])]
        done = subprocess.run([self.folder / "root/scripts/deploy.sh", "--hosts", "hosts", "--package", "root/package", "--ranks", "1", "--output", "out",
                               *options, "--", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              env={**os.environ, "PATH": f"{self.folder}/root/bin:{os.environ['PATH']}", "TMPDIR": str(self.folder / "root/tmp"),
                                   "SSH_AUTH_SOCK": "/none"})
        self.left = list((self.folder / "root/tmp").glob("extreme_gpu_trainer-*"))
        for place in self.left:
            shutil.rmtree(place)
        return done

    RUN = "mkdir -p run; echo {{}} >run/result.json; touch run/journal.rank0.jsonl; {printed} exit {code}\n"

    def mpirun(self, verdict="", code=0, own=None):
        own = code if own is None else own
        return self.RUN.format(printed=f"echo 'Verdict: {verdict} (exit code {code})';" if verdict else "", code=own)

    def test_the_verdict_that_was_printed_weighs(self):
        for verdict, code, ssh, expected in (("fault", 1, 137, FAULT), ("fault", 1, 143, FAULT), ("fault", 1, 255, FAULT), ("pass", 0, 137, INCOMPLETE),
                                             ("", 0, 143, INCOMPLETE), ("degraded", 5, 5, 5), ("interrupted", 6, 1, INTERRUPTED), ("pass", 0, 0, 0)):
            for one_job in (False, True):
                with self.subTest(verdict=verdict, ssh=ssh, one_job=one_job):
                    self.ssh(code=str(ssh))
                    done = self.deploy(self.mpirun(verdict, code), one_job=one_job)
                    self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
                    self.assertIn(f"(exit code {expected})\n", done.stdout)

    def test_a_rank_that_is_lost_after_the_verdict_is_no_pass(self):
        done = self.deploy(self.mpirun("pass", 0, own=139))
        self.assertEqual(done.returncode, INCOMPLETE, done.stdout + done.stderr)

    def test_a_run_without_a_verdict_is_no_pass(self):
        for mpirun in ("exit 0\n", self.mpirun(), "echo 'Verdict: pass (exit code 0)'; exit 0\n"):
            for one_job in (False, True):
                with self.subTest(mpirun=mpirun, one_job=one_job):
                    done = self.deploy(mpirun, one_job=one_job)
                    self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
                    self.assertIn("nothing ran: ", done.stdout)
                    self.assertEqual(self.left, [])
        self.assertEqual(self.deploy("exit 0\n", arguments=["--help"]).returncode, 0)

    def test_results_that_cannot_be_gathered_are_kept_there(self):
        """tar fails as on a full disk after it has read everything."""
        self.write("bin/tar", f"""case "$*" in *-strip-components=1*) cat >/dev/null; echo 'tar: x: No space left on device' >&2; exit 2 ;; esac
exec {shutil.which("tar")} "$@"\n""")
        for one_job in (False, True):
            for verdict, code, expected in (("pass", 0, INCOMPLETE), ("fault", 1, FAULT)):
                with self.subTest(one_job=one_job, verdict=verdict):
                    done = self.deploy(self.mpirun(verdict, code), one_job=one_job)
                    self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
                    self.assertRegex(done.stdout, r"not gathered \(tar: x: No space left on device\); they are kept in one:\S+/run")
                    self.assertEqual(len(self.left), 1)

    def test_nothing_is_left_where_all_was_gathered(self):
        for one_job in (False, True):
            done = self.deploy(self.mpirun("pass"), one_job=one_job)
            self.assertEqual((done.returncode, self.left), (0, []), done.stdout + done.stderr)
            self.assertTrue((self.folder / "out" / ("one-job" if one_job else "one") / "result.json").exists())


class Singletons(Launch):
    def test_of_each_launcher_are_refused(self):
        for name, variables in (("Slurm", {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}),
                                ("Hydra", {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "0"}),
                                ("Open MPI's mpirun", {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})):
            with self.subTest(launcher=name):
                done = self.run_program(*BURN, environment=variables)
                self.check(done, ENVIRONMENT, "=2, but MPI_COMM_WORLD has 1")
                self.assertIn(name, self.program_lines(done)[0])

    def test_ranks_of_mpirun_in_a_slurm_step_are_not(self):
        done = self.run_program(*BURN, ranks=2, environment={"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


@unittest.skipUnless(HAS_NAMESPACES, "unshare is not permitted")
class PciGpus(Launch):
    """Two GPUs on the PCI bus, but no CUDA device."""

    def on_a_gpu_node(self, *arguments, environment=None):
        root = self.folder / "bus"
        for address in ("0000:17:00.0", "0000:65:00.0"):
            (root / address).mkdir(parents=True, exist_ok=True)
            (root / address / "vendor").write_text("0x10de\n")
            (root / address / "class").write_text("0x030200\n")
        script = 'mount --bind bus /sys/bus/pci/devices && unset EGT_BACKEND && exec "$@"'
        done = subprocess.run([*NAMESPACES, "--mount", "bash", "-c", script, "bash", PROGRAM, *arguments], cwd=self.folder, capture_output=True,
                              text=True, timeout=240, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        shutil.rmtree(root)
        return done

    def test_a_node_does_not_pass_by_its_cpu(self):
        done = self.on_a_gpu_node(*BURN)
        self.check(done, ENVIRONMENT, "the GPUs at 0000:17:00.0, 0000:65:00.0 cannot be used: ")
        self.assertTrue(self.program_lines(done)[0].endswith("; --backend host tests the CPU"), done.stderr)

    def test_the_host_backend_does_where_it_is_asked_for(self):
        done = self.on_a_gpu_node(*BURN, "--backend", "host")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_devices_names_them(self):
        done = self.on_a_gpu_node("devices")
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
        self.assertIn("not usable: the GPUs at 0000:17:00.0, 0000:65:00.0", done.stdout)


if __name__ == "__main__":
    unittest.main()
