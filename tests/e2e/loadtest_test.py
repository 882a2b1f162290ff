"""The network tests of the seed and the retrieval test, on the host backend."""
import copy

from program import *

# Each kind of test has one iteration after its mid-test check.
SMALL = ["--quick", "--num-batches", "2"]
WRONG_USAGE, ENVIRONMENT, INTERRUPTED = 2, 3, 6
WITHOUT_LIBRARY = "this program was built without oneDNN"

# JSON example of the seed.
EXAMPLE = json.loads("""
{
  "system_info": {
    "hostname": "gpu-instance-1",
    "gpu_names": ["NVIDIA A100-SXM4-40GB"],
    "cuda_version": "11.8",
    "pytorch_version": "2.0.0"
  },
  "test_summary": {
    "requested_duration_minutes": 5,
    "actual_duration_seconds": 302.1,
    "total_tests": 12,
    "successful_tests": 12,
    "failed_tests": 0
  },
  "results": [
    {
      "test_name": "train_simple_cnn_bs32",
      "test_type": "training",
      "description": "Medium batch CNN training - Balanced test of GPU compute and memory bandwidth...",
      "model_name": "simple_cnn",
      "batch_size": 32,
      "throughput_samples_per_second": 1248.3,
      "avg_iteration_time_ms": 25.6,
      "peak_gpu_memory_mb": 2048,
      "peak_gpu_utilization_percent": 95.2,
      "success": true
    }
  ]
}
""")
# Values that the host may lack. Its tests count iterations, so that no duration is requested.
MAY_BE_NULL = {"cuda_version", "pytorch_version", "requested_duration_minutes", "peak_gpu_memory_mb", "peak_gpu_utilization_percent"}
TESTS = [(f"{verb}_{model}_bs{batch}", kind, model, batch)
         for verb, kind in (("train", "training"), ("infer", "inference"))
         for model, batches in (("simple_cnn", (16, 32, 64)), ("resnet18", (8, 16, 32))) for batch in batches]
NAMES = [name for name, *_ in TESTS] + ["retrieval"]


def kind_of(value):
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


class LoadTest(ProgramTest):
    def skip_without_library(self, done):
        if done.returncode == ENVIRONMENT and WITHOUT_LIBRARY in done.stderr:
            self.skipTest(f"loadtest cannot run here: {self.program_lines(done)[0]}")

    def write_image(self, name, shade):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P6\n40 36\n255\n" + bytes((10 * shade + i) % 256 for i in range(40 * 36 * 3)))
        return path

    def loadtest(self, *arguments, ranks=2, code=0, output="run"):
        done = self.run_program("loadtest", *SMALL, "--output", output, *arguments, ranks=ranks, timeout=500)
        self.skip_without_library(done)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done, json.loads((self.folder / output).read_text()) if output.endswith(".json") else self.result(output)

    def entries(self, result):
        return [entry for entry in result["results"] if entry["rank"] is None]

    def summary(self, result):
        return tuple(result["test_summary"][name] for name in ("total_tests", "successful_tests", "failed_tests"))

    def runs(self):
        return sorted(path for path in (self.folder / "extreme_gpu_trainer_runs").iterdir() if path.is_dir())


