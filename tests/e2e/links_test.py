"""`links`: every pair of devices, their hosts and the collectives. A slow, a corrupting and a hanging link are identified."""
from program import *

LINKS = ["links", "--size", "2MB", "--repeats", "3", "--output", "run"]
FAULT, USAGE, INCOMPLETE, DEGRADED, INTERRUPTED = 1, 2, 4, 5, 6


class LinksTest(ProgramTest):
    def links(self, ranks, *more, code=0, **kwargs):
        done = self.run_program(*LINKS, *more, ranks=ranks, **kwargs)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return self.result(), done

    def entries(self, result, measurement):
        return [e for e in result["results"] if e.get("measurement") == measurement]

    def pairs(self, result, method):
        return {(e["from"], e["to"]): e for e in self.entries(result, "pair") if e["method"] == method}

    def check_pair(self, entry):
        there, back = f"{entry['from']}->{entry['to']}", f"{entry['to']}->{entry['from']}"
        self.assertEqual(entry["link"]["kind"], "memory")
        self.assertIsNone(entry["ratio_line_rate"], "host memory has no line rate")
        for figures in (entry["one_way"][there], entry["one_way"][back], entry["both_ways"]):
            self.assertGreater(figures["gb_per_second"], 0)
            self.assertAlmostEqual(figures["gbit_per_second"], 8 * figures["gb_per_second"], places=3)
            self.assertLessEqual(figures["lowest_gb_per_second"], figures["gb_per_second"])
            self.assertLessEqual(figures["gb_per_second"], figures["highest_gb_per_second"])
        self.assertGreater(entry["latency_us"], 0)
        self.assertEqual(entry["sizes"][:3], [8, 64, 512])
        self.assertEqual(entry["sizes"][-1], entry["size_bytes"])
        for way in (there, back, "both"):
            self.assertEqual(len(entry["bandwidths"][way]), len(entry["sizes"]))
        self.assertIsNone(entry["rank"], "it tells of two ranks")


class Figures(LinksTest):
    measures = True

    def test_four_ranks_have_a_complete_table(self):
        result, done = self.links(4)
        all_pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
        for method in ("MPI", "peer copies"):
            pairs = self.pairs(result, method)
            self.assertEqual(sorted(pairs), all_pairs)
            for entry in pairs.values():
                self.check_pair(entry)
        rounds = self.entries(result, "round")
        self.assertEqual(sorted((p["from"], p["to"]) for e in rounds for p in e["pairs"]), all_pairs)
        self.assertTrue(all(e["together_gb_per_second"] > 0 for e in rounds))
        hosts = self.entries(result, "host")
        self.assertEqual([e["rank"] for e in hosts], [0, 1, 2, 3])
        self.assertTrue(all(n["both_ways"]["gb_per_second"] > 0 for e in hosts for n in e["nodes"]))
        collectives = {e["test_name"]: e for e in self.entries(result, "collective")}
        self.assertEqual(set(collectives), {"all-reduce", "all-gather", "reduce-scatter", "all-to-all"})
        for name, entry in collectives.items():
            factor = 1.5 if name == "all-reduce" else 0.75
            self.assertAlmostEqual(entry["bus_gb_per_second"], factor * entry["algorithm_gb_per_second"], places=6)
        self.assertGreater(result["verified_work"]["bytes_exchanged_verified"], 100e6)
        self.assertEqual(result["findings"], [])
        for told in ("Found 4 devices on 1 host", "One way, from the row's rank to the column's, GB/s", "Latency of a message, microseconds",
                     "MEM: host memory", "Collectives of all ranks", "Lowest pair",
                     "No link is slower than it should be" if len(os.sched_getaffinity(0)) >= 4 else "Rates were not judged: ranks share cores"):
            self.assertIn(told, done.stdout)
        again = self.run_program("report", "run")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(done.stdout[done.stdout.index("Found 4 devices"):done.stdout.index("Verdict:")].strip(), again.stdout)

    def test_a_slowed_pair_is_named(self):
        result, done = self.links(4, "--inject", "slow:rank=3,peer=1,step=0", code=DEGRADED)
        self.assertEqual([f["kind"] for f in result["findings"]], ["link"], result["findings"])
        finding = result["findings"][0]
        self.assertEqual(finding["where"], "rank 1 <-> rank 3")
        self.assertLess(finding["actual"], finding["expected"])
        self.assertIn("Warning: rank 1 <-> rank 3", done.stdout)
        looks = [self.pairs(result, method)[1, 3]["looks"] for method in ("MPI", "peer copies")]
        self.assertIn(3, looks, "before it is called slow it is measured again")
        self.assertEqual([i["found"] for i in result["injections"]], [True])

    def test_a_second_look_that_hangs_leaves_the_first(self):
        # After all pairs: 4 ranks have 12 earlier trials.
        result, _ = self.links(4, "--inject", "slow:rank=3,peer=1,step=0,count=2000", "--inject", "hang:rank=1,peer=3,step=12",
                               "--collective-timeout", "10s", code=DEGRADED)
        self.assertEqual([r["rank"] for r in result["restarts"]], [1])
        self.assertEqual([f["where"] for f in result["findings"]], ["rank 1 <-> rank 3"])
        looks = [self.pairs(result, method)[1, 3]["looks"] for method in ("MPI", "peer copies")]
        self.assertEqual(looks, [1, 1], "a look that was lost does not count")

    def test_all_links_of_a_slow_rank(self):
        result, _ = self.links(4, "--inject", "slow:rank=2,step=0", code=DEGRADED)
        self.assertEqual([(f["where"], f["rank"]) for f in result["findings"]], [("all links of rank 2", 2)])

    def test_a_pair_that_hangs_is_named_and_the_rest_goes_on(self):
        result, done = self.links(4, "--inject", "hang:rank=1,peer=2,step=0", "--collective-timeout", "2s", code=INCOMPLETE)
        self.assertEqual([r["rank"] for r in result["restarts"]], [1])
        self.assertEqual(result["losses"], [])
        failed = [e for e in result["results"] if not e["success"]]
        self.assertEqual([e["test_name"] for e in failed], ["pair 1-2 by MPI"], done.stdout)
        self.assertIn("rank 1 and rank 2", failed[0]["failure"])
        self.assertTrue(any("pair 1-2 by MPI" in reason for reason in result["reasons"]), result["reasons"])
        for method, count in (("MPI", 5), ("peer copies", 6)):
            measured = [e for e in self.pairs(result, method).values() if e["measured"]]
            self.assertEqual(len(measured), count)
        self.assertEqual(len(self.entries(result, "collective")), 4)
        left_out = [p for e in self.entries(result, "round") for p in e["pairs"] if p["both_ways"] is None]
        self.assertEqual([(p["from"], p["to"]) for p in left_out], [(1, 2)])
        self.assertEqual([i["found"] for i in result["injections"]], [True])
        self.assertIn("Failed: pair 1-2 by MPI", done.stdout)


