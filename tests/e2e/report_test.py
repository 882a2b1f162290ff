"""`report DIR` and `--resume DIR` on interrupted runs. EGT_KILL_ROUNDS=50 interrupts 50 of them."""
import datetime
import random
import re
import shutil
import xml.etree.ElementTree

from program import *

ROUNDS = int(os.environ.get("EGT_KILL_ROUNDS", "3"))
WRONG_USAGE, ENVIRONMENT, INCOMPLETE, DEGRADED, INTERRUPTED = 2, 3, 4, 5, 6
SMALL_NETWORK = ["--layers", "32,48,16", "--batch", "16", "--memory", "64MB", "--io-size", "1MB", "--io-repeats", "1", "--collective-timeout", "20s"]
WITHOUT_MEMORY = ["0" if word == "64MB" else word for word in SMALL_NETWORK]
PROGRESS_PERIOD_S = 1
BUSY_S = 3  # max time until a busy machine reaches a rank's next step


class Report(ProgramTest):
    def journals(self, directory="run"):
        return sorted((self.folder / directory).glob("journal.rank*.jsonl"))

    def records(self, journal):
        """All records of a journal; every line except an incomplete last one must be a record."""
        lines = journal.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def cut(self, process):
        """Sends SIGKILL to all processes, including mpirun. Returns its time."""
        for rank in self.processes():
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass
        now = time.time()
        process.wait(timeout=300)
        self.wait_for(lambda: not self.processes(), 10)
        return now

    def start_and_cut(self, *arguments, ranks=2, seconds=2.0, begun='"progress"', network=SMALL_NETWORK):
        """Kills the run this many seconds after every rank's journal contains `begun`."""
        process = self.start_program(*network, *arguments, ranks=ranks)
        self.wait_for(lambda: [begun in journal.read_text() for journal in self.journals()] == [True] * ranks)
        time.sleep(seconds)
        return self.cut(process)

    def report(self, directory, code):
        done = self.run_program("report", directory)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def resume(self, *more, ranks=2, code=0):
        done = self.run_program("--resume", "run", *more, ranks=ranks)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def check_one_line(self, done, *pieces):
        lines = self.program_lines(done)
        self.assertEqual(len(lines), 1, done.stderr)
        for piece in pieces:
            self.assertIn(piece, lines[0])


class Cut(Report):
    def test_at_a_random_moment(self):
        moments = random.Random(4)
        for number in range(ROUNDS):
            with self.subTest(round=number):
                cut = self.start_and_cut("--duration", "10m", "--output", "run", seconds=moments.uniform(0, 5), begun="")
                self.check_journals(cut)
                self.check_report()
                shutil.rmtree(self.folder / "run")

    def check_journals(self, cut):
        for journal in self.journals():
            records = self.records(journal)
            if any(record["kind"] == "progress" for record in records):
                self.assertGreater(records[-1]["time"], cut - PROGRESS_PERIOD_S - BUSY_S, journal.name)

    def check_report(self):
        told = self.report("run", INCOMPLETE).stdout
        self.assertIn("Verdict: incomplete (exit code 4)", told)
        result = self.result()
        self.assertEqual((result["verdict"], result["exit_code"]), ("incomplete", INCOMPLETE))
        known = [record for journal in self.journals() for record in self.records(journal)]
        if any(record["kind"] == "start" for record in known) and not any(record["kind"] == "loss" for record in known):
            for rank in range(2):
                self.assertEqual(sum(reason.startswith(f"rank {rank} was lost") for reason in result["reasons"]), 1, result["reasons"])
        text = (self.folder / "run/result.json").read_text()
        self.report("run", INCOMPLETE)
        self.assertEqual((self.folder / "run/result.json").read_text(), text)

    def test_run_script_counts_cores_whatever_openmp_may_use(self):
        done = subprocess.run([self.make_script(), "--backend", "host", "--steps", "3", "--memory", "0", "--no-io", "--output", "run"], cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(self.journals()), min(2, len(os.sched_getaffinity(0))))

    def test_run_script_reports_by_itself(self):
        run_script = self.make_script()
        for output in ([], ["--output", "named"]):
            with self.subTest(output=output):
                script = subprocess.Popen([run_script, "--duration", "10m", "--backend", "host", *WITHOUT_MEMORY, *output], cwd=self.folder,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**os.environ, "EGT_RANKS": "2"})
                self.addCleanup(script.kill)
                journals = "named" if output else "extreme_gpu_trainer_runs/*"
                self.wait_for(lambda: len(list(self.folder.glob(f"{journals}/journal.rank*"))) == 2)
                time.sleep(2)
                for rank in self.processes():
                    if rank != script.pid:
                        os.kill(rank, signal.SIGKILL)
                told, messages = script.communicate(timeout=240)
                self.assertEqual(script.returncode, INCOMPLETE, told + messages)
                self.assertIn("Verdict: incomplete", told)
                self.assertEqual(len(list(self.folder.glob(f"{journals}/result.json"))), 1)