class Suite(LoadTest):
    def test_two_ranks(self):
        """One run for all checks of its output."""
        done = self.run_program("loadtest", *SMALL, "-o", "out.json", ranks=2, timeout=500)
        self.skip_without_library(done)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads((self.folder / "out.json").read_text())
        self.assertEqual((result["verdict"], result["exit_code"], result["faults"], result["fault_repeats"]), ("pass", 0, [], []))
        self.assertEqual(self.summary(result), (13, 13, 0))
        self.assertIn({"check": "comparison with an independent result", "rank": None, "reason": "loadtest compares repetitions and ranks only"}, result["checks_not_run"])
        self.check_example(EXAMPLE, result)
        self.check_tests(result)
        self.check_work(result)
        self.check_console(done, result)
        self.check_report(done, result)
        self.check_compare(result)
        self.check_one_rank_with_images_of_files(result)

    def check_example(self, example, found, name="result"):
        """Every field of the example is present with its type."""
        with self.subTest(field=name):
            if found is None and name.rsplit(".", 1)[-1] in MAY_BE_NULL:
                return
            self.assertEqual(kind_of(found), kind_of(example), name)
            if isinstance(example, dict):
                self.assertEqual(sorted(example.keys() - found.keys()), [], name)
                for key in example.keys() & found.keys():
                    self.check_example(example[key], found[key], f"{name}.{key}")
            if name == "result.results":
                like = next(entry for entry in found if entry["test_name"] == example[0]["test_name"])
                self.check_example(example[0], like, name + "[]")
                self.assertTrue(like["description"].startswith(example[0]["description"].rstrip(".")))
                for key in ("test_type", "model_name", "batch_size", "success"):
                    self.assertEqual(like[key], example[0][key])
            elif isinstance(example, list):
                for value in found:
                    self.assertEqual(kind_of(value), kind_of(example[0]), name)

    def check_tests(self, result):
        entries = self.entries(result)
        self.assertEqual([(e["test_name"], e["test_type"], e["model_name"], e["batch_size"]) for e in entries],
                         [*TESTS, ("retrieval", "retrieval", "encoder", None)])
        self.assertEqual(len({entry["description"] for entry in entries}), 13)
        for entry in entries:
            with self.subTest(test=entry["test_name"]):
                self.check_test(entry)
        retrieval = entries[-1]
        self.assertGreater(retrieval["recall_at_1"], 10 * retrieval["recall_at_1_chance"])
        self.assertLess(retrieval["recall_at_1_untrained"], retrieval["recall_at_1"])
        self.assertLessEqual(retrieval["recall_at_1"], retrieval["recall_at_5"])
        self.assertLessEqual(retrieval["recall_at_5"], retrieval["recall_at_10"])
        for name in ("training", "evaluation"):
            self.assertAlmostEqual(retrieval[f"{name}_speedup"], retrieval[f"{name}_single_seconds"] / retrieval[f"{name}_all_seconds"])

    def check_test(self, entry):
        self.assertEqual((entry["success"], entry["failure"], entry["devices"], entry["mode"], entry["precision"]), (True, None, 2, "ddp", "fp32"))
        is_network = entry["test_type"] != "retrieval"
        self.assertEqual(entry["iterations"], 2 if is_network else 100)
        self.assertEqual(entry["image_size"], 32 if is_network else None)
        p50, p95, p99, most = (entry[f"iteration_time_{name}_ms"] for name in ("p50", "p95", "p99", "max"))
        self.assertTrue(0 < p50 <= p95 <= p99 <= most, entry)
        self.assertGreater(entry["tflops"], 0)
        self.assertEqual(entry["loss_first"] is not None, entry["test_type"] != "inference")
        self.assertEqual([one["rank"] for one in entry["per_rank"]], [0, 1])
        self.assertAlmostEqual(entry["throughput_samples_per_second"], sum(one["throughput_samples_per_second"] for one in entry["per_rank"]))
        self.assertEqual(entry["avg_iteration_time_ms"], max(one["avg_iteration_time_ms"] for one in entry["per_rank"]))
        if entry["test_type"] == "training":
            self.assertNotEqual(*[one["loss_first"] for one in entry["per_rank"]], "each rank has data of its own")

    def check_work(self, result):
        for name in ("outputs_verified", "replays", "replica_checks"):
            self.assertGreater(result["verified_work"][name], 0, name)
        checks = [entry for entry in result["results"] if entry["test_name"] == "checks"]
        self.assertEqual([(e["rank"], e["tests_made"], e["success"]) for e in checks], [(0, 13, True), (1, 13, True)])

    def check_console(self, done, result):
        for entry in self.entries(result):
            rows = [line for line in done.stdout.splitlines() if line.startswith(f"| {entry['test_name']} ")]
            self.assertEqual(len(rows), 1, done.stdout)
            self.assertTrue(rows[0].endswith(" yes |"), rows[0])
            self.assertEqual(done.stderr.count(f"\n{entry['test_name']}: "), 1, done.stderr)
        self.assertIn("Load tests, all devices together\n| Test ", done.stdout)
        self.assertIn("\nRetrieval, one device alone and all together\n| Phase ", done.stdout)

    def check_report(self, done, result):
        """The journals alone give the same result."""
        run, = self.runs()
        self.assertEqual(json.loads((run / "result.json").read_text()), result)
        (run / "result.json").unlink()
        again = self.run_program("report", run)
        self.assertEqual((again.returncode, json.loads((run / "result.json").read_text())), (0, result), again.stdout + again.stderr)
        table = done.stdout[done.stdout.index("Load tests"):done.stdout.index("Verdict:")]
        self.assertIn(table, again.stdout)
        page = self.page(again, run)
        for told in ("Load tests, all devices together", '"train_resnet18_bs8"'):
            self.assertIn(told, page)

    def check_compare(self, result):
        slow = copy.deepcopy(result)
        for entry in slow["results"]:
            if entry["test_name"] == "infer_resnet18_bs16":
                entry["throughput_samples_per_second"] *= 0.9
        (self.folder / "slow.json").write_text(json.dumps(slow))
        for second, code in (("slow.json", 5), ("out.json", 2)):
            done = self.run_program("compare", "out.json", second, "-o", "c.json")
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            if code != 5:
                continue
            told = json.loads((self.folder / "c.json").read_text())
            self.assertEqual([(one["test_name"], one["figure"]) for one in told["regressions"]],
                             [("infer_resnet18_bs16", "throughput_samples_per_second")])
            self.assertEqual([test["test_name"] for test in told["tests"]], [*NAMES, "checks"])
        done = self.run_program("compare", "slow.json", "out.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def check_one_rank_with_images_of_files(self, of_two):
        """The retrieval task and its number of shards are the same on any number of ranks."""
        for number, kind in enumerate("cat dog cat dog bird".split()):
            self.write_image(f"images/{kind}/{number}.ppm", number)
        whole = self.write_image("images/dog/cut.ppm", 9)
        whole.write_bytes(whole.read_bytes()[:100])
        self.keep_to_one_core()
        done, result = self.loadtest("--data", "images", "--num-workers", "1", ranks=None, output="one.json")
        self.assertEqual(self.summary(result), (13, 13, 0))
        *networks, retrieval = self.entries(result)
        for entry in networks:
            self.assertEqual((entry["num_workers"], entry["image_files"], entry["bad_image_files"], entry["devices"]), (1, 6, 1, 1))
            self.assertTrue(entry["images"].startswith("1 of 6 files cannot be used, the first: images/dog/cut.ppm"), entry["images"])
        self.assertIn(f"  train_simple_cnn_bs16: {networks[0]['images']}\n", done.stdout)
        for name in ("recall_at_1", "recall_at_5", "recall_at_10", "recall_at_1_untrained", "queries"):
            self.assertEqual(retrieval[name], self.entries(of_two)[-1][name], name)
        for name in ("loss_first", "loss_last"):  # reported as a sum over ranks
            self.assertAlmostEqual(retrieval[name], self.entries(of_two)[-1][name], places=5)

    def keep_to_one_core(self):
        """The threads of a multi-threaded rank would wait for each other and for concurrent tests."""
        cores = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {min(cores)})


