"""Several hosts on one machine: network namespaces joined by a switch, each with its own host name."""
import contextlib
import itertools
import shlex
import shutil
import sys
import tempfile

from program import *
from program import MPIRUN, PROGRAM

HERE = os.path.dirname(os.path.abspath(__file__))
AGENT = os.path.join(HERE, "host_agent.sh")
PREFIX_OF_ALL = "egt-test-"  # namespace name: egt-test-<process>-<number>-<host>
NETWORK = "10.77.0.0/16"
# Two interfaces that lead nowhere precede the one to the other hosts. One resembles a container engine's bridge and is
# the same on all hosts. The other's network is reachable only by a gateway that drops all packets.
BRIDGE_OF_CONTAINERS, GATEWAY = "172.17.0.1/16", "10.77.255.254"
# Retransmissions of TCP without acknowledgement: aborts after 1.4 s instead of 15 min.
TCP_RETRIES = 2
# Settings of Open MPI on these hosts. It treats addresses as names, and often assumes one interface per host.
MCA = {"plm_rsh_agent": AGENT, "oob_tcp_if_include": NETWORK, "btl_tcp_if_include": NETWORK, "pml": "ob1", "btl": "tcp,self,vader"}

numbers = itertools.count()


def tool(*command):
    """Runs `ip` or `tc`, which change system state. An exception contains their output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def processes_in(namespace):
    return [int(process) for process in tool("ip", "netns", "pids", namespace).split()]


def remove(namespace):
    """Removes the namespace and its processes."""
    deadline = time.monotonic() + 10
    while (left := processes_in(namespace)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    tool("ip", "netns", "delete", namespace)


def remove_leftovers():
    """Removes leftovers of killed tests."""
    names = [line.split()[0] for line in tool("ip", "netns", "list").splitlines() if line.strip()]
    for name in names:
        if name.startswith(PREFIX_OF_ALL) and not os.path.exists(f"/proc/{name.split('-')[2]}"):
            with contextlib.suppress(OSError):  # another test removes it
                remove(name)


def why_not():
    """The reason why such hosts cannot be created here; None if they can."""
    for command in ("ip", "tc", "nsenter", "unshare", "mount", "hostname"):
        if not shutil.which(command):
            return f"there is no command {command} (packages iproute2, util-linux, mount, hostname)"
    try:
        hosts = Hosts(["probe"], "/")
    except OSError as error:
        return f"network namespaces are not permitted here: {error}"
    try:
        hosts.shape("probe", "100mbit")
        done = subprocess.run([AGENT, hosts.address("probe"), "true"], env=hosts.environment(), capture_output=True, text=True, timeout=20)
        return None if done.returncode == 0 else f"a process cannot be put into a namespace here: {done.stderr.strip()}"
    except OSError as error:
        return f"the network cannot be shaped here: {error}"
    finally:
        hosts.close()


class Hosts:
    """`own_disks`: each host except the first sees its own folder instead of `folder`: disk_of(name)."""

    def __init__(self, names, folder, own_disks=False):
        remove_leftovers()
        self.names = list(names)
        self.folder = str(folder)
        self.own_disks = own_disks
        self.prefix = f"{PREFIX_OF_ALL}{os.getpid()}-{next(numbers)}-"
        self.namespaces = []
        try:
            self._make_switch()
            for name in self.names:
                self._make(name)
        except OSError:
            self.close()
            raise

    def _add(self, name):
        tool("ip", "netns", "add", self.prefix + name)
        self.namespaces.append(self.prefix + name)
        return self.prefix + name

    def _make_switch(self):
        self.switch = self._add("switch")
        tool("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
        tool("ip", "-n", self.switch, "address", "add", f"{GATEWAY}/16", "dev", "switch")
        tool("ip", "-n", self.switch, "link", "set", "switch", "up")

    def _make(self, name):
        host, number = self._add(name), self._number(name)
        tool("ip", "-n", host, "link", "set", "lo", "up")
        self._interface(host, "docker0", BRIDGE_OF_CONTAINERS, "type", "bridge")
        self._interface(host, "nowhere", f"10.78.{number}.1/24", "type", "veth", "peer", "name", f"nowhere{number}", "netns", self.switch)
        tool("ip", "-n", self.switch, "link", "set", f"nowhere{number}", "up")
        self._interface(host, "eth0", f"{self.address(name)}/16", "type", "veth", "peer", "name", f"port{number}", "netns", self.switch)
        tool("ip", "-n", self.switch, "link", "set", f"port{number}", "master", "switch", "up")
        tool("ip", "-n", host, "route", "add", "default", "via", GATEWAY)
        tool("ip", "netns", "exec", host, "sh", "-c", f"echo {TCP_RETRIES} > /proc/sys/net/ipv4/tcp_retries2")
        if self.own_disks and number > 1:
            os.makedirs(self.disk_of(name))

    @staticmethod
    def _interface(host, name, address, *kind):
        tool("ip", "-n", host, "link", "add", name, *kind)
        tool("ip", "-n", host, "address", "add", address, "dev", name)
        tool("ip", "-n", host, "link", "set", name, "up")

    def _number(self, name):
        return self.names.index(name) + 1

    def _port(self, name):
        return f"port{self._number(name)}"

    def address(self, name):
        return f"10.77.0.{self._number(name)}"

    def disk_of(self, name):
        return self.folder if not self.own_disks or name == self.names[0] else os.path.join(self.folder, f"disk_of_{name}")

    def environment(self):
        lines = [f"{self.address(name)} {self.prefix}{name} {name} {'-' if self.disk_of(name) == self.folder else self.disk_of(name)}"
                 for name in self.names]
        return {**os.environ, "EGT_TEST_HOSTS": "\n".join(lines), "EGT_TEST_FOLDER": self.folder}

    def command(self, arguments, ranks_per_host):
        """mpirun on the first host, with `ranks_per_host` ranks per host in host order."""
        launcher = MPIRUN + ["-np", len(self.names) * ranks_per_host, "--host",
                             ",".join(f"{self.address(name)}:{ranks_per_host}" for name in self.names)]
        for name, value in {**MCA, "orte_tmpdir_base": tempfile.mkdtemp()}.items():
            launcher += ["--mca", name, value]
        words = [*launcher, PROGRAM, *arguments]
        return [AGENT, self.address(self.names[0]), "exec", shlex.join(map(str, words))]

    def shape(self, name, rate):
        """Limits the host's link in both directions: "100mbit"."""
        for namespace, interface in ((self.prefix + name, "eth0"), (self.switch, self._port(name))):
            tool("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root",
                 "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")

    def cut(self, name):
        """Disconnects the host's cable at the switch."""
        tool("ip", "-n", self.switch, "link", "set", self._port(name), "down")

    def processes(self, name):
        return processes_in(self.prefix + name)

    def all_processes(self):
        return [process for name in self.names for process in self.processes(name)]

    def ranks(self, name):
        """The program's processes on the host: pid by rank."""
        found = {}
        for process in self.processes(name):
            try:
                with open(f"/proc/{process}/environ", "rb") as environment, open(f"/proc/{process}/exe", "rb") as program:
                    if os.path.samestat(os.fstat(program.fileno()), os.stat(PROGRAM)):
                        found.update({int(pair.split(b"=")[1]): process for pair in environment.read().split(b"\0")
                                      if pair.startswith(b"OMPI_COMM_WORLD_RANK=")})
            except OSError:
                pass  # the process has exited meanwhile
        return found

    def close(self):
        for namespace in reversed(self.namespaces):
            remove(namespace)
        self.namespaces = []