class Links(LinksTest):
    def test_one_rank_alone_measures_its_host(self):
        result, done = self.links(None)
        self.assertEqual([e["test_name"] for e in result["results"]], ["links", "host and device"])
        self.assertIn("a single rank has no pairs", done.stderr)
        self.assertIn("One rank alone has no pairs", done.stdout)

    def test_flipped_data_are_found_and_named(self):
        result, _ = self.links(4, "--inject", "collective:rank=2,peer=0,step=0,bit=5", code=FAULT)
        self.assertEqual(len(result["faults"]), 1, result["faults"])
        fault = result["faults"][0]
        self.assertEqual((fault["kind"], fault["detector"], fault["rank"]), ("link", "links", 2))
        self.assertEqual((fault["blame"], fault["suspects"]), ("ambiguous", [0, 2]))
        self.assertIn("what rank 2 received from rank 0", fault["where"])
        self.assertEqual((fault["xor"], fault["count"]), ("0x00000020", 1))
        self.assertEqual([i["found"] for i in result["injections"]], [True])

    def test_two_wrong_pairs_blame_the_rank_in_both(self):
        result, _ = self.links(3, "--inject", "collective:rank=1,peer=0,step=0", "--inject", "collective:rank=2,peer=1,step=0", code=FAULT)
        self.assertEqual([(f["rank"], f["blame"]) for f in result["faults"]], [(1, "ambiguous"), (1, "majority")])

    def test_flipped_data_of_a_collective(self):
        # After all pairs, remeasurements, rounds and hosts: 4 ranks have 12 + 8 + 3 + 4 earlier trials.
        result, _ = self.links(4, "--inject", "collective:rank=2,step=27,bit=5", code=FAULT)
        self.assertEqual([(f["kind"], f["rank"], f["blame"]) for f in result["faults"]], [("collective", 2, "majority")])
        self.assertIn("all-reduce", result["faults"][0]["where"])

    def test_other_hosts_are_a_network_without_copies(self):
        program, launcher = os.environ["EGT_PROGRAM"], os.environ["EGT_MPIRUN"].split()
        halves = [["-np", "2", "env", f"NCCL_HOSTID={host}", program, *LINKS, "--warn-below", "0"] for host in ("left", "right")]
        done = subprocess.run([*launcher, *halves[0], ":", *halves[1]], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL)
        self.assertIn(done.returncode, (0, DEGRADED), done.stdout + done.stderr)  # two kinds of links, too few of each to compare
        result = self.result()
        self.assertEqual(sorted(self.pairs(result, "peer copies")), [(0, 1), (2, 3)])
        kinds = {pair: entry["link"]["kind"] for pair, entry in self.pairs(result, "MPI").items()}
        self.assertEqual(kinds, {(0, 1): "memory", (2, 3): "memory", **{(a, b): "network" for a in (0, 1) for b in (2, 3)}})
        self.assertEqual(self.pairs(result, "MPI")[0, 2]["hostnames"], ["left", "right"])

    def test_a_signal_ends_it_within_a_trial(self):
        process = self.start_program("links", "--size", "4MB", "--repeats", "1000", "--output", "run", ranks=3)
        self.wait_for((self.folder / "run/journal.rank2.jsonl").exists)
        time.sleep(2)
        process.send_signal(signal.SIGUSR2)
        self.assertEqual(process.wait(timeout=300), INTERRUPTED)
        result = self.result()
        self.assertEqual(result["verdict"], "interrupted", result["reasons"])
        self.assertEqual([e["test_name"] for e in result["results"] if not e["success"]], [])

    def test_bad_options(self):
        cases = ((["--warn-below", "-1Gb/s"], "--warn-below"), (["--inject", "weight:rank=0,step=0"], "links has nothing that it could hit"),
                 (["--inject", "slow:rank=0,peer=5,step=0"], "peer 5 is no other rank"),
                 (["--inject", "slow:rank=7,step=0"], "rank 7 is not in this run"))
        for (arguments, named), done, folder in self.side_by_side(
                cases, lambda case, folder: self.run_program("links", *case[0], ranks=2, folder=folder)):
            with self.subTest(arguments=arguments):
                self.assertEqual(done.returncode, USAGE, done.stderr)
                lines = self.program_lines(done)
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertIn(named, lines[0])
                self.assertEqual(list(folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
