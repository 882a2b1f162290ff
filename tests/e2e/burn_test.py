"""The burn command on the host backend, with one and with several ranks."""
import resource

from program import *

SMALL_NETWORK = ["--layers", "64,96,32", "--batch", "32"]
COUNTERS = ["ecc_corrected", "ecc_uncorrected", "remapped_rows", "remap_pending", "remap_failure", "pcie_replay",
            "nvlink_crc", "nvlink_replay", "nvlink_recovery"]


class Burn(ProgramTest):
    def check_clean_run(self, ranks, *network):
        done = self.run_program(*SMALL_PARTS, "--output", "run", "--io-dir", ".", *network, ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        size = ranks or 1
        self.assertEqual(self.files(), self.run_files(size))
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"], result["faults"]), ("pass", 0, []))
        self.assertEqual([r["rank"] for r in result["ranks"]], list(range(size)))
        self.assertEqual([r["local_rank"] for r in result["ranks"]], list(range(size)))
        for rank in range(size):
            train = self.part(result, "train", rank)
            self.assertTrue(train["success"])
            self.assertEqual(train["steps"], 30)
            self.assertLess(train["loss_last"], train["loss_first"])
            self.assertGreater(train["step_ms"]["p50"], 0)
            self.assertGreater(train["loss_halving_steps"], 0)
            self.check_breakdown(train["breakdown"], size)
            memory = self.part(result, "memory", rank)
            self.assertGreaterEqual(memory["minimum_visits"], 1)
            self.assertGreaterEqual(memory["bytes_verified"], memory["filled_bytes"])
            self.assertGreaterEqual(self.part(result, "io", rank)["passes"], 1)
            copies = self.part(result, "host-copies", rank)
            self.assertEqual(copies["bytes_each_way"], copies["copies"] * copies["chunk_bytes"])
            self.assertGreaterEqual(copies["copies"], 4)
            votes = self.part(result, "multiprocessors", rank)
            self.assertEqual(votes["answers_wrong"], 0)
            if votes["voters"] > 1:
                self.assertGreaterEqual(votes["rounds"], 1)
                self.assertEqual(votes["answers_compared"], votes["rounds"] * votes["voters"] * len(votes["units"]))
            peers = self.part(result, "peer-copies", rank)
            self.assertEqual(peers["planned"], size > 1)
            if size > 1:
                self.assertEqual(peers["from"], (rank - 1) % size)
                self.assertGreaterEqual(peers["copies"], 4)
            else:
                self.assertEqual(peers["not_possible"], "there is no other rank on this host")
        self.assertEqual(len({self.part(result, "train", r)["weight_digest"] for r in range(size)}), 1)
        work = result["verified_work"]
        for name in ("bytes_patrolled", "bytes_file_verified", "bytes_exchanged_verified", "gemm_flops", "replays", "replica_checks"):
            self.assertGreater(work[name], 0, name)
        (self.assertGreater if size > 1 else self.assertEqual)(work["collective_elements_checked"], 0)
        for kind, share in result["verified_share"].items():
            if kind == "all_reduce" and size == 1:
                self.assertIsNone(share)
            else:
                self.assertGreaterEqual(share, 0.99, kind)
                self.assertLessEqual(share, 1, kind)
        return done, result

    def check_breakdown(self, breakdown, ranks):
        phases = ["forward", "activation", "backward", "update"]
        for phase in phases:
            self.assertGreater(breakdown[phase + "_ms"], 0, phase)
        self.assertLess(sum(breakdown[phase + "_ms"] for phase in phases), 2 * breakdown["step_ms"])
        self.assertEqual(breakdown["measured_steps"], 3)
        self.assertGreaterEqual(len(breakdown["sum_ms"]), 1)
        if ranks > 1:
            self.assertGreater(min(breakdown["sum_ms"]), 0)

    def test_shares_follow_what_devices_compute(self):
        done = self.run_program("--load", "train", "--layers", "128,256,256,64", "--batch", "64", "--precision", "fp32", "--steps", "400",
                                "--balance", "auto", "--inject", "slow:rank=1,step=3,count=200", "--output", "run", ranks=2)
        result = self.result()
        self.assertEqual(result["faults"], [])
        trains = [self.part(result, "train", rank) for rank in range(2)]
        self.assertEqual(len({train["weight_digest"] for train in trains}), 1)
        self.assertEqual(sum(train["batch"] for train in trains), 128)
        self.assertLess(trains[1]["batch"], trains[0]["batch"])
        self.assertGreater(trains[0]["balance_gain"], 1.1)
        self.assertRegex(done.stdout, r"\n  Shares of a step: \d+ to \d+ samples per rank; its passes [0-9.]+ times as fast as with even shares\n")

    def test_numbers_of_8_bits(self):
        done = self.run_program("--load", "train", "--layers", "64,96,64,32", "--batch", "32", "--precision", "fp8", "--steps", "60", "--balance", "auto", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual((result["verdict"], result["precisions"]), ("pass", ["fp8"]))
        train = self.part(result, "train")
        self.assertLess(train["loss_last"], train["loss_first"])
        self.assertGreater(train["gemms_verified"], 0)
        self.assertEqual(len({self.part(result, "train", rank)["weight_digest"] for rank in range(2)}), 1)

    def test_without_mpirun(self):
        self.check_clean_run(None, *SMALL_NETWORK)

    def test_two_ranks(self):
        done, result = self.check_clean_run(2)
        self.check_journals(2)
        self.check_console(done.stdout)
        self.assertIn("EXTREME EPOCH 0 completed in ", done.stderr)
        self.assertNotIn("EPOCH", done.stdout)
        self.check_result_names(result)
        load = self.check_load(result, 2, ["extreme", "products", "memory", "collective", "files", "host_copies", "peer_copies"])
        self.assertEqual(load["mix"]["load"], "mix")
        self.assertIn("  Work index: ", done.stdout)
        self.assertRegex(done.stdout, r"\n  Step: [0-9.]+ m?s: .*extreme compute \d+ %.*\n")
        for rank in range(2):
            breakdown = self.part(result, "train", rank)["breakdown"]
            phases = sum(breakdown[f"{name}_ms"] for name in ("wait", "update", "forward", "activation", "backward"))
            self.assertLessEqual(phases, breakdown["step_ms"] * 1.0001)

    def test_four_ranks(self):
        self.check_clean_run(4, *SMALL_NETWORK)

    def check_load(self, result, ranks, parts):
        for rank in range(ranks):
            load = self.part(result, "load", rank)
            self.assertTrue(load["success"])
            shares = {name: load[f"share_{name}"] for name in ("extreme", "products", "memory", "collective", "files", "host_copies", "peer_copies")}
            mistrusted = load["mistrusted"] or {}  # the machine may be busy
            trusted = {name: share for name, share in shares.items() if share is not None}
            self.assertEqual(trusted.keys() | {name for name in shares if f"share_{name}" in mistrusted}, set(parts))
            for name, share in trusted.items():
                self.assertTrue(0 < share <= 1, name)
            for part, ratio in (("memory", "ratio_read_bandwidth"), ("extreme", "ratio_long_chains")):
                self.assertEqual((load["alone"].get(ratio) or mistrusted.get(ratio, 0)) > 0, part in parts, ratio)
            self.assertAlmostEqual(load["work_index"], sum(trusted.values()))
            self.assertIsNone(load["power_ratio"], "the host has no power limit")
        return load

    def test_the_network_alone_is_a_load(self):
        done = self.run_program("--load", "train", "--steps", "30", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        load = self.check_load(self.result(), 2, ["products", "collective"])
        self.assertEqual(load["mix"]["load"], "train")
        moved = load["share_collective"] * load["alone"]["all_reduce_bus_gb_per_s"] * 1e9
        gradients = 30 * 4 * self.part(self.result(), "train")["parameters"]  # two ranks: the bus factor is 1
        self.assertGreater(moved * self.result()["test_summary"]["actual_duration_seconds"], gradients)
        self.assertEqual(set(load["alone"]["product_tflops"]), set(self.result()["precisions"]))
        self.assertEqual(self.result()["options"]["memory"], 0)
        self.assertFalse({"host-copies", "peer-copies", "multiprocessors"} & {part["test_name"] for part in self.result()["results"]})

    def test_a_load_that_pulses_is_held_back_in_phase(self):
        done = self.run_program("--duration", "6s", "--pulse", "4:0.3", *SMALL_NETWORK, "--memory", "64MB", "--io-size", "8MB",
                                "--metrics-sample-rate", "0.1", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual(result["faults"], [])
        for rank in range(2):
            pulse = self.part(result, "load", rank)["pulse"]
            self.assertEqual((pulse["hertz"], pulse["duty"]), (4, 0.3))
            self.assertGreaterEqual(pulse["rises"], 6)
            self.assertLessEqual(pulse["rises"], 4 * result["test_summary"]["actual_duration_seconds"] + 2)
            self.assertLess(pulse["late_ms"]["p50"], 100)
        self.assertRegex(done.stdout, r"  Pulse: 4 Hz, duty 0.3: \d+ rises, at most [0-9.]+ ms apart, half of them [0-9.]+; power unknown: ")

    def check_journals(self, size):
        for rank in range(size):
            lines = (self.folder / f"run/journal.rank{rank}.jsonl").read_text().splitlines()
            records = [json.loads(line) for line in lines]
            self.assertEqual({r["rank"] for r in records}, {rank})
            kinds = [r["kind"] for r in records]
            self.assertEqual(kinds.count("start"), 1)
            self.assertEqual(kinds[-1], "end")
            self.assertLess(kinds.index("start"), kinds.index("epoch"))

    def check_console(self, text):
        wanted = ["CPU 0 (", "CPU 1 (", "Network configuration:", "  Batch size: ", "  Architecture: ", "CPU 0 Memory: ",
                  "Verdict: pass", "result.json"]
        position = -1
        for piece in wanted:
            found = text.find(piece, position + 1)
            self.assertGreater(found, position, f"{piece!r} is missing, or out of order, in:\n{text}")
            position = found
        self.assertNotIn("\x1b", text, "no colour in a pipe")

    def check_result_names(self, result):
        for name in ("schema", "program_version", "command", "arguments", "reasons", "system_info", "test_summary", "counters", "telemetry"):
            self.assertIn(name, result)
        for name in ("hostname", "hostnames", "gpu_names", "cpu_model", "cpu_count", "memory_total_bytes", "kernel", "driver_version",
                     "cuda_version", "nccl_version", "cublas_version", "mpi_version", "started_at", "ended_at"):
            self.assertIn(name, result["system_info"])
        self.assertEqual(result["test_summary"]["failed_tests"], 0)
        self.assertGreater(result["test_summary"]["total_tests"], 0)
        self.assertEqual(set(result["counters"]), {"0", "1"})
        for counters in result["counters"].values():
            for name in COUNTERS:
                self.assertEqual(set(counters[name]), {"before", "after"}, name)
            self.assertEqual((counters["xid"], counters["nvlinks"]), (None, []))
        cpu = result["telemetry"]["0"]["cpu_percent"]
        self.assertLessEqual(cpu["min"], cpu["max"])

    def test_duration_ends_the_run_and_the_loss_halves(self):
        done = self.run_program("--duration", "4s", *SMALL_NETWORK, "--memory", "0", "--no-io", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = self.result()
        self.assertEqual(result["test_summary"]["requested_duration_seconds"], 4)
        self.assertGreaterEqual(result["test_summary"]["actual_duration_seconds"], 4)
        train = self.part(result, "train")
        self.assertLess(train["loss_last"], train["loss_first"] / 2)
        self.assertEqual(self.part(result, "train", 1)["steps"], train["steps"], "ranks left after the same step")
        records = [json.loads(line) for line in (self.folder / "run/journal.rank0.jsonl").read_text().splitlines()]
        epochs = [record for record in records if record["kind"] == "epoch"]
        self.assertIn(len(epochs), range(2, 6), "short epochs are reported once per second")
        self.assertEqual(sum(record["body"]["steps"] for record in epochs), epochs[-1]["step"] + 1, "every step is in one of them")

    def test_every_precision_both_optimizers_a_global_batch_and_a_log_of_warnings(self):
        for precision, optimizer in (("fp64", "sgd"), ("fp32", "adam"), ("tf32", "sgd"), ("fp16", "adam"), ("bf16", "sgd")):
            with self.subTest(precision=precision, optimizer=optimizer):
                done = self.run_program("--steps", "12", "--layers", "33,64,17", "--global-batch", "15", "--precision", precision, "--optimizer",
                                        optimizer, "--gradient-dtype", "bf16", "--memory", "0", "--no-io", "--log-file", "warnings.log", "--log-level",
                                        "warning", "--output", precision, ranks=2)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                result = self.result(precision)
                train = self.part(result, "train")
                self.assertEqual((train["precisions"], train["optimizer"]), ([precision], optimizer))
                self.assertEqual([rank["batch"] for rank in result["ranks"]], [8, 7])
        self.assertEqual([line for line in (self.folder / "warnings.log").read_text().splitlines() if "Z warning rank " not in line], [])

    def test_a_journal_that_cannot_grow_is_no_pass(self):
        process = self.start_program("--duration", "5s", "--layers", "8,4", "--memory", "0", "--no-io", "--output", "run", ranks=2)
        journal = self.folder / "run/journal.rank1.jsonl"
        self.wait_for(lambda: journal.exists() and journal.stat().st_size > 2000)
        ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        limit = journal.stat().st_size + 500
        resource.prlimit(int(ranks[-1]), resource.RLIMIT_FSIZE, (limit, limit))
        output, messages = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 4, output + messages)
        result = self.result()
        self.assertEqual(result["verdict"], "incomplete")
        self.assertIn("journal.rank1.jsonl", " ".join(result["reasons"]))
        for line in journal.read_text().splitlines():
            json.loads(line)

    def test_the_write_budget_is_kept(self):
        done = self.run_program("--steps", "40", *SMALL_NETWORK, "--io-every", "1", "--io-size", "4MB", "--io-repeats", "2", "--io-budget", "12MB",
                                "--memory", "64MB", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in (0, 1):
            self.assertLessEqual(self.part(self.result(), "io", rank)["bytes_written"], 12_000_000)

    def test_log_file(self):
        done = self.run_program("--steps", "40", "--layers", "33,64,17", "--batch", "8", "--memory", "0", "--no-io", "--log-file", "run.log",
                                "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = (self.folder / "run.log").read_text().splitlines()
        for line in lines:
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning) rank [01]: ")
        for piece in ("rank 0: EXTREME EPOCH 0 completed", "rank 0: started: burn", "rank 1: started: burn", "rank 0: ended (steps): step 40",
                      "rank 1: ended (steps): step 40"):
            self.assertEqual(sum(piece in line for line in lines), 1, f"{piece!r} in {lines}")

    def test_a_full_disk_of_the_log_is_told_once_and_the_run_goes_on(self):
        done = self.run_program("--steps", "40", "--layers", "33,64,17", "--memory", "0", "--no-io", "--log-file", "/dev/full", "--output",
                                "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("Warning: --log-file /dev/full: lines are lost: "), 1, done.stderr)

    def test_a_log_file_that_cannot_be_opened_stops_before_the_run(self):
        done = self.run_program("--steps", "4", "--log-file", "nowhere/burn.log", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(len(self.program_lines(done)), 1, done.stderr)
        self.assertIn("--log-file nowhere/burn.log: ", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


class Devices(ProgramTest):
    def test_lists_the_host_and_says_why_there_is_no_gpu(self):
        done = self.run_program("devices")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("host (", done.stdout)
        self.assertIn("precisions: fp64 fp32 tf32 fp16 bf16 fp8 int8\n", done.stdout)
        self.assertEqual(self.files(), [])

    def test_help_and_version_need_no_ranks(self):
        for option in ("--help", "--version"):
            done = self.run_program(option)
            self.assertEqual(done.returncode, 0)
            self.assertTrue(done.stdout.strip())


if __name__ == "__main__":
    unittest.main()