class Directories(Report):
    def test_of_a_journal_cut_between_two_lines_keeps_the_fault(self):
        """As if that rank had been killed before it detected its fault."""
        done = self.run_program(*SMALL_NETWORK, "--steps", "20", "--check-every", "5", "--inject", "weight:rank=1,step=8", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        text, journal = (self.folder / "run/result.json").read_text(), self.folder / "run/journal.rank1.jsonl"
        journal.write_text(journal.read_text().splitlines(keepends=True)[0])
        done = self.report("run", 1)
        self.assertIn("the earlier result (fault) is kept", done.stdout + done.stderr)
        self.assertEqual((self.folder / "run/result.json").read_text(), text)

    def test_that_cannot_be_judged(self):
        (self.folder / "empty").mkdir()
        (self.folder / "file").write_text("")
        for directory in ("none", "empty", "file"):
            with self.subTest(directory=directory):
                self.check_one_line(self.report(directory, ENVIRONMENT), directory)
        self.check_one_line(self.report("", WRONG_USAGE), "report DIR")
        self.assertEqual(self.files(), ["file"])

    def test_of_a_run_that_still_goes_is_refused(self):
        process = self.start_program(*WITHOUT_MEMORY, "--duration", "10m", "--output", "run", ranks=2)
        self.wait_for(lambda: all('"progress"' in journal.read_text() for journal in self.journals()) and len(self.journals()) == 2)
        before = {journal: journal.stat().st_ino for journal in self.journals()}
        ranks = self.processes()
        done = self.report("run", ENVIRONMENT)
        self.check_one_line(done, "a run that is still going writes it (process ")
        self.assertTrue(any(f"process {rank} on" in done.stderr for rank in ranks), done.stderr)
        for number in (2, 2):
            self.check_one_line(self.resume(code=ENVIRONMENT, ranks=number), "a run that is still going writes it (process ")
        self.assertEqual({journal: journal.stat().st_ino for journal in self.journals()}, before)
        self.assertFalse((self.folder / "run/result.json").exists())
        self.cut(process)
        self.report("run", INCOMPLETE)

    def test_of_foreign_files_ends(self):
        done = self.run_program(*SMALL_NETWORK, "--steps", "10", "--output", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        journal = self.folder / "run/journal.rank0.jsonl"
        start, rest = journal.read_text().split("\n", 1)
        journal.write_text(f"{start}\n####\n{rest}" + "foreign\n" * 2_500_000)
        os.mkfifo(self.folder / "run/journal.rank1.jsonl")
        process = self.start_program("report", "run")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, INCOMPLETE, process.stdout.read() + process.stderr.read())
        self.assertLess(used.ru_maxrss, 300_000, "KB")
        self.assertLess((self.folder / "run/result.json").stat().st_size, 100_000)
        reasons = " ".join(self.result()["reasons"])
        self.assertIn("line 2 is no record", reasons)
        self.assertIn("and 2499998 more lines without a record", reasons)
        self.assertIn("journal.rank1.jsonl: is no regular file", reasons)


class ResultFiles(Report):
    """junit.xml and metrics.prom. EGT_JUNIT_SCHEMA lists schemas, separated by ":", for validation by xmllint."""

    ATTRIBUTES = {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"}

    def junit(self, directory="run"):
        """Test suites of junit.xml, validated against the schemas."""
        path = self.folder / directory / "junit.xml"
        root = xml.etree.ElementTree.parse(path).getroot()
        self.assertEqual((root.tag, root.attrib), ("testsuites", {}))
        for number, suite in enumerate(root):
            self.assertEqual((suite.tag, set(suite.attrib), suite.get("id")), ("testsuite", self.ATTRIBUTES, str(number)))
            self.assertRegex(suite.get("timestamp"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")
            cases = suite.findall("testcase")
            self.assertEqual([child.tag for child in suite], ["properties", *["testcase"] * len(cases), "system-out", "system-err"])
            for outcome, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
                self.assertEqual(int(suite.get(count)), len(suite.findall(f"testcase/{outcome}")))
            self.assertEqual(int(suite.get("tests")), len(cases))
            for case in cases:
                self.assertEqual(set(case.attrib), {"name", "classname", "time"})
                self.assertRegex(case.get("time"), r"^\d+\.\d{3}$")
                self.assertLessEqual(len(case), 1)
                self.assertTrue(all({"type", "message"} == set(outcome.attrib) for outcome in case))
                self.assertLessEqual(float(case.get("time")), float(suite.get("time")))
            failed = [len(case) > 0 for case in cases]
            self.assertEqual(failed, sorted(failed, reverse=True), "failures come first")
        failed = [suite.find("testcase")[:] != [] for suite in root]
        self.assertEqual(failed, sorted(failed, reverse=True))
        for schema in filter(None, os.environ.get("EGT_JUNIT_SCHEMA", "").split(":")):
            done = subprocess.run(["xmllint", "--noout", "--schema", schema, path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        return root

    def metrics(self, directory="run"):
        """{series: value}, checked with promtool if available."""
        text = (self.folder / directory / "metrics.prom").read_text()
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        samples = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(len(dict(samples)), len(samples))
        return {series: float(value) for series, value in samples}

    def check(self, directory="run"):
        """Both files agree with the result. Returns the outcomes of the test cases by suite and name."""
        result, root, metrics = self.result(directory), self.junit(directory), self.metrics(directory)
        self.assertEqual(metrics["egt_run_exit_code"], result["exit_code"])
        self.assertEqual([series for series, value in metrics.items() if series.startswith("egt_run_verdict") and value],
                         [f'egt_run_verdict{{verdict="{result["verdict"]}"}}'])
        self.assertEqual(metrics["egt_run_faults"], len(result["faults"]))
        self.assertEqual(metrics["egt_run_duration_seconds"], result["test_summary"]["actual_duration_seconds"])
        self.assertTrue(all(value == value and abs(value) != float("inf") for value in metrics.values()))
        cases = [(case.get("classname"), case.get("name"), "".join(outcome.tag for outcome in case)) for case in root.iter("testcase")]
        self.assertEqual(len(cases), 1 + len(result["results"]))
        self.assertEqual([outcome == "" for _, name, outcome in cases if name == "verdict"], [result["exit_code"] == 0])
        self.assertEqual(sum(outcome == "" for _, name, outcome in cases if name != "verdict"), sum(entry["success"] for entry in result["results"]))
        return cases

    def check_that_report_makes_them_again(self, done, directory="run"):
        """From the journals alone: the result and one file are missing, another is wrong."""
        paths = [self.folder / directory / name for name in RESULT_FILES]
        texts = [path.read_text() for path in paths]
        code = self.result(directory)["exit_code"]
        for path in (paths[0], paths[-1]):
            path.unlink()
        paths[1].write_text("of another result")
        told = self.report(directory, code).stdout
        self.assertEqual([path.read_text() for path in paths], texts)
        self.assertEqual(told.split("Verdict:")[1], done.stdout.split("Verdict:")[1])

    def test_of_a_pass(self):
        done = self.run_program(*SMALL_NETWORK, "--steps", "10", "--output", "run", ranks=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({outcome for *_, outcome in self.check()}, {""})
        self.assertEqual([suite.get("name") for suite in self.junit()],
                         ["extreme_gpu_trainer.burn", "extreme_gpu_trainer.burn.rank0", "extreme_gpu_trainer.burn.rank1"])
        self.check_that_report_makes_them_again(done)
        (self.folder / "run/result.json").unlink()
        (self.folder / "run/result.json").mkdir()
        self.check_one_line(self.report("run", ENVIRONMENT), "result.json: cannot be written")

    def test_of_a_fault(self):
        done = self.run_program(*SMALL_NETWORK, "--steps", "10", "--output", "run", "--inject", "memory:rank=1,step=2", ranks=2)
        self.assertEqual(done.returncode, 1, done.stderr)
        failed = [case for case in self.check() if case[2]]
        self.assertEqual(failed, [("extreme_gpu_trainer.burn", "verdict", "failure"), ("extreme_gpu_trainer.burn.rank1", "memory", "failure")])
        fault = self.result()["faults"][0]
        for failure in self.junit().iter("failure"):
            self.assertRegex(failure.get("message"), rf"^CPU \d+, rank 1 on \S+, step \d+: memory fault in {re.escape(fault['where'])}")
            self.assertTrue(failure.text.startswith("CPU "))
            for piece in ("rank 1 on ", fault["where"], f"expected: {fault['expected']}", f"actual:   {fault['actual']}", f"xor:      {fault['xor']}"):
                self.assertIn(piece, failure.text)
        host = self.result()["ranks"][1]["hostname"]
        self.assertEqual([self.metrics()[f'egt_rank_faults{{rank="{rank}",hostname="{host}"}}'] for rank in range(2)], [0, 1])
        self.check_that_report_makes_them_again(done)

    def test_of_other_commands(self):
        """loadtest and selftest have their own tests."""
        for command in (["verify", "--duration", "3s"], ["links", "--size", "64KB", "--repeats", "1"],
                        ["bench", "--workload", "mlp", "--mode", "single,collective", "--layers", "32,16", "--batch", "32", "--trial-time", "0.05s"]):
            with self.subTest(command=command[0]):
                done = self.run_program(*command, "--output", command[0], ranks=2)
                self.assertIn(done.returncode, (0, DEGRADED), done.stdout + done.stderr)  # a link may be slower than others
                self.check(command[0])
                page = self.page(done, command[0])
                self.assertRegex(page, r"Verdict: (pass|degraded) \(exit code")
                self.assertEqual('"comparison":{' in page, command[0] == "bench")  # the data of its charts
                self.check_that_report_makes_them_again(done, command[0])

    def test_of_hosts_and_devices_with_odd_names(self):
        done = self.run_program(*WITHOUT_MEMORY, "--steps", "10", "--output", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        odd = "a\u0001\u001b[31m <b a=\"c\">&amp;]]>'\\\n\t\r\u0000 \ufffe\uffff \u00e4 \U0001f525"
        journal = self.folder / "run/journal.rank0.jsonl"
        records = self.records(journal)
        for record in records:
            if record["kind"] == "start":
                record["body"]["identity"]["hostname"] = odd
                record["body"]["identity"]["device"]["uuid"] = odd
                record["body"]["options"][odd] = odd
            for part in record["body"].get("parts", []):
                part["name"] += odd
        journal.write_text("".join(json.dumps(record) + "\n" for record in records))
        self.report("run", 0)
        shown = "a\ufffd\ufffd[31m <b a=\"c\">&amp;]]>'\\\n\t\ufffd\ufffd \ufffd\ufffd \u00e4 \U0001f525"
        self.assertIn(("extreme_gpu_trainer.burn.rank0", "train" + shown, ""), self.check())
        self.assertEqual(self.junit()[1].get("hostname"), shown)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed: only this program says that metrics.prom is right")
    def test_promtool_is_there_and_finds_mistakes(self):
        done = subprocess.run(["promtool", "check", "metrics"], input="# TYPE a gauge\na 1\na 1\n", capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)


class Resume(Report):
    def test_a_run_that_was_cut(self):
        self.start_and_cut("--duration", "10s", "--output", "run", "--seed", "7", seconds=4, network=WITHOUT_MEMORY)
        self.resume(code=WRONG_USAGE, ranks=3)
        self.check_one_line(self.resume("--seed", "8", code=WRONG_USAGE), "--seed is 7 there and 8 here")
        done = self.resume()
        self.assertIn("training restarts from the seed", done.stderr)
        result = self.result()
        self.check_parts(result, None, {"duration", "done", "done, duration"})  # depends on which clock was first
        self.assertAlmostEqual(result["test_summary"]["actual_duration_seconds"], 10, delta=4)
        drawn = json.loads(re.search(r'id="data">(.*?)</script>', self.page(done))[1])["lines"]
        self.assertLess(drawn["began"], datetime.datetime.fromisoformat(result["parts_of_run"][1]["started_at"]).timestamp())
        text = (self.folder / "run/result.json").read_text()
        self.report("run", 0)
        self.assertEqual((self.folder / "run/result.json").read_text(), text)
        again = self.resume()
        self.assertIn("is complete: verdict pass", again.stdout)
        self.check_one_line(self.resume("--seed", "8", code=WRONG_USAGE), "--seed is 7 there and 8 here")
        self.assertEqual((self.folder / "run/result.json").read_text(), text)

    def check_parts(self, result, first, second):
        parts = result["parts_of_run"]
        self.assertEqual(len(parts), 2)
        self.assertEqual(parts[0]["end_reason"], first)
        self.assertIn(parts[1]["end_reason"], second)
        self.assertEqual(result["verified_work"]["replays"], sum(part["verified_work"]["replays"] for part in parts))
        self.assertGreater(parts[0]["verified_work"]["replays"], 0)
        self.assertEqual(result["ranks"][0]["steps"] - parts[1]["steps"] > 0, parts[0]["steps"] > 0)
        self.assertEqual(result["reasons"], ["all planned work was done and verified on 2 ranks, in 2 parts"])

    def test_a_run_that_was_interrupted(self):
        process = self.start_program(*SMALL_NETWORK, "--steps", "4000", "--output", "run", ranks=2)
        self.wait_for(lambda: any('"progress"' in journal.read_text() for journal in self.journals()))
        process.send_signal(signal.SIGUSR2)
        self.assertEqual(process.wait(timeout=300), INTERRUPTED)
        self.assertIn('<error type="interrupted"', (self.folder / "run/junit.xml").read_text())
        steps = self.result()["ranks"][0]["steps"]
        self.assertLess(steps, 4000)
        (self.folder / "run/stop").touch()  # too late for that run, and must not affect the next
        time.sleep(2.5)
        self.resume()
        self.assertFalse((self.folder / "run/stop").exists())
        self.assertEqual(self.result()["ranks"][0]["steps"], 4000)
        self.assertNotIn("<error", (self.folder / "run/junit.xml").read_text())
        self.assertIn('egt_run_verdict{verdict="pass"} 1', (self.folder / "run/metrics.prom").read_text())
        self.check_parts(self.result(), "signal", {"steps"})

    def test_twice_at_once_goes_on_once(self):
        self.start_and_cut("--duration", "8s", "--output", "run", network=WITHOUT_MEMORY)
        both = [self.start_program("--resume", "run", ranks=2) for _ in range(2)]
        codes = [process.wait(timeout=240) for process in both]
        self.assertEqual(sorted(codes), [0, ENVIRONMENT], [process.stderr.read() for process in both])
        self.assertEqual(len(self.result()["parts_of_run"]), 2)

    def test_faults_of_the_first_part_stay(self):
        process = self.start_program(*SMALL_NETWORK, "--duration", "11s", "--output", "run", "--inject", "memory:rank=1,step=1", ranks=2)
        self.wait_for(lambda: any('"kind":"fault"' in journal.read_text() for journal in self.journals()))
        time.sleep(1)
        self.cut(process)
        self.resume(code=1)
        result = self.result()
        self.assertEqual(len(result["faults"]), 1)
        self.assertEqual([injection["found"] for injection in result["injections"]], [True])
        self.assertEqual(len(result["parts_of_run"]), 2)

    def test_a_journal_of_the_first_part_that_is_lost(self):
        self.start_and_cut("--duration", "60s", "--output", "run", network=WITHOUT_MEMORY)
        (self.folder / "run/journal.rank1.jsonl").rename(self.folder / "lost")
        self.check_one_line(self.resume(code=WRONG_USAGE), "rank 1 left no record of part 1; start a new run")
        self.assertEqual([journal.name for journal in self.journals()], ["journal.rank0.jsonl"])
        self.report("run", INCOMPLETE)

    def test_what_is_no_run(self):
        self.check_one_line(self.resume(code=ENVIRONMENT), "run: cannot be read")
        done = self.run_program("--resume", "run", "--output", "other")
        self.assertEqual(done.returncode, WRONG_USAGE)
        self.check_one_line(done, "--resume and --output are mutually exclusive")
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main()
