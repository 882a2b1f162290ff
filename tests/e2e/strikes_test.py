"""One wrong bit of one GEMM, one sinf or expf, or one message of an all-reduce, in ordinary training steps: detected,
blamed on the right rank, and repaired. EGT_STRIKES: how many of each kind for each number of ranks (in the suite a few). EGT_SEED: other ones."""
import random

from program import *

NEURONS, BATCH = [40, 48, 32, 16], 16  # no other GEMM has the shape of the first layer's
LAYERS = list(zip(NEURONS, NEURONS[1:]))
GEMMS = 3 * len(LAYERS) - 1  # per pass
CHAIN_ITERATIONS = 2
CHAINS = BATCH * sum(NEURONS[1:-1]) * CHAIN_ITERATIONS
BITS = {"gemm": 64, "sinf": 32, "expf": 32, "message": 32}
CALLS = {"gemm": GEMMS, "sinf": CHAINS, "expf": CHAINS}
KINDS = list(BITS)
SUMS = [64 * (-(-inputs * outputs // 64) - (-outputs // 64)) for inputs, outputs in LAYERS]  # elements: one all-reduce per layer
TERM_BIT = 30  # with three or more ranks: a wrong sum on all ranks is detected only above its rounding error
DISTANCE = 20  # steps between strikes: the checks in between must pass
MAX_LATENCY = 4
STRIKES = int(os.environ.get("EGT_STRIKES", 3))
STRIKES_PER_RUN = min(4, STRIKES)  # per kind


class Strikes(ProgramTest):
    def run_job(self, ranks, steps, strikes="", **more):
        directory = self.folder / f"run{len(self.runs)}"
        log = self.folder / f"log{len(self.runs)}"
        self.runs.append(directory)
        environment = {"LD_PRELOAD": os.environ["EGT_STRIKING_MATH"], "EGT_STRIKES_INPUT": f"{BATCH},{NEURONS[1]},{NEURONS[0]}", "EGT_STRIKES_LOG": str(log),
                       "EGT_STRIKES_SUMS": ",".join(map(str, [*SUMS, ranks])), "EGT_STRIKES_AT": strikes, **more}
        done = self.run_program("--layers", ",".join(map(str, NEURONS)), "--batch", BATCH, "--steps", steps, "--check-every", 4, "--extreme-iterations",
                                CHAIN_ITERATIONS, "--memory", 0, "--no-io", "--output", directory, ranks=ranks, environment=environment)
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return done, self.result(directory.name), lines

    def detection_steps(self, directory):
        """By incident: the last computed step when a rank first reported it."""
        steps = {}
        for journal in directory.glob("journal.rank*.jsonl"):
            for record in map(json.loads, journal.read_text().splitlines()):
                if record["kind"] == "fault":
                    incident = record["body"]["incident"]
                    steps[incident] = min(record["step"], steps.get(incident, record["step"]))
        return steps

    def digests(self, result):
        return {part["weight_digest"] for part in result["results"] if part["test_name"] == "train"}

    def clean_run(self, ranks, steps):
        """Its weights, and the number of inputs of the known-answer passes before the first step."""
        done, result, passes = self.run_job(ranks, steps, EGT_STRIKES_TRACE="1")
        self.assertEqual((done.returncode, result["faults"]), (0, []), done.stdout + done.stderr)
        digests = self.digests(result)
        self.assertEqual(len(digests), 1)
        self.assertEqual({tuple(one["calls"]) for one in passes}, {(GEMMS, CHAINS, CHAINS)})
        inputs = 1 + max(one["input"] for one in passes)
        known = inputs - steps * min(ranks, 2)  # per step its own and, if there is a peer, the next rank's
        self.assertIn(known, range(1, 6))
        return digests, known

    def plan(self, ranks, known, chosen):
        """(step, strike in the syntax of the preload library)"""
        kinds = [kind for kind in KINDS if ranks > 1 or kind != "message"] * STRIKES_PER_RUN
        chosen.shuffle(kinds)
        strikes = []
        for number, kind in enumerate(kinds):
            step = 10 + DISTANCE * number + chosen.randrange(DISTANCE // 2)
            rank, second = chosen.randrange(ranks), chosen.randrange(2)
            bit, element = chosen.randrange(BITS[kind]), chosen.randrange(1 << 30)
            first_input = known + step * min(ranks, 2)
            peer = -1
            if kind == "message":
                call = chosen.randrange(2 * len(SUMS))
                peer = (rank + chosen.randrange(1, ranks)) % ranks
                is_term = call % 2 == 0
                if is_term and ranks > 2:
                    bit = TERM_BIT
                second = 0
            else:
                call = chosen.randrange(CALLS[kind])
            place = (first_input, 1 + second) if ranks == 1 else (first_input + second, 1)
            strikes.append((step, f"{rank}:{place[0]}:{place[1]}:{KINDS.index(kind)}:{call}:{peer}:{element}:{bit};"))
        return strikes

    def struck_step(self, strike, known, ranks):
        return (strike["input"] - known) // min(ranks, 2)

    def blamed_rank(self, strike):
        """None: all ranks, which received the same wrong sum."""
        if strike["struck"] != "message":
            return strike["rank"]
        return strike["peer"] if strike["call"] % 2 else None

    def judge(self, strike, faults, repeats, ranks, step, detected):
        detector = "all-reduce check" if strike["struck"] == "message" else "second pass"
        rank = self.blamed_rank(strike)
        if not faults:  # an equal fault of an earlier step has a record, this one is counted
            if repeats.get((detector, rank), 0) == 0:
                return "harmless"
            repeats[detector, rank] -= 1
            return "detected"
        fault = faults[0]
        if len(faults) > 1:
            return "several faults"
        if detected[fault["incident"]] - step > MAX_LATENCY:
            return "detected late"
        if fault["detector"] != detector:
            return "wrong detector"
        if rank is None:
            return "detected" if fault["blame"] == "ambiguous" and fault["suspects"] == list(range(ranks)) else "wrong suspects"
        return "detected" if fault["rank"] == rank and fault["blame"] in ("certain", "majority") else "wrong blame"

    def check(self, ranks):
        chosen = random.Random(int(os.environ.get("EGT_SEED", 35)) * 10 + ranks)
        self.runs, table, wrong = [], {}, []
        kinds = len(KINDS) if ranks > 1 else len(KINDS) - 1
        steps = 10 + DISTANCE * (1 + kinds * STRIKES_PER_RUN)
        clean, known = self.clean_run(ranks, steps)
        for _ in range(0, STRIKES, STRIKES_PER_RUN):
            planned = self.plan(ranks, known, chosen)
            done, result, struck = self.run_job(ranks, steps, "".join(text for _, text in planned))
            self.assertEqual(len(struck), len(planned), struck)
            self.judge_run(done, result, struck, clean, known, ranks, table, wrong)
        for kind, counts in sorted(table.items()):
            print(f"{ranks} ranks, {kind}: {dict(sorted(counts.items()))}")
        self.assertEqual(wrong, [])
        self.assertGreater(sum(counts.get("detected", 0) for counts in table.values()), 0)

    def judge_run(self, done, result, struck, clean, known, ranks, table, wrong):
        left, detected = list(result["faults"]), self.detection_steps(self.runs[-1])
        repeats = {(one["detector"], one["rank"]): one["count"] for one in result["fault_repeats"]}
        for strike in struck:
            step = self.struck_step(strike, known, ranks)
            # A message may belong to the previous step, whose last all-reduces overlap with this one.
            steps = (step - 1, step) if strike["struck"] == "message" else (step,)
            faults = [fault for fault in left if fault["step"] in steps]
            left = [fault for fault in left if fault["step"] not in steps]
            judged = self.judge(strike, faults, repeats, ranks, step, detected)
            counts = table.setdefault(strike["struck"], {})
            counts[judged] = counts.get(judged, 0) + 1
            if judged not in ("detected", "harmless"):
                wrong.append((judged, strike, faults))
        wrong.extend(("false alarm", fault) for fault in left)
        wrong.extend(("false alarm", repeat) for repeat in repeats.items() if repeat[1] > 0)
        if self.digests(result) != clean:
            wrong.append(("a strike was missed, or not repaired: other weights than in the clean run", struck, result["faults"]))
        if (done.returncode, result["verdict"]) != ((1, "fault") if result["faults"] else (0, "pass")):
            wrong.append((done.returncode, result["verdict"], result["reasons"]))

    def test_a_function_that_is_wrong_in_every_call_on_all_ranks(self):
        """The host samples do not call the function that they verify, and see an error of 2^-8 in one of the chain's ten functions."""
        self.runs = []
        for ranks in (1, 2):
            done, result, _ = self.run_job(ranks, 30, EGT_WRONG_TANF="15")
            self.assertEqual((done.returncode, result["verdict"]), (1, "fault"), done.stdout)
            self.assertIn("host sample", {fault["detector"] for fault in result["faults"]})

    def test_a_kept_state_that_changed_ends_the_run(self):
        """The copies that restore it after a restart are wrong on rank 0, each time."""
        copies_before = 4  # weights and momentum, at the start and by the check before step 0
        done = self.run_program("--layers", ",".join(map(str, NEURONS)), "--batch", BATCH, "--steps", 60, "--check-every", 1000, "--precision", "fp32", "--memory", 0, "--no-io",
                                "--collective-timeout", "2s", "--inject", "stop:rank=1,step=10,ms=4000", "--output", "run", ranks=2,
                                environment={"LD_PRELOAD": os.environ["EGT_STRIKING_MATH"], "EGT_SPOILT_COPIES": f"0:{4 * sum(SUMS)}:{copies_before}"})
        result = self.result()
        self.assertEqual((done.returncode, result["verdict"]), (1, "fault"), done.stdout + done.stderr)
        self.assertEqual(len(result["faults"]), 1, result["faults"])
        fault, = result["faults"]
        self.assertEqual((fault["kind"], fault["rank"], fault["blame"], fault["where"]), ("replica", 0, "certain", "kept copy of the weights of layer 1"))
        self.assertIn("there is no verified state to continue from", " ".join(result["reasons"]))

    def test_one_rank(self):
        self.check(1)

    def test_two_ranks(self):
        self.check(2)

    def test_three_ranks(self):
        self.check(3)

    def test_four_ranks(self):
        self.check(4)


if __name__ == "__main__":
    unittest.main()