class Faults(LoadTest):
    def check(self, struck, rank=1):
        """`struck`: (kind, index of its test)."""
        asked = [word for kind, test in struck for word in ("--inject", f"{kind}:rank={rank},step={test}")]
        done, result = self.loadtest(*asked, code=1)
        told = json.dumps({name: result[name] for name in ("reasons", "faults", "fault_repeats", "injections")}, indent=1)
        self.assertEqual([(f["rank"], f["blame"], f["step"], f["phase"]) for f in result["faults"]],
                         [(rank, "certain", test, NAMES[test]) for _, test in struck], told)
        self.assertEqual([(i["kind"], i["found"]) for i in result["injections"]], [(kind, True) for kind, _ in struck], told)
        self.assertEqual(result["fault_repeats"], [], told)
        self.assertEqual(self.summary(result), (13, 13 - len(struck), len(struck)))
        wrong = {NAMES[test] for _, test in struck}
        entries = self.entries(result)
        self.assertEqual([entry["test_name"] for entry in entries], NAMES)
        for entry in entries:
            with self.subTest(test=entry["test_name"]):
                self.assertEqual(entry["success"], entry["test_name"] not in wrong)
                self.assertEqual(entry["failure"], None if entry["success"] else "a wrong result was found: see the faults")
                self.assertGreater(entry["throughput_samples_per_second"], 0, "others go on, and what was measured is told")
        return done, result

    def test_weights_and_values_of_the_passes_and_of_the_retrieval(self):
        struck = [("activation", 1), ("weight", 3), ("gradient", 5), ("activation", 9), ("gradient", 12)]
        done, result = self.check(struck)
        found = [("replay", "activation of "), ("replica", "weights"), ("replay", "weight gradient of "), ("replay", "activation of "), ("replay", "weights")]
        for fault, (kind, where) in zip(result["faults"], found, strict=True):
            self.assertEqual(fault["kind"], kind)
            self.assertTrue(fault["where"].startswith(where), fault["where"])
        self.assertEqual(done.stdout.count("     NO |"), len(struck), done.stdout)
        self.assertIn("  train_resnet18_bs8: a wrong result was found: see the faults\n", done.stdout)


