"""Scaling of work from one device to all devices, on the host backend."""
from program import *
from program import MPIRUN, PROGRAM

TINY = {"points": "2000,4000", "grid": "16", "batches": "1", "batch": "32", "layers": "32,64,16", "trial-time": "0.05s"}
FIGURES = ("step_ms", "spread_percent", "ms_per_batch", "items_per_second", "speedup", "efficiency", "memory_bytes")


def tiny(**other):
    """Options as a user passes them: each once."""
    options = {**TINY, **{name.replace("_", "-"): value for name, value in other.items()}}
    return [text for name, value in options.items() for text in (f"--{name}", value)]


class BenchTest(ProgramTest):
    def bench(self, *arguments, ranks=None, code=0, **more):
        done = self.run_program("bench", "--output", "run", *arguments, ranks=ranks, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done, self.result()

    def entries(self, result, **wanted):
        entries = [e for e in result["results"] if "workload" in e]
        return [e for e in entries if all(e[key] == value for key, value in wanted.items())]

    def check_entries(self, result, ranks):
        """Checks every test in every mode on every number of devices, with its metrics."""
        counts = sorted({n for n in (2, 4, 8) if n < ranks} | {ranks}) if ranks > 1 else []
        expected = [("single", [rank]) for rank in range(ranks)]
        expected += [(mode, list(range(n))) for mode in ("p2p", "collective") for n in counts]
        expected += [("hetero", list(range(ranks)))] if ranks > 1 else []
        of_training = expected + [("strong", list(range(n))) for n in counts]
        names = {"mlp batch 32": of_training, "multimodal batch 1": expected, "voxelize 2000 points": expected,
                 "voxelize 4000 points": expected}
        self.assertEqual([(e["test_name"], e["mode"], e["ranks"]) for e in self.entries(result)],
                         [(name, mode, who) for name, all_of_it in names.items() for mode, who in all_of_it])
        for entry in self.entries(result):
            with self.subTest(entry=(entry["test_name"], entry["mode"], entry["ranks"])):
                self.check_entry(entry)

    def check_entry(self, entry):
        self.assertEqual((entry["test_type"], entry["rank"], entry["success"], entry["failure"]), ("bench", None, True, None))
        for name in FIGURES:
            self.assertIsNotNone(entry[name], name)
        step, devices = entry["step_ms"], entry["devices"]
        self.assertTrue(0 < step["min"] <= step["p50"] <= step["p95"] <= step["max"], step)
        self.assertEqual(devices, len(entry["ranks"]))
        batches = 1 if entry["mode"] == "strong" else devices
        self.assertAlmostEqual(entry["ms_per_batch"], step["p50"] / batches)
        self.assertEqual(sum(entry["shares"]), entry["size"] * batches)
        self.assertAlmostEqual(entry["items_per_second"] * step["p50"] / 1e3, entry["size"] * batches, places=3)
        self.assertEqual(entry["efficiency_slowest"] is not None, entry["mode"] in ("p2p", "collective", "strong"))
        sums = entry["all_reduce"]
        self.assertEqual(sums is not None, entry["workload"] == "mlp" and devices > 1)
        if sums:
            self.assertGreater(min(one["ms"] for one in sums), 0)
            self.assertGreater(sums[0]["bytes"], sums[1]["bytes"])
        self.assertAlmostEqual(entry["efficiency"], entry["speedup"] / devices)
        moves = entry["mode"] in ("p2p", "collective")
        self.assertEqual(entry["exposed_communication_ms"] is not None, moves)
        self.assertEqual(entry["tflops"] is not None, entry["workload"] == "mlp")
        streams_alone = entry["mode"] == "single" and entry["workload"] != "mlp"
        for name in ("gb_per_second", "ratio_copy_bandwidth"):
            self.assertEqual(entry[name] is not None, streams_alone, name)
        self.assertEqual(entry["even_items_per_second"] is not None, entry["mode"] == "hetero")


class Figures(BenchTest):
    measures = True

    def check_speedups(self, result):
        for entry in self.entries(result):
            alone = [e["items_per_second"] for e in self.entries(result, test_name=entry["test_name"], mode="single")
                     if e["ranks"][0] in entry["ranks"]]
            if entry["mode"] != "single":
                self.assertAlmostEqual(entry["speedup"], entry["items_per_second"] / (sum(alone) / len(alone)))
            if entry["efficiency_slowest"] is not None:
                self.assertAlmostEqual(entry["efficiency_slowest"], entry["items_per_second"] / min(alone) / entry["devices"])

    def test_four_ranks_in_every_mode(self):
        done, result = self.bench(*tiny(), ranks=4, timeout=300)
        self.check_entries(result, 4)
        self.check_speedups(result)
        checks = [e for e in result["results"] if e["test_name"] == "bench checks"]
        self.assertEqual([e["rank"] for e in checks], [0, 1, 2, 3])
        for entry in checks:
            for name in ("outputs_verified", "replays", "replica_checks"):
                self.assertGreater(entry[name], 0, name)
        work = result["verified_work"]
        self.assertEqual(work["outputs_verified"], sum(e["outputs_verified"] for e in checks))
        self.assertEqual((result["verdict"], result["faults"]), ("pass", []))
        self.check_console(done, result)
        self.check_report(done)

    def check_console(self, done, result):
        for entry in self.entries(result):
            who = f"rank {entry['ranks'][0]} alone" if entry["mode"] == "single" else f"{entry['devices']} devices, {entry['mode']}"
            self.assertEqual(done.stderr.count(f"{entry['test_name']}: {who}: "), 1, done.stderr)
        for row in ("1x ", "2x ", "4x "):
            self.assertIn(f"\n| {row}", done.stdout)
        for piece in ("| Configuration ", " Multimodal (ms) | Voxelize (ms) | MLP (ms) | Speedup ", "(p2p)", "(collective)", "(hetero)",
                      "\nmlp\n", "\nmultimodal\n", "\nvoxelize\n", "rank 3 alone"):
            self.assertIn(piece, done.stdout)

    def check_report(self, done):
        """The journals alone give the same result."""
        before = self.result()
        again = self.run_program("report", "run")
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertEqual(self.result(), before)
        table = done.stdout[done.stdout.index("Scaling\n"):done.stdout.index("Verdict:")]
        self.assertIn(table, again.stdout)

    def test_streams_may_come_from_the_first_device(self):
        _, result = self.bench(*tiny(workload="multimodal", streams="first", batches="3"), ranks=3)
        moved = [e["moved_bytes"] for e in self.entries(result) if e["mode"] != "single"]
        self.assertGreater(min(moved), 1_000_000)

    def test_a_slow_device_gets_a_smaller_share(self):
        """Four times slower: times alone differ by up to 1.5 times on a shared host."""
        done, result = self.bench(*tiny(workload="mlp,voxelize", mode="hetero", points="20000", batch="240", layers="64,128,128,64", trial_time="0.4s"), "--inject", "slow:rank=1,step=0,count=300", ranks=3, code=5, timeout=300)
        for entry in self.entries(result, mode="hetero"):
            shares = entry["shares"]
            self.assertEqual(sum(shares), 3 * entry["size"])
            share = shares[1] / ((shares[0] + shares[2]) / 2)
            self.assertTrue(0.1 < share < 0.5, (entry["test_name"], shares))
        outliers = [(f["kind"], f["rank"]) for f in result["findings"]]
        self.assertEqual(outliers, [("outlier", 1)], done.stdout + done.stderr)

    def test_hosts_apart_have_no_peer_copies(self):
        arguments = [PROGRAM, "bench", *tiny(workload="mlp,voxelize", points="2000", mode="p2p,collective"), "--output", "run"]
        command = MPIRUN + ["-np", "2", "env", "NCCL_HOSTID=left", *arguments, ":", "-np", "1", "env", "NCCL_HOSTID=right", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for entry in self.entries(self.result(), mode="p2p"):
            possible = entry["devices"] == 2
            self.assertEqual(entry["not_possible"], None if possible else "ranks 0 and 2 are on different hosts")
            self.assertEqual(entry["step_ms"] is not None, possible)
            self.assertTrue(entry["success"])
        self.assertTrue(all(e["step_ms"] for e in self.entries(self.result(), mode="collective")))
        self.assertIn("3 devices, p2p: not possible: ranks 0 and 2 are on different hosts", done.stderr)

    def test_ranks_that_lose_touch_lose_that_trial_only(self):
        _, result = self.bench(*tiny(workload="voxelize", points="2000"), "--collective-timeout", "2s", "--inject",
                               "hang:rank=1,step=3,ms=6000", ranks=2, code=4)
        entries = self.entries(result)
        self.assertEqual([e["success"] for e in entries], [True, True, True, False, True])
        self.assertEqual(entries[3]["failure"], "the ranks lost communication in it")
        self.assertEqual(len(result["restarts"]), 1)


SMALL = ("--layers", "32,64,16", "--batch", "32", "--trial-time", "0.03s", "--io-size", "3MB")
CEILINGS = {
    "products": ("fp32 forward 1, 32x64x32", "fp32 forward 2, 32x16x64", "fp32 input gradient 2, 32x64x16",
                 "fp32 weight gradient 2, 16x64x32", "fp32 weight gradient 1, 64x32x32",
                 "fp32 product over memory, digested", "fp8 product over memory, digested", "int8 product over memory, digested"),
    "step": ("fp32 step, batch 32", "fp32 step, batch 32, with sums of 2 ranks"),
    "memory": ("fill", "digest", "verify", "verify and refill", "patrol, at rest", "update of weights"),
    "extreme": ("extreme term",),
    "copies": ("host copies, verified",),
    "sums": ("all-reduce of 8 B", "all-reduce of 65.5 KB", "all-reduce of 1.05 MB", "all-reduce of 16.8 MB",
             "all-reduce of 16.8 MB, verified"),
    "files": ("file write", "file read, verified"),
}


class Ceilings(BenchTest):
    def ceilings(self, *arguments, **more):
        # Background streams starve next to other tests: the default timeout of 30 s would restart the ranks.
        timeout = [] if "--collective-timeout" in arguments else ["--collective-timeout", "10m"]
        done, result = self.bench("--ceilings", *SMALL, *timeout, *arguments, **more)
        return done, result, [e for e in result["results"] if "ceiling" in e]

    def test_every_part_is_beside_its_limit_on_every_rank(self):
        done, result, entries = self.ceilings(ranks=2)
        for rank in (0, 1):
            for group, names in CEILINGS.items():
                self.assertEqual(sorted(e["test_name"] for e in entries if (e["ceiling"], e["rank"]) == (group, rank)), sorted(names))
        self.assertEqual(len(entries), 2 * sum(map(len, CEILINGS.values())))
        for entry in entries:
            with self.subTest(entry=(entry["test_name"], entry["rank"])):
                self.check_ceiling(entry)
        self.assertEqual((result["verdict"], result["faults"]), ("pass", []))
        work = result["verified_work"]
        for name in ("replays", "replica_checks", "bytes_patrolled", "bytes_file_verified", "collective_elements_checked"):
            self.assertGreater(work[name], 0, name)
        for group, names in CEILINGS.items():
            self.assertIn(f"Ceilings: {group}\n| Part ", done.stdout)
            for name in names:
                self.assertIn(f"\n| {name} ", done.stdout)
                self.assertEqual(done.stderr.count(f"\n{name}: "), 1, done.stderr)
        self.assertEqual([name for name in self.files() if name.endswith(".tmp")], [])
        self.check_report(done)

    def check_ceiling(self, entry):
        self.assertEqual((entry["test_type"], entry["success"], entry["failure"]), ("bench", True, None))
        own, limit, ratio = entry[entry["unit"]], entry["limit_" + entry["unit"]], entry["ratio_" + entry["limit"]]
        for figure in (own, limit, ratio):
            self.assertGreater(figure, 0)
        self.assertGreaterEqual(entry["rounds"], 3)
        self.assertGreaterEqual(entry["ratio_spread_percent"], 0)
        self.assertTrue({"power_w", "sm_clock_mhz"} <= entry.keys())
        self.assertEqual("direct_io" in entry, entry["ceiling"] == "files")

    def check_report(self, done):
        """The journals alone give the same result."""
        before = self.result()
        again = self.run_program("report", "run")
        self.assertEqual((again.returncode, self.result()), (0, before), again.stdout + again.stderr)
        table = done.stdout[done.stdout.index("Ceilings: products"):done.stdout.index("Verdict:")]
        self.assertIn(table, again.stdout)

    def test_one_rank_has_no_sums(self):
        _, _, entries = self.ceilings("--no-io", "--extreme-iterations", "0", "--precision", "fp8")
        self.assertEqual({e["ceiling"] for e in entries}, {"products", "step", "memory", "copies"})
        names = [e["test_name"] for e in entries]
        self.assertIn("fp8 step, batch 32", names)
        self.assertEqual(len(set(names)), len(names))

    def test_ranks_that_lose_touch_lose_that_trial_only(self):
        _, result, entries = self.ceilings("--no-io", "--collective-timeout", "2s", "--inject", "hang:rank=1,step=3,ms=6000",
                                           ranks=2, code=4)
        lost = [(e["rank"], e["failure"]) for e in entries if not e["success"]]
        self.assertEqual(lost, [(rank, "the ranks lost communication in it") for rank in (0, 1)])
        self.assertEqual({e["test_name"] for e in entries if not e["success"]}, {entries[3]["test_name"]})
        self.assertEqual(len(result["restarts"]), 1)

    def test_a_directory_that_is_not_there_is_refused(self):
        done = self.run_program("bench", "--ceilings", "--io-dir", "/none/such")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("--io-dir /none/such: no such directory", done.stderr)


class CeilingsSignal(ProgramTest):
    measures = True  # mpirun kills its ranks one second after a signal

    def test_a_signal_leaves_no_file(self):
        disk = self.folder / "disk"
        disk.mkdir()
        process = self.start_program("bench", "--ceilings", "--layers", "4,4", "--batch", "4", "--trial-time", "1s", "--io-size", "192MB",
                                     "--extreme-iterations", "0", "--io-dir", str(disk), "--output", "run", ranks=2)
        self.wait_for(lambda: list(disk.iterdir()), seconds=300)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
        self.wait_for(lambda: not list(disk.iterdir()), seconds=5)
        self.check_interrupted()


class Bench(BenchTest):
    def test_in_fp8_shares_are_sixteens(self):
        _, result = self.bench(*tiny(workload="mlp", mode="hetero,strong", batch="32", layers="32,64,16"), "--precision", "fp8", ranks=3)
        for entry in self.entries(result):
            self.assertTrue(entry["success"], entry["failure"])
        strong = {entry["devices"]: entry["not_possible"] for entry in self.entries(result, mode="strong")}
        self.assertEqual(strong, {2: None, 3: "32 samples are too few to share"})

    def test_compressed_gradients_are_held_against_whole_ones(self):
        for compression, least, most in (("topk:2%", 0, 0.1), ("bf16", 0.5, 0.5)):
            with self.subTest(compression=compression):
                self.setUp()
                done, result = self.bench(*tiny(workload="mlp", mode="collective"), "--gradient-compression", compression,
                                          "--steps", "60", ranks=2)
                whole, = self.entries(result, mode="collective")
                entry, = self.entries(result, mode=f"collective {compression}")
                self.assertTrue(entry["success"], entry["failure"])
                self.assertEqual((entry["gradient_compression"], whole["gradient_compression"]), (compression, "none"))
                for name, value in (("sent_bytes", whole["sent_bytes"]), ("loss", whole["loss"]), ("step_ms", whole["step_ms"]["p50"])):
                    self.assertEqual(entry[f"whole_{name}"], value)
                    self.assertGreater(value, 0)
                self.assertTrue(least <= entry["sent_bytes"] / whole["sent_bytes"] <= most, entry["sent_bytes"])
                self.assertAlmostEqual(entry["loss_excess_percent"], 100 * (entry["loss"] / whole["loss"] - 1))
                self.assertIn(f"mlp batch 32 (2, collective {compression}): ", done.stdout)
                self.assertIn(" after as many steps as whole gradients give ", done.stdout)
                self.assertEqual(result["verdict"], "pass")

    def test_tasks_run_at_the_same_time(self):
        done, result = self.bench(*tiny(workload="voxelize,multimodal", points="1000,2000", parallel="task"), ranks=3)
        sequences = self.entries(result, mode="sequence")
        self.assertEqual([e["test_name"] for e in sequences], ["voxelize 2000 points", "multimodal batch 1"])
        both, = self.entries(result, workload="task")
        self.assertTrue(both["success"], both["failure"])
        self.assertEqual((both["mode"], both["items"], both["ranks"]), ("task", "batches", [0, 1, 2]))
        self.assertEqual([task["test_name"] for task in both["tasks"]], [e["test_name"] for e in sequences])
        self.assertEqual(sorted(rank for task in both["tasks"] for rank in task["ranks"]), [0, 1, 2])
        sequence = alone = 0
        for task, all_ranks in zip(both["tasks"], sequences):
            self.assertTrue(task["ranks"])
            batches = sum(both["shares"][rank] for rank in task["ranks"])
            sequence += batches * all_ranks["step_ms"]["p50"] * task["size"] / sum(all_ranks["shares"])
            singles = [e["step_ms"]["p50"] for e in self.entries(result, test_name=task["test_name"], mode="single")]
            alone += batches * sum(singles) / len(singles)
            self.assertIn(f"): {task['test_name']} on rank", done.stdout)
        step = both["step_ms"]["p50"]
        for name, value in (("sequence_ms", sequence), ("sequence_speedup", sequence / step), ("speedup", alone / step), ("efficiency", alone / step / 3)):
            self.assertAlmostEqual(both[name], value, msg=name)
        self.assertEqual((result["verdict"], result["faults"]), ("pass", []))

    def test_one_rank_says_that_it_is_alone(self):
        done, result = self.bench(*tiny())
        self.check_entries(result, 1)
        self.assertIn({"check": "comparison of every training pass", "rank": None, "reason": "only burn compares each pass"}, result["checks_not_run"])
        self.assertIn("  Not run: comparison with an independent result: bench compares repetitions and ranks only\n", done.stdout)
        self.assertIn("bench: one rank, so single only", done.stderr)

    def test_what_does_not_fit_fails_and_the_rest_goes_on(self):
        done, result = self.bench(*tiny(workload="voxelize", points="1000000000,2000"), ranks=2, code=4)
        large = self.entries(result, size=1_000_000_000)
        self.assertEqual({e["success"] for e in large}, {False})
        self.assertIn("rank 0: ", large[0]["failure"])
        self.assertTrue(all(e["step_ms"] and e["success"] for e in self.entries(result, size=2000)))
        self.assertEqual(result["verdict"], "incomplete")
        self.assertIn("voxelize 1000000000 points: rank 0 alone: failed: ", done.stderr)

    def test_a_rank_that_stops_amid_peer_copies_costs_one_trial(self):
        """One rank of two that all exchange data; then the third of three, which is in no earlier pair."""
        for ranks, line_before in ((2, "rank 1 alone"), (3, "2 devices, p2p")):
            with self.subTest(ranks=ranks):
                output = f"run{ranks}"
                process = self.start_program("bench", *tiny(workload="mlp,voxelize", mode="p2p", points="2000", trial_time="1.5s"),
                                             "--collective-timeout", "4s", "--output", output, ranks=ranks)
                while line_before not in process.stderr.readline():
                    self.assertIsNone(process.poll())
                time.sleep(0.8)
                rank = int(subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()[-1])
                os.kill(rank, signal.SIGSTOP)
                time.sleep(5)
                os.kill(rank, signal.SIGCONT)
                told, messages = process.communicate(timeout=240)
                self.assertEqual(process.returncode, 4, told + messages)
                result = self.result(output)
                self.assertEqual([(e["workload"], e["devices"], e["failure"]) for e in self.entries(result) if not e["success"]],
                                 [("mlp", ranks, "the ranks lost communication in it")])
                made = [(e["workload"], e["mode"], e["devices"]) for e in self.entries(result)]
                self.assertEqual(made, [(workload, mode, devices) for workload in ("mlp", "voxelize") for mode, devices in
                                        [("single", 1)] * ranks + [("p2p", n) for n in range(2, ranks + 1)]])
                self.assertEqual(result["faults"], [])

    def test_a_signal_ends_a_long_trial(self):
        process = self.start_program("bench", *tiny(trial_time="60s"), "--output", "run", ranks=2)
        self.wait_for(lambda: (self.folder / "run/journal.rank1.jsonl").exists())
        time.sleep(1.5)
        process.send_signal(signal.SIGUSR2)  # mpirun forwards it and does not kill the ranks a second later
        process.wait(timeout=300)
        self.assertEqual(process.returncode, 6)
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"]), ("interrupted", 6))
        self.assertEqual(self.entries(result), [])

    def test_bad_options(self):
        cases = {
            ("--workload", "mlp,none"): "mlp, multimodal and voxelize",
            ("--workload", "mlp,mlp"): "each once",
            ("--mode", "ddp"): "single, p2p, collective, hetero and strong",
            ("--mode", "p2p"): "start 2 ranks",
            ("--points", "0"): "1 to 1000000000",
            ("--points", "10,10"): "each once",
            ("--batches", "8,x"): "whole numbers",
            ("--grid", "1025"): "1 to 1024",
            ("--streams", "none"): "own or first",
            ("--trial-time", "0"): "0.01s to 1h",
            ("--ceilings", "--points", "5"): "--ceilings measures none",
            ("--ceilings", "--inject", "slow:rank=0,step=1"): "both sides would be slow",
            ("--no-io",): "with --ceilings only",
            ("--steps", "3"): "needs --gradient-compression",
            ("--gradient-compression", "topk:0%"): "none, bf16, or topk: and a share",
            ("--gradient-compression", "topk:1%"): "one rank sends no gradients",
            ("--gradient-compression", "bf16", "--gradient-dtype", "bf16"): "leave one of them out",
            ("--gradient-compression", "topk:1%", "--workload", "voxelize"): "only mlp has gradients",
            ("--gradient-compression", "topk:1%", "--mode", "p2p,collective"): "p2p sums whole gradients",
            ("--gradient-compression", "topk:1%", "--mode", "strong"): "with the mode collective",
            ("--parallel", "task", "--workload", "voxelize,mlp"): "voxelize and multimodal at the same time",
            ("--parallel", "task"): "one rank has no others",
            ("--ceilings", "--gradient-compression", "bf16"): "--ceilings measures none",
            ("--inject", "weight:rank=0,step=1"): "bench has no place for it",
            ("--inject", "slow:rank=0,step=1,ms=3"): "use count",
        }
        for arguments, done, folder in self.side_by_side(list(cases), lambda case, folder: self.run_program("bench", *case, folder=folder)):
            with self.subTest(arguments=arguments):
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                lines = self.program_lines(done)
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertIn(cases[arguments], lines[0])
                self.assertEqual(list(folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
