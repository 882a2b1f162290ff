"""Slurm jobs: munged, slurmctld and two slurmd on two separate hosts. Skipped (77) if one is missing."""
from hosts import *
from hosts import AGENT, MCA, PROGRAM, Path, main

SCRIPT = Path(__file__).parents[2] / "scripts/slurm.sbatch"
COMMANDS = ("munged", "sbatch", "scancel", "scontrol", "slurmctld", "slurmd", "srun")
BURN = ["--backend", "host", "--layers", "32,48,16", "--batch", "16", "--memory", "0", "--no-io"]
CONFIG = """\
ClusterName=test
SlurmctldHost=hosta({hosta})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
SlurmdParameters=config_overrides
NodeName=hosta NodeAddr={hosta} CPUs=4 State=UNKNOWN
NodeName=hostb NodeAddr={hostb} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm(HostsTest):
    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)  # required by munge
        for name in ("munge", "state", *(f"{kind}.{host}" for kind in ("spool", "tmp") for host in self.HOSTS)):
            (self.folder / name).mkdir()
        (self.folder / "munge/key").write_bytes(os.urandom(128))
        (self.folder / "munge/key").chmod(0o400)
        (self.folder / "slurm.conf").write_text(CONFIG.format(folder=self.folder, **{name: self.hosts.address(name) for name in self.HOSTS}))
        self.environment = {**self.hosts.environment(), "SLURM_CONF": str(self.folder / "slurm.conf"), "EGT_PROGRAM": PROGRAM,
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "SLURM_MPI_TYPE": "none",
                            **{f"OMPI_MCA_{name}": MCA[name] for name in ("btl_tcp_if_include", "pml", "btl")}}
        # The daemons exit with their hosts.
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self.on("hosta", ["munged", *files, f"--socket={munge / 'socket'}", "--origin=127.0.0.1"])  # a resolvable name
        self.on("hosta", ["slurmctld", "-i"])
        for host in self.HOSTS:
            self.on(host, ["slurmd", "-N", host])
        self.wait_for(lambda: self.ask("sinfo", "--noheader", "--Node", "--format=%t").split() == ["idle"] * 2, 30)

    def on(self, host, words, check=True, timeout=300):
        """Daemons detach from this shell with their files closed; their output is in their logs."""
        out, err = self.folder / "out", self.folder / "err"
        with out.open("w") as output, err.open("w") as errors:
            done = subprocess.run([AGENT, self.hosts.address(host), "exec", *map(str, words)], cwd=self.folder, env=self.environment,
                                  stdin=subprocess.DEVNULL, stdout=output, stderr=errors, timeout=timeout)
        done.stdout, done.stderr = out.read_text(), err.read_text()
        if check:
            self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}")
        return done

    def ask(self, *words):
        return self.on("hosta", words).stdout

    def logs(self):
        return "".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))

    def submit(self, *arguments, tasks=("--nodes=2", "--ntasks-per-node=1")):
        return self.ask("sbatch", "--parsable", *tasks, SCRIPT, *arguments).strip()

    def job(self, number):
        """Slurm's fields of the job: "JobState" and so on."""
        return dict(word.split("=", 1) for word in self.ask("scontrol", "--oneliner", "show", "job", number).split() if "=" in word)

    def wait_for_job(self, number, seconds=60):
        self.wait_for(lambda: self.job(number)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"), seconds)
        told = (self.folder / f"slurm-{number}.log").read_text()
        return self.job(number), told

    def test_srun(self):
        done = self.on("hosta", ["srun", "--mpi=pmix", "--nodes=2", "--ntasks=2", PROGRAM, "burn", *BURN, "--steps", "30", "--output", "run"])
        self.assertIn("Verdict: pass (exit code 0)\n  all planned work was done and verified on 2 ranks\n", done.stdout, done.stderr)
        self.assertEqual([rank["hostname"] for rank in self.result()["ranks"]], ["hosta", "hostb"])

    def test_a_job(self):
        job, told = self.wait_for_job(number := self.submit(*BURN, "--steps", "30"))
        self.assertEqual((job["JobState"], job["ExitCode"], job["JobName"]), ("COMPLETED", "0:0", "extreme_gpu_trainer"), told)
        self.assertIn("Verdict: pass (exit code 0)\n", told)
        result = self.result(f"slurm-{number}")
        self.assertEqual([rank["hostname"] for rank in result["ranks"]], ["hosta", "hostb"])
        self.assertGreater(result["verified_work"]["collective_elements_checked"], 0)

    def test_a_job_with_a_fault_in_a_directory_of_its_own(self):
        arguments = [*BURN, "--steps", "60", "--check-every", "10", "--inject", "weight:rank=1,step=20", "--output", "run"]
        job, told = self.wait_for_job(self.submit(*arguments, tasks=["--nodes=1", "--ntasks=2"]))
        self.assertEqual((job["JobState"], job["ExitCode"]), ("FAILED", "1:0"), told)
        self.assertEqual([(rank["hostname"], rank["local_rank"]) for rank in self.result()["ranks"]], [("hosta", 0), ("hosta", 1)])
        self.assertTrue(any(fault["rank"] == 1 for fault in self.result()["faults"]), told)
        self.assertEqual(list(self.folder.glob("slurm-*[!g]")), [])

    def test_a_job_that_loses_a_rank(self):
        job, told = self.wait_for_job(number := self.submit(*BURN, "--duration", "60s", "--max-restarts", "0", "--inject", "kill:rank=1,step=20"))
        self.assertEqual((job["JobState"], job["ExitCode"]), ("FAILED", "4:0"), told)
        self.assertIn("rank 1 on hostb vanished", self.result(f"slurm-{number}")["reasons"][1])

    def test_jobs_that_are_stopped(self):
        for signals, state in (([], "CANCELLED"), (["--signal=USR2"], "FAILED")):
            with self.subTest(signals=signals):
                number = self.submit(*BURN, "--duration", "60s")
                journal = self.folder / f"slurm-{number}/journal.rank1.jsonl"
                self.wait_for(lambda: journal.exists() and '"epoch"' in journal.read_text(), 30)
                self.ask("scancel", *signals, number)
                job, told = self.wait_for_job(number, 20)
                self.assertEqual((job["JobState"], job["ExitCode"]), (state, "6:0"), told)
                self.assertEqual(self.result(f"slurm-{number}")["verdict"], "interrupted", told)

    def test_refusals(self):
        done = subprocess.run([SCRIPT], capture_output=True, text=True, timeout=20, cwd=self.folder, env={**os.environ, "SLURM_JOB_ID": ""})
        self.assertEqual((done.returncode, done.stderr), (3, "slurm.sbatch: this is a job's script; submit it: sbatch scripts/slurm.sbatch\n"))
        self.environment["EGT_PROGRAM"] = "/nowhere/program"
        job, told = self.wait_for_job(self.submit(*BURN))
        self.assertEqual((job["ExitCode"], told), ("3:0", "slurm.sbatch: there is no program /nowhere/program (EGT_PROGRAM)\n"))
        self.environment["EGT_PROGRAM"] = PROGRAM
        job, told = self.wait_for_job(self.submit("--no-such-option"))
        self.assertEqual(job["ExitCode"], "2:0", told)


if __name__ == "__main__":
    main(COMMANDS, "slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge")