class Ends(LoadTest):
    def test_a_signal_keeps_the_tests_made_so_far(self):
        process = self.start_program("loadtest", "--quick", "--num-batches", "30", "--output", "run")
        told = ""
        while "train_simple_cnn_bs16: " not in told:
            line = process.stderr.readline()
            self.assertTrue(line, told)
            told += line
            if WITHOUT_LIBRARY in line:
                self.skipTest(f"loadtest cannot run here: {line}")
        process.send_signal(signal.SIGINT)
        output, messages = process.communicate(timeout=240)
        self.assertEqual(process.returncode, INTERRUPTED, output + told + messages)
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"], result["faults"]), ("interrupted", INTERRUPTED, []))
        made = [entry["test_name"] for entry in self.entries(result)]
        self.assertTrue(0 < len(made) < 13, made)
        self.assertEqual(made, NAMES[:len(made)])
        self.assertEqual(self.summary(result), (len(made), len(made), 0))
        self.assertEqual({entry["iterations"] for entry in self.entries(result)}, {30}, "none that was left undone")

    def test_images_that_one_rank_lost_fail_their_tests_only(self):
        """The other rank waits in its all-reduce and does not lose communication."""
        contexts, program = [], os.environ["EGT_PROGRAM"]
        for rank in range(2):
            images = self.write_image(f"{rank}/images/one.ppm", 3).parent
            contexts += [":"] * rank + ["-np", "1", "-wdir", str(self.folder / str(rank)), program, "loadtest", "--quick",
                                        "--num-batches", "60", "--data", "images", "--num-workers", "1", "--output", str(self.folder / "run")]
        with subprocess.Popen([*os.environ["EGT_MPIRUN"].split(), *contexts], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            told = ""
            while "train_simple_cnn_bs16: " not in told:
                line = process.stderr.readline()
                told += line
                if WITHOUT_LIBRARY in line:
                    self.skipTest(f"loadtest cannot run here: {line}")
                self.assertTrue(line, told)
            (images / "one.ppm").unlink()
            output, messages = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 4, output + told + messages)
        result = self.result()
        self.assertEqual((result["faults"], result["losses"], result["restarts"]), ([], [], []))
        failures = {entry["test_name"]: entry["failure"] for entry in self.entries(result)}
        self.assertEqual(list(failures), NAMES)
        self.assertEqual((failures[NAMES[0]], failures["retrieval"]), (None, None))
        for name in NAMES[3:12]:  # prefetched batches may suffice for a test
            self.assertEqual(failures[name], "rank 1: unavailable", name)

    def test_a_rank_that_is_killed_ends_the_run(self):
        done, result = self.loadtest("--inject", "kill:rank=1,step=2", code=137)  # mpirun's exit code after the rank's exit
        self.assertEqual((result["verdict"], result["exit_code"]), ("incomplete", 4), done.stdout + done.stderr)
        self.assertEqual([(loss["rank"], loss["how"]) for loss in result["losses"]], [(1, "vanished")])
        self.assertEqual([(e["test_name"], e["success"]) for e in self.entries(result)], [(name, True) for name in NAMES[:2]])
        self.assertEqual(result["faults"], [])



