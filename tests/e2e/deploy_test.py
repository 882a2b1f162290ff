"""scripts/deploy.sh from one host to others, each with its own disk and sshd. Skipped (77) without sshd."""
import shutil

from hosts import *
from hosts import AGENT, MCA, PROGRAM, Path, main
from program import RESULT_FILES

SCRIPT = Path(__file__).parents[2] / "scripts/deploy.sh"
SSHD = "/usr/sbin/sshd"
TARGETS = ("hosta", "hostb", "hostc")
BURN = ["burn", "--backend", "host", "--layers", "32,48,16", "--batch", "16", "--memory", "0", "--no-io", "--check-every", "10"]
# Their temporary folder is on a separate disk. sshd needs /run/sshd, which packages leave to the system's start.
DAEMON = "{first} && mount -t tmpfs none /run && mkdir -p /run/sshd && exec {sshd} -f {folder}/config -p {port} -E {folder}/sshd.log"
# Hides the file from its folder.
HIDE = "cd {folder} && mkdir upper work && mknod upper/{name} c 0 0 && mount -t overlay -o lowerdir={of},upperdir=upper,workdir=work none {of}"
CONFIG = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {keys}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv TMPDIR={folder}/tmp
"""


class Deploy(HostsTest):
    def setUp(self):
        super().setUp()
        self.make_hosts(["desk", *TARGETS], own_disks=True)
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True, timeout=20)
        self.ports = {name: 22 if name == "hosta" else 2200 + number for number, name in enumerate(TARGETS)}
        self.before = {}
        for name in TARGETS:
            disk = Path(self.hosts.disk_of(name))
            (disk / "tmp").mkdir()
            shutil.copy(self.folder / "host_key", disk)
            shutil.copy(self.folder / "key.pub", disk / "keys")
            keys = "/dev/null" if name == "hostc" else self.folder / "keys"
            (disk / "config").write_text(CONFIG.format(address=self.hosts.address(name), folder=self.folder, keys=keys))
            self.start_daemon(name)
        self.write_hosts(*TARGETS)
        self.environment = {**self.hosts.environment(), "TMPDIR": str(self.folder)}  # left by a deploy.sh that is killed

    def start_daemon(self, name, first="true"):
        command = DAEMON.format(first=first, sshd=SSHD, folder=self.folder, port=self.ports[name])
        done = subprocess.run([AGENT, self.hosts.address(name), command], timeout=20, env=self.hosts.environment(), capture_output=True, stdin=subprocess.DEVNULL)
        self.before[name] = self.state_of(name)
        return done.returncode == 0

    def state_of(self, name):
        """Files except sshd's log, and processes except sshd."""
        files = sorted(str(path) for path in Path(self.hosts.disk_of(name)).rglob("*") if path.name != "sshd.log")
        return files, len(self.hosts.processes(name))

    def write_hosts(self, *names):
        lines = [f"root@{self.hosts.address(name)}" + (f":{self.ports[name]}" if self.ports[name] != 22 else "") for name in names]
        (self.folder / "hosts").write_text("# the rack\n\n" + "".join(f"{line}\n" for line in lines))

    def command(self, *arguments, hosts="hosts"):
        words = [SCRIPT, "--hosts", hosts, "--key", "key", "-o", f"UserKnownHostsFile={self.folder}/known", "--output", "out", *arguments]
        return [AGENT, self.hosts.address("desk"), "exec", *map(str, words)]

    def deploy(self, *arguments, **options):
        return subprocess.run(self.command(*arguments, **options), cwd=self.folder, env=self.environment, capture_output=True,
                              text=True, timeout=300, stdin=subprocess.DEVNULL)

    def check_nothing_is_left(self, seconds=10):
        for name in TARGETS:
            self.wait_for(lambda: self.state_of(name)[1] == self.before[name][1], seconds)
            self.assertEqual(self.state_of(name), self.before[name])

    def result_of(self, name):
        return self.result(f"out/{self.hosts.address(name)}")

    def test_a_good_host_and_one_that_refuses_the_key(self):
        """The program comes from a Debian package."""
        tree = self.folder / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text("Package: test\nVersion: 1\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: test\n")
        (tree / "usr/bin").mkdir(parents=True)
        shutil.copy(PROGRAM, tree / "usr/bin/extreme_gpu_trainer")
        subprocess.run(["dpkg-deb", "-Znone", "--build", tree, "program.deb"], cwd=self.folder, check=True, capture_output=True, timeout=300)
        self.write_hosts("hosta", "hostc")
        done = self.deploy("--package", "program.deb", "--ranks", "2", "--", *BURN, "--steps", "30")
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 3, told)
        self.assertIn("10.77.0.2: pass (exit code 0)\n10.77.0.4: cannot be used: ", told)
        self.assertIn("Permission denied (publickey). (exit code 3)\n", told)
        self.assertEqual([rank["hostname"] for rank in self.result_of("hosta")["ranks"]], ["hosta"] * 2)
        self.assertEqual(sorted(path.name for path in (self.folder / "out/10.77.0.2").iterdir()),
                         sorted(["journal.rank0.jsonl", "journal.rank1.jsonl", "log", *RESULT_FILES]))
        self.check_nothing_is_left()

    def test_a_fault_on_one_host(self):
        """A wrapper in the package injects it on that host only. The hosts come from a cloud host file."""
        package = self.folder / "package/bin"
        package.mkdir(parents=True)
        wrapper = package / "extreme_gpu_trainer"
        fault = "--inject weight:rank=1,step=20"
        wrapper.write_text(f'#!/bin/sh\n[ "$(hostname)" != hostb ] || set -- "$@" {fault}\nexec {PROGRAM} "$@"\n')
        wrapper.chmod(0o755)
        instances = [{"id": number, "ip": self.hosts.address(name), "user": "root", "port": self.ports[name]} for number, name in enumerate(TARGETS)]
        (self.folder / "cluster.json").write_text(json.dumps({"cluster": "eight", "instances": instances}))
        done = self.deploy("--package", "package", "--ranks", "2", "--", *BURN, "--steps", "40", hosts="cluster.json")
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 1, told)
        self.assertIn("10.77.0.2: pass (exit code 0)\n10.77.0.3: fault (exit code 1)\n10.77.0.4: cannot be used: ", told)
        self.assertEqual((self.result_of("hosta")["verdict"], self.result_of("hostb")["verdict"]), ("pass", "fault"))
        self.assertRegex(told, r"10\.77\.0\.3 \(10\.77\.0\.3/?.*\): burn, 2x .*, fault")  # compare
        self.check_nothing_is_left()

    ONE_JOB = ["--one-job", *(word for name, value in MCA.items() if name != "plm_rsh_agent" for word in ("--mca", f"{name}={value}"))]

    def test_one_job(self):
        """Runs on the usable hosts."""
        done = self.deploy(*self.ONE_JOB, "--ranks", "2", "--", *BURN, "--steps", "30")
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 3, told)
        self.assertRegex(told, r"10\.77\.0\.2: pass hosta\n10\.77\.0\.3: pass hostb\n10\.77\.0\.4: cannot be used: .* \(exit code 3\)\none job: pass \(exit code 0\)\n")
        self.assertEqual([rank["hostname"] for rank in self.result("out/one-job")["ranks"]], ["hosta", "hosta", "hostb", "hostb"])
        self.check_one_directory()
        self.check_nothing_is_left()

    def check_one_directory(self):
        self.assertEqual(sorted(str(path.relative_to(self.folder / "out")) for path in (self.folder / "out").rglob("*") if path.is_file()),
                         sorted(f"one-job/{name}" for name in [*(f"journal.rank{rank}.jsonl" for rank in range(4)), "log", "nodes", *RESULT_FILES]))

    def test_one_job_whose_hosts_do_not_reach_each_other(self):
        self.write_hosts("hosta", "hostb")
        with open(Path(self.hosts.disk_of("hosta")) / "config", "a") as config:
            config.write("AllowAgentForwarding no\n")
        for process in self.hosts.processes("hosta"):
            os.kill(process, signal.SIGTERM)
        self.wait_for(lambda: not self.hosts.processes("hosta"), 10)
        self.start_daemon("hosta")
        done = self.deploy(*self.ONE_JOB, "--ranks", "1", "--", *BURN, "--steps", "30")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("10.77.0.2: not judged\n10.77.0.3: not judged\none job: refused: root@10.77.0.3: Permission denied (publickey).; "
                      "see out/one-job/log (exit code 3)\n", done.stdout)
        self.check_nothing_is_left()

    def test_one_job_with_a_fault(self):
        self.write_hosts("hosta", "hostb")
        done = self.deploy(*self.ONE_JOB, "--ranks", "2", "--", *BURN, "--steps", "40", "--inject", "weight:rank=2,step=20")
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 1, told)
        self.assertRegex(told, r"10\.77\.0\.2: pass hosta\n10\.77\.0\.3: injected hostb rank 2.*\none job: fault \(exit code 1\)\n")
        self.check_one_directory()
        self.check_nothing_is_left()

    def test_one_job_stopped_and_killed(self):
        for how in (signal.SIGINT, signal.SIGKILL):
            with self.subTest(how=how):
                self.setUp()
                process = self.start(*self.ONE_JOB, logs=["one-job/log"])
                process.send_signal(how)
                told, _ = process.communicate(timeout=40)
                self.check_nothing_is_left(seconds=40)
                if how == signal.SIGINT:
                    self.assertEqual(process.returncode, 6, told)
                    self.assertIn("\none job: interrupted (exit code 6)\n", told)
                    self.check_one_directory()

    def start(self, *arguments, logs=None):
        """Waits until both hosts are running."""
        self.write_hosts("hosta", "hostb")
        process = subprocess.Popen(self.command("--ranks", "2", *arguments, "--", *BURN, "--duration", "120s"), cwd=self.folder, env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        logs = [self.folder / "out" / log for log in logs or [f"{self.hosts.address(name)}/log" for name in ("hosta", "hostb")]]
        self.wait_for(lambda: all(log.exists() and "EPOCH" in log.read_text() for log in logs), 240)
        return process

    def test_stopped(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=40)
        self.assertEqual(process.returncode, 6, told)
        self.assertIn("10.77.0.2: interrupted (exit code 6)\n10.77.0.3: interrupted (exit code 6)\n", told)
        self.check_nothing_is_left()

    def test_killed(self):
        process = self.start()
        process.kill()
        process.communicate(timeout=40)
        self.check_nothing_is_left()

    def test_a_host_without_a_library(self):
        """deploy.sh copies the library."""
        linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True, timeout=20).stdout
        library = Path(next(line.split()[2] for line in linked.splitlines() if line.split()[0].startswith("libfmt")))
        self.ports["hostb"] = 2300
        hide = HIDE.format(folder=self.folder, name=library.resolve().name, of=library.resolve().parent)
        if not self.start_daemon("hostb", hide):
            self.skipTest("no overlay can be mounted here")
        self.write_hosts("hostb")
        ask = ["ssh", "-F", "none", "-i", "key", "-p", "2300", "-o", f"UserKnownHostsFile={self.folder}/known", "-o", "StrictHostKeyChecking=no",
               f"root@{self.hosts.address('hostb')}", "ldd", PROGRAM]
        lacks = subprocess.run([AGENT, self.hosts.address("desk"), "exec", *ask], capture_output=True, text=True, timeout=20,
                               env=self.environment).stdout
        self.assertRegex(lacks, r"libfmt\S* => not found")
        done = self.deploy("--ranks", "1", "--", *BURN, "--steps", "20")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.check_nothing_is_left()

    def test_refusals(self):
        (self.folder / "bad").write_text("root@hosta\nno host here\n")
        for arguments, hosts, message in (((), "nowhere", "--hosts nowhere: cannot be read"), ((), "bad", "--hosts bad: not [USER@]HOST[:PORT]: "),
                                          (("--ranks", "x"), "hosts", "--ranks x: a whole number is allowed"),
                                          (("--package", "none"), "hosts", "--package none: there is none"),
                                          (("--mca", "btl=tcp"), "hosts", "--mca: is for --one-job"),
                                          (("--one-job", "--mca", "tcp"), "hosts", "--mca tcp: NAME=VALUE is allowed"), (("--x",), "hosts", "unknown option --x")):
            done = self.deploy(*arguments, hosts=hosts)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertTrue(done.stderr.startswith(f"deploy.sh: {message}"), done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)
        self.write_hosts("hosta")
        done = self.deploy("--", "burn", "--no-such-option")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"10\.77\.0\.2: refused: extreme_gpu_trainer: .*--no-such-option.* \(exit code 2\)\n")
        self.check_nothing_is_left()


if __name__ == "__main__":
    main(("dpkg-deb", "ssh", "ssh-keygen", SSHD), "dpkg, openssh-client, openssh-server")
