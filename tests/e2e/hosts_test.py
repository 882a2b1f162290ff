"""The program on two hosts with two ranks each: it distinguishes the hosts and reports the lost one."""
from hosts import *
from hosts import tool

SMALL_NETWORK = ["--layers", "32,48,16", "--batch", "16", "--collective-timeout", "3s"]
LONG = [*SMALL_NETWORK, "--duration", "120s", "--io-size", "1MB", "--io-dir", ".", "--max-restarts", "0", "--output", "run"]
# Exit code of the program, or of mpirun if it detects the lost daemon before the ranks have exited.
CODES_AFTER_A_CUT = (1, 4)


class Hosts(HostsTest):
    def check_pass(self, done, directory="run"):
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, told)
        result = self.result(directory)
        self.assertEqual((result["verdict"], result["exit_code"], result["faults"]), ("pass", 0, []), told)
        self.assertEqual((result["system_info"]["hostname"], result["system_info"]["hostnames"]), ("hosta", ["hosta", "hostb"]))
        self.assertEqual([(rank["rank"], rank["hostname"], rank["local_rank"], rank["device"]["index"]) for rank in result["ranks"]],
                         [(0, "hosta", 0, 0), (1, "hosta", 1, 1), (2, "hostb", 0, 0), (3, "hostb", 1, 1)])
        # Both hosts are one machine: each reports all of its memory, half of it per rank.
        for rank in result["ranks"]:
            self.assertLess(abs(rank["device"]["memory_total_bytes"] * 2 / result["system_info"]["memory_total_bytes"] - 1), 0.05)
            self.assertEqual(rank["numa_node"], result["ranks"][0]["numa_node"])
        self.assertEqual(len({self.part(result, "train", rank)["weight_digest"] for rank in range(4)}), 1)
        self.assertGreater(result["verified_work"]["collective_elements_checked"], 0)
        self.assertIn(" on hosta\n", done.stdout)
        self.assertIn(" on hostb\n", done.stdout)
        return result

    def test_hosts_without_a_common_disk(self):
        self.make_hosts(own_disks=True)
        # A connection to nowhere takes two minutes to fail; it must not hold up the start.
        done = self.run_on_hosts([*SMALL_NETWORK, "--memory", "64MB", "--steps", "30", "--io-size", "4MB", "--io-repeats", "2", "--output", "run"])
        result = self.check_pass(done)
        for rank in range(4):
            self.assertGreaterEqual(self.part(result, "io", rank)["passes"], 1)
        self.check_gathered()
        self.check_reported(result)

    def check_gathered(self, ranks=(2, 3), others=()):
        """Rank 0's directory has all journals, and the size of those left on the other host; with `ranks`, none from there."""
        journals = [f"disk_of_hostb/run/journal.rank{rank}.jsonl" for rank in (2, 3)] + [f"run/journal.rank{rank}.jsonl" for rank in (0, 1, *ranks)]
        self.assertEqual(self.files(), sorted([*journals, *self.run_files(0), *others]))
        for rank in ranks:
            # A stopped rank's slow shutdown is logged in its journal, possibly after the journal was sent.
            sent, own = ([line for line in journal.read_text().splitlines() if json.loads(line)["kind"] != "late_stop"]
                         for journal in (self.folder / f"run/journal.rank{rank}.jsonl", self.other_journal(rank)))
            self.assertEqual(sent, own)

    def other_journal(self, rank):
        return self.folder / f"disk_of_hostb/run/journal.rank{rank}.jsonl"

    def check_reported(self, result):
        """The journals in rank 0's directory give the same result."""
        (self.folder / "run/result.json").unlink()
        done = self.run_program("report", "run", "--nodes-file", "nodes_of_report")
        self.assertEqual(done.returncode, result["exit_code"], done.stdout + done.stderr)
        again = self.result()
        self.assertEqual({name for name in result if again[name] != result[name]}, set())
        return (self.folder / "nodes_of_report").read_text()

    def test_a_fault_on_a_host_without_a_common_disk(self):
        self.make_hosts(own_disks=True)
        done = self.run_on_hosts([*SMALL_NETWORK, "--memory", "64MB", "--steps", "30", "--no-io", "--inject", "memory:rank=2,step=10",
                                  "--nodes-file", "nodes", "--output", "run"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.check_gathered(others=["nodes"])
        nodes = (self.folder / "nodes").read_text()
        self.assertEqual(self.check_reported(self.result()), nodes)
        self.assertRegex(nodes, r"\Apass hosta\ninjected hostb rank 2, .*\n\Z")

    def test_a_device_that_fails_on_any_host_without_a_common_disk(self):
        """The rank that writes the result receives the fault's record, although other ranks cannot read it."""
        self.make_hosts(own_disks=True)
        for rank in (0, 3):
            with self.subTest(rank=rank):
                done = self.run_on_hosts([*SMALL_NETWORK, "--memory", "64MB", "--steps", "30", "--no-io", "--inject",
                                          f"device-error:rank={rank},step=10,count=20", "--output", f"run{rank}"])
                result = self.result(f"run{rank}")
                told = done.stdout + done.stderr + json.dumps(result["reasons"])
                self.assertEqual((done.returncode, result["verdict"]), (1, "fault"), told)
                self.assertEqual([(f["kind"], f["rank"]) for f in result["faults"]], [("device-error", rank)], told)

    def test_a_run_that_goes_on_knows_the_faults_of_the_other_host(self):
        """The faults are in journals that were not transferred, because all processes were killed."""
        self.make_hosts(own_disks=True)
        process = self.start_on_hosts([*SMALL_NETWORK, "--memory", "64MB", "--steps", "300", "--no-io", "--inject", "memory:rank=2,step=10", "--output", "run"])
        self.wait_for(lambda: self.other_journal(2).exists() and '"kind":"fault"' in self.other_journal(2).read_text(), 60)
        for killed in self.hosts.all_processes():
            os.kill(killed, signal.SIGKILL)
        process.communicate(timeout=300)
        self.assertFalse((self.folder / "run/journal.rank2.jsonl").exists())
        done = self.run_on_hosts(["burn", "--resume", "run"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([node["verdict"] for node in self.result()["nodes"]], ["pass", "injected"])
        self.check_gathered()

    def test_a_disk_that_is_too_small_for_the_journals_of_the_other_host(self):
        """The disk has enough space for rank 3's journal, which arrives in several pieces."""
        self.make_hosts(own_disks=True)
        (self.folder / "run").mkdir()
        tool("mount", "-t", "tmpfs", "-o", "size=6m", "none", self.folder / "run")
        self.addCleanup(tool, "umount", self.folder / "run")
        process = self.start_on_hosts([*LONG, "--memory", "0"])
        self.wait_for(lambda: self.ranks_at_work() == 4)
        for rank, size in ((2, 8 << 20), (3, 3 << 20)):
            with open(self.other_journal(rank), "r+") as journal:
                line = next(line for line in journal if '"epoch"' in line)
                os.write(os.open(self.other_journal(rank), os.O_WRONLY | os.O_APPEND), (line * (size // len(line))).encode())
        (self.folder / "run/stop").touch()
        output, messages = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 6, output + messages)
        self.assertIn(f"the journal of rank 2 is in hostb:{self.folder}/run and not here: run/journal.rank2.jsonl: cannot be written: "
                      "No space left on device\n", messages)
        self.assertGreater(self.other_journal(3).stat().st_size, 3 << 20)
        self.check_gathered(ranks=(3,))

    def test_a_slow_link(self):
        self.hosts.shape("hostb", "100mbit")
        done = self.run_on_hosts([*SMALL_NETWORK, "--memory", "0", "--steps", "60", "--io-size", "4MB", "--io-repeats", "2", "--output", "run"])
        self.check_pass(done)

    def test_a_stop_file_on_any_host(self):
        """On rank 0's host, then on the other host, which has its own disk."""
        for disk in ("run", "disk_of_hostb/run"):
            with self.subTest(disk=disk):
                self.setUp()
                self.make_hosts(own_disks=True)
                process = self.start_on_hosts([*LONG, "--memory", "0"])
                self.wait_for(lambda: self.ranks_at_work() == 4)
                (self.folder / disk / "stop").touch()
                output, messages = process.communicate(timeout=300)
                self.assertEqual(process.returncode, 6, output + messages)
                result = self.result()
                self.assertEqual(result["verdict"], "interrupted")
                self.assertTrue(result["reasons"][0].startswith("stopped by the file stop"), result["reasons"])
                self.assertEqual([name for name in self.files() if name.endswith(("stop", ".tmp"))], [])
                self.check_gathered()

    def lose(self, strike, memory="0", silence="3s"):
        """Runs until `strike` has acted. Returns the result after all processes have exited."""
        process = self.start_on_hosts([*(silence if word == "3s" else word for word in LONG), "--memory", memory, "--nodes-file", "nodes"])
        self.wait_for(lambda: self.ranks_at_work() == 4)
        struck = time.monotonic()
        strike()
        self.wait_for(lambda: not any(self.hosts.ranks(name) for name in self.HOSTS), 60)
        self.seconds = time.monotonic() - struck
        output, messages = process.communicate(timeout=300)
        self.told = output + messages
        self.wait_for(lambda: not self.hosts.all_processes(), 20)
        return process.returncode

    def check_no_test_files(self):
        self.assertEqual([name for name in self.files() if name.endswith(".tmp")], [], self.told)

    def ranks_at_work(self):
        return sum('"epoch"' in journal.read_text() for journal in self.folder.rglob("journal.rank*.jsonl"))

    def check_incomplete(self, *reasons):
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"]), ("incomplete", 4), self.told)
        self.assertEqual(len(result["reasons"]), len(reasons), result["reasons"])
        for reason, start in zip(result["reasons"], reasons):
            self.assertTrue(reason.startswith(start), result["reasons"])
        return result

    def test_a_rank_of_the_other_host_is_killed(self):
        # Its connection closes at once; on a busy machine the others may notice that after more than 3 s.
        code = self.lose(lambda: os.kill(self.hosts.ranks("hostb")[2], signal.SIGKILL), memory="64MB", silence="20s")
        self.assertIn(code, (4, 137), self.told)
        if not (self.folder / "run/result.json").exists():  # mpirun was faster than the surviving ranks
            self.assertEqual(self.run_program("report", "run").returncode, 4)
        self.check_incomplete("rank 2 on hostb vanished: ")

    def test_a_rank_of_the_other_host_is_stopped(self):
        code = self.lose(lambda: os.kill(self.hosts.ranks("hostb")[3], signal.SIGSTOP), memory="64MB")
        self.assertEqual(code, 4, self.told)
        self.check_incomplete("rank 3 on hostb does not answer ")
        lines = (self.folder / "nodes").read_text().splitlines()
        self.assertEqual([line.split()[:2] for line in lines[:2]], [["unknown", "hosta"], ["fail", "hostb"]])
        self.assertRegex(lines[2], r"^scontrol update NodeName='hostb' State=DRAIN Reason='extreme_gpu_trainer: rank 3 on hostb .*'$")
        self.assertRegex("\n".join(lines[3:]), r"^kubectl cordon .*'hostb'.*$")
        self.assertIn("rank 3 on hostb does not answer ", self.told)

    def test_the_link_is_cut(self):
        code = self.lose(lambda: self.hosts.cut("hostb"))
        self.assertIn(code, CODES_AFTER_A_CUT, self.told)
        self.assertLess(self.seconds, 40, self.told)
        self.check_no_test_files()
        # The hosts share a disk, so that the host that judges last has the journals of both.
        result = self.check_incomplete("ranks 0, 1 on hosta and ranks 2, 3 on hostb did not hear each other for ")
        self.assertEqual(sorted((loss["rank"], loss["hostname"], loss["how"]) for loss in result["losses"]),
                         [(rank, "hosta" if rank < 2 else "hostb", "silent") for rank in range(4)])

    def test_the_link_is_cut_between_hosts_without_a_common_disk(self):
        self.make_hosts(own_disks=True)
        code = self.lose(lambda: self.hosts.cut("hostb"))
        self.assertIn(code, CODES_AFTER_A_CUT, self.told)
        self.check_incomplete("rank 2 on hostb does not answer ", "rank 3 on hostb does not answer ")
        self.check_no_test_files()
        self.assertIn(f"the journals of ranks 2, 3 are in hostb:{self.folder}/run and not here: a rank was lost\n", self.told)

    def pairs(self):
        return [result for result in self.result()["results"] if result.get("measurement") == "pair" and result["measured"]]

    def test_links_names_the_slow_host(self):
        self.make_hosts(names=("hosta", "hostb", "hostc"))
        self.hosts.shape("hostc", "100mbit")
        done = self.run_on_hosts(["links", "--size", "1MB", "--repeats", "2", "--warn-below", "300Mb/s", "--output", "run"],
                                 ranks_per_host=1)
        told = done.stdout + done.stderr
        self.assertEqual(done.returncode, 5, told)
        self.assertIn("Found 3 devices on 3 hosts\n", done.stdout)
        reasons = self.result()["reasons"]
        self.assertTrue(any("hostc" in reason and "rank 0 <-> rank 2, rank 1 <-> rank 2" in reason for reason in reasons), reasons)
        for pair in self.pairs():
            self.assertEqual(pair["link"]["kind"], "network")
            for way in pair["one_way"].values():
                slow = way["gbit_per_second"] < 0.2
                self.assertEqual(slow, "hostc" in pair["hostnames"], told)

    def test_verify(self):
        done = self.run_on_hosts(["verify", "--duration", "3s", "--output", "run"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for device in ("CPU 0 on hosta", "CPU 1 on hosta", "CPU 0 on hostb", "CPU 1 on hostb"):
            self.assertRegex(done.stdout, rf"{device}: .* ACTIVE\n")
        self.assertIn("All 4 CPUs are actively being used!", done.stdout)


if __name__ == "__main__":
    unittest.main()
