"""Pipeline and tensor parallel training on the host backend."""
from program import *

SMALL = {"--workload": "mlp", "--layers": "48,64,40,56,32", "--batch": "48", "--trial-time": "0.05s"}
DATA_MODES = ["p2p", "collective", "hetero", "strong"]


def small(*arguments):
    """Options as a user passes them: each once."""
    own = {name: value for name, value in SMALL.items() if name not in arguments}
    return [text for option in own.items() for text in option] + list(arguments)


def state_bytes(neurons):
    """Weights, momentum and gradients in fp32; weights and biases of a layer each begin at a multiple of 64 elements."""
    return sum(64 * (-(-inputs * outputs // 64) - (-outputs // 64)) for inputs, outputs in zip(neurons, neurons[1:])) * 12


class Parallel(ProgramTest):
    def bench(self, *arguments, ranks=2, code=0, folder=None):
        done = self.run_program("bench", "--output", "run", *small(*arguments), ranks=ranks, folder=folder, timeout=240)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done, json.loads(((folder or self.folder) / "run" / "result.json").read_text())

    def entries(self, result):
        return [e for e in result["results"] if "mode" in e]

    def check_divided(self, entry):
        plan = entry["parallel"]
        self.assertEqual(plan["data"] * plan["tensor"] * plan["pipeline"], entry["devices"])
        self.assertEqual((entry["success"], entry["verified_against"]), (True, "one device"))
        for name in ("step_ms", "speedup", "efficiency", "exposed_communication_ms", "exposed_communication_share", "memory_bytes",
                     "state_bytes", "items_per_second"):
            self.assertIsNotNone(entry[name], name)
        is_pipeline = plan["pipeline"] > 1
        for name in ("bubble_share", "bubble_share_formula", "stages", "micro_batches"):
            self.assertEqual(entry[name] is not None, is_pipeline, name)
        if not is_pipeline:
            return
        stages, count = plan["pipeline"], entry["micro_batches"]
        self.assertAlmostEqual(entry["bubble_share_formula"], (stages - 1) / (count + stages - 1))
        self.assertTrue(0 <= entry["bubble_share"] < 1)
        self.assertEqual([layer for stage in entry["stages"] for layer in range(stage[0], stage[1] + 1)], [1, 2, 3, 4])

    def test_all_modes_side_by_side(self):
        divided = {2: ["tensor", "pipeline"],
                   4: ["tensor", "pipeline", "tensor", "tensor 2 x data 2", "pipeline", "pipeline 2 x data 2", "pipeline 2 x tensor 2"]}
        for ranks in (2, 4):
            folder = self.folder / str(ranks)
            folder.mkdir()
            done, result = self.bench("--parallel", "all", ranks=ranks, folder=folder)
            entries = self.entries(result)
            self.assertEqual([e["mode"] for e in entries if e["mode"] not in ("single", *DATA_MODES) and e["mode"] != "task"], divided[ranks])
            for entry in entries:
                if entry["mode"] in DATA_MODES:
                    self.assertEqual(entry["state_bytes"], state_bytes([48, 64, 40, 56, 32]))
                if entry["mode"] in divided[ranks]:
                    with self.subTest(ranks=ranks, mode=entry["mode"]):
                        self.check_divided(entry)
                        self.assertIn(f" {entry['devices']}, {entry['mode']} | ", done.stdout)
            self.assertEqual((result["verdict"], result["faults"]), ("pass", []))
            recommended = [e for e in entries if e["recommendation"]]
            self.assertEqual(len(recommended), 1)
            best = max((e for e in entries if e["devices"] == ranks and e["mode"] not in ("single", "strong")), key=lambda e: e["items_per_second"])
            self.assertIs(recommended[0], best)
            self.assertIn(f"mlp batch 48: use {best['mode']} on these {ranks} devices: ", best["recommendation"])
            self.assertIn("\nParallel\n", done.stdout)
            self.assertIn("  " + best["recommendation"], done.stdout)
            again = self.run_program("report", "run", folder=folder)
            self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
            self.assertEqual(json.loads((folder / "run" / "result.json").read_text()), result)
            self.assertIn(best["recommendation"], again.stdout)
        compared = self.run_program("compare", "2/run", "4/run")
        for title in ("Parallel, 2/run", "Parallel, 4/run", "(pipeline 2 x tensor 2)"):
            self.assertIn(title, compared.stdout)

    def test_fusion_feeds_a_network_as_one_pipeline(self):
        done, result = self.bench("--parallel", "pipeline", "--micro-batches", "6", "--workload", "multimodal,mlp", "--precision", "bf16")
        chain = [e for e in self.entries(result) if e["test_name"] == "multimodal to mlp batch 48"]
        self.assertEqual([e["mode"] for e in chain], ["single", "single", "pipeline"])
        self.assertEqual(chain[-1]["micro_batches"], 6)
        self.check_divided(chain[-1])
        self.assertIn("| multimodal to mlp batch 48 | 2, pipeline | ", done.stdout)
        self.assertIn("multimodal to mlp batch 48: use pipeline on these 2 devices: ", done.stdout)
        # Trial 5, the last one: a flip in the first stage, whose input is fused.
        folder = self.folder / "hit"
        folder.mkdir()
        _, result = self.bench("--parallel", "pipeline", "--workload", "multimodal,mlp", "--inject", "gemm:rank=0,step=5", code=1, folder=folder)
        self.assertEqual({(f["kind"], f["rank"], f["blame"]) for f in result["faults"]}, {("replay", 0, "certain")})
        self.assertEqual([e["test_name"] for e in self.entries(result) if not e["success"]], ["multimodal to mlp batch 48"])

    def test_a_fault_in_a_part_is_blamed_on_its_rank(self):
        cases = [(mode, kind, rank) for mode in ("tensor", "pipeline") for kind, rank in (("gemm", 1), ("gradient", 1), ("activation", 0), ("weight", 1))]

        def run(case, folder):
            mode, kind, rank = case
            return self.bench("--parallel", mode, "--inject", f"{kind}:rank={rank},step=0,layer=3", code=1, folder=folder)

        for (mode, kind, rank), (_, result), _ in self.side_by_side(cases, run, at_once=2):
            with self.subTest(mode=mode, kind=kind):
                self.assertEqual([(f["rank"], f["blame"]) for f in result["faults"]], [(rank, "certain")])
                self.assertTrue(all(i["found"] for i in result["injections"]))
                self.assertEqual([e["mode"] for e in self.entries(result) if not e["success"]], [mode])

    def test_a_rank_that_hangs_or_dies_ends_it_as_everywhere(self):
        _, result = self.bench("--parallel", "pipeline", "--collective-timeout", "2s", "--inject", "hang:rank=1,step=2,ms=6000", code=4)
        lost, = [e for e in self.entries(result) if not e["success"]]
        self.assertEqual((lost["mode"], lost["failure"], result["faults"]), ("pipeline", "the ranks lost communication in it", []))
        done = self.run_program("bench", "--output", "died", *small("--parallel", "pipeline", "--inject", "kill:rank=1,step=2"), ranks=2)
        self.assertEqual(done.returncode, 137, done.stdout + done.stderr)  # mpirun's exit code after the rank's exit
        result = self.result("died")
        self.assertEqual((result["verdict"], result["exit_code"], result["faults"]), ("incomplete", 4, []))
        self.assertEqual([(loss["rank"], loss["how"]) for loss in result["losses"]], [(1, "vanished")])

    def test_what_one_device_may_not_hold_trains_in_two_stages(self):
        done, result = self.bench("--parallel", "all", "--layers", "64,64,64,64,64", "--memory", "120KB")
        state = state_bytes([64] * 5)
        for entry in self.entries(result):
            with self.subTest(mode=entry["mode"]):
                if entry["mode"] == "pipeline":
                    self.assertEqual((entry["state_bytes"], entry["stages"]), (state / 2, [[1, 2], [3, 4]]))
                    self.assertIn("its own repetition only", entry["verified_against"])
                    self.assertGreater(entry["items_per_second"], 0)
                elif entry["mode"] in ("single", *DATA_MODES):
                    self.assertEqual(entry["not_possible"],
                                     "200 KB of weights, moments and gradients on a device are more than --memory 120 KB")
        self.assertIn("is not possible: 200 KB of weights", done.stdout)

    def test_refusals_are_one_line(self):
        cases = {
            ("--parallel", "layers"): "use data, tensor, pipeline, task or all",
            ("--parallel", "tensor", "--workload", "voxelize"): "only mlp has them",
            ("--micro-batches", "0"): "1 to 1024",
            ("--memory", "12"): "a unit is missing",
            ("--parallel", "tensor", "--inject", "slow:rank=0,step=1"): "divided networks have no place for it",
            ("--inject", "gemm:rank=0,step=1"): "add --parallel tensor or pipeline",
            ("--ceilings", "--parallel", "all"): "--ceilings measures none",
        }
        for arguments, done, folder in self.side_by_side(list(cases), lambda case, folder: self.run_program("bench", *case, ranks=2, folder=folder), at_once=2):
            with self.subTest(arguments=arguments):
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(cases[arguments], self.program_lines(done)[0])
                self.assertEqual(list(folder.iterdir()), [])

    def test_what_cannot_be_divided_says_why(self):
        _, result = self.bench("--parallel", "all", "--precision", "fp64", "--extreme-iterations", "1")
        why = {e["mode"]: e["not_possible"] for e in self.entries(result) if e["mode"] in ("tensor", "pipeline")}
        self.assertEqual(set(why.values()), {"parts of a network are summed and exchanged in fp32, tf32 and bf16, not in fp64"})
        folder = self.folder / "narrow"
        folder.mkdir()
        _, result = self.bench("--parallel", "tensor", "--layers", "8,2,2,8,8", ranks=3, folder=folder)
        self.assertIn("too few for 3 parts", self.entries(result)[-1]["not_possible"])
        alone = self.run_program("bench", *small("--parallel", "tensor"))
        self.assertEqual(alone.returncode, 2, alone.stderr)
        self.assertIn("one rank has no others to divide work with", alone.stderr)


if __name__ == "__main__":
    unittest.main()