def main(commands, packages):
    """Runs the tests of the calling script. Skipped (77) if a command is missing; these packages provide the commands."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    absent = [command for command in commands if not shutil.which(command, path=path)]
    if reason := f"there is no command {', '.join(absent)} (packages {packages})" if absent else why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()


class HostsTest(ProgramTest):
    """Tests of the program on several hosts, created again for each test."""
    HOSTS = ("hosta", "hostb")

    @classmethod
    def setUpClass(cls):
        if reason := why_not():
            raise unittest.SkipTest(reason)

    def setUp(self):
        super().setUp()
        self.make_hosts()

    def make_hosts(self, names=None, **options):
        """Replaces the existing hosts."""
        if hasattr(self, "hosts"):
            self.hosts.close()
        self.hosts = Hosts(names or self.HOSTS, self.folder, **options)
        self.addCleanup(self.hosts.close)

    def run_on_hosts(self, arguments, ranks_per_host=2, timeout=60):
        return subprocess.run(self.hosts.command(arguments, ranks_per_host), cwd=self.folder, capture_output=True, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL, env=self.hosts.environment())

    def start_on_hosts(self, arguments, ranks_per_host=2):
        process = subprocess.Popen(self.hosts.command(arguments, ranks_per_host), cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.hosts.environment())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process


__all__ = ["HostsTest", "PREFIX", "SMALL", "json", "load_tests", "os", "signal", "subprocess", "time", "unittest"]