class Restart(LoadTest):
    measures = True  # a rank that comes to the restart 10 s after the others is lost

    def test_ranks_that_lose_touch_lose_that_test_only(self):
        done, result = self.loadtest("--collective-timeout", "30s", "--inject", "hang:rank=1,step=1,ms=34000", code=4)
        self.assertEqual(self.summary(result), (13, 12, 1), done.stdout + done.stderr)
        lost = [entry for entry in self.entries(result) if not entry["success"]]
        self.assertEqual([entry["failure"] for entry in lost], ["the ranks lost communication in it"])
        self.assertEqual(len(result["restarts"]), 1)
        self.assertIn(f"\n| {lost[0]['test_name']} ", done.stdout)
        self.assertTrue(lost[0].keys() >= EXAMPLE["results"][0].keys())


class Refusals(LoadTest):
    CASES = [
        (["--data", "images"], WRONG_USAGE, "--data: images of files need threads that read them; add --num-workers 1 or more"),
        (["--data", "nowhere", "--num-workers", "1"], ENVIRONMENT, "--data nowhere"),
        (["--data", "empty", "--num-workers", "1"], ENVIRONMENT, "--data empty has no image"),
        (["-o", "nowhere/out.json"], ENVIRONMENT, "--output nowhere/out.json: no file can be written there: No such file or directory"),
        (["--output", "folder.json"], WRONG_USAGE, "--output folder.json: is a directory; name a file"),
        (["--precision", "tf32"], ENVIRONMENT, "--precision tf32: "),
        (["--precision", "cycle"], WRONG_USAGE, "--precision cycle: the tests take one precision"),
        (["--inject", "activation:rank=0,step=13"], WRONG_USAGE, "step is the number of a test here; use 0 to 12"),
        (["--inject", "gradient:rank=0,step=7"], WRONG_USAGE, "infer_simple_cnn_bs32 makes no gradients"),
        (["--inject", "memory:rank=0,step=1"], WRONG_USAGE, "loadtest has no place for it"),
    ]

    def test_are_one_line_and_leave_nothing_behind(self):
        def run(case, folder):
            (folder / "empty").mkdir()
            (folder / "folder.json").mkdir()
            return self.run_program("loadtest", "--quick", *case[0], folder=folder)
        for (arguments, code, named), done, folder in self.side_by_side(self.CASES, run, at_once=2):
            with self.subTest(arguments=arguments):
                if "tf32" in arguments or code == ENVIRONMENT:
                    self.skip_without_library(done)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                lines = self.program_lines(done)
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertIn(named, lines[0])
                self.assertEqual(sorted(path.name for path in folder.rglob("*")), ["empty", "folder.json"])

    def test_two_ranks_refuse_with_one_line(self):
        (self.folder / "empty").mkdir()
        done = self.run_program("loadtest", "--quick", "--data", "empty", "--num-workers", "1", ranks=2)
        self.skip_without_library(done)
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
        self.assertEqual(len(self.program_lines(done)), 1, done.stderr)
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main()
