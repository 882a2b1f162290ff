"""`compare A.json B.json ..`: tables, JSON, exit codes, and errors for files that are no results."""
import copy
import html
import re

from browser import CHROMIUM, Browser
from program import *
from program import SCHEMA

PASS, FAULT, WRONG_USAGE, ENVIRONMENT, INCOMPLETE, DEGRADED = 0, 1, 2, 3, 4, 5
SMALL_RUN = ["--layers", "32,48,16", "--batch", "16", "--memory", "64MB", "--no-io", "--progress", "none"]


def bench(workload, size, mode, ranks, ms):
    words = {"multimodal": f"multimodal batch {size}", "voxelize": f"voxelize {size} points", "mlp": f"mlp batch {size}"}
    return {"test_name": words[workload], "test_type": "bench", "rank": None, "workload": workload, "size": size, "mode": mode,
            "devices": len(ranks), "ranks": ranks, "ms_per_batch": ms, "step_ms": {"p50": ms * len(ranks)}, "spread_percent": 0.5,
            "items_per_second": size / ms * 1e3, "items": "points" if workload == "voxelize" else "samples",
            "power_w": 600.0 * len(ranks), "success": True, "failure": None}


def both(mode, ranks, multimodal_ms, voxelize_ms):
    return [bench("multimodal", 32, mode, ranks, multimodal_ms), bench("voxelize", 1000000, mode, ranks, voxelize_ms)]


class Compare(ProgramTest):
    def version(self):
        return self.run_program("--version").stdout.split()[-1]

    def bench_result(self, entries, devices=2, **more):
        return {"schema": 1, "program_version": self.version(), "command": "bench", "verdict": "pass", "exit_code": 0, "reasons": [],
                "ranks": [{"rank": rank, "device": {"name": "NVIDIA H200"}} for rank in range(devices)], "results": entries, **more}

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    def compare(self, code, *arguments, **more):
        done = self.run_program("compare", *arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def seed_files(self):
        return [self.write("single.json", self.bench_result(both("single", [0], .050, .020), 1)),
                self.write("multi.json", self.bench_result(both("p2p", [0, 1], .028, .012) + both("collective", [0, 1], .032, .015))),
                self.write("hetero.json", self.bench_result(both("hetero", [0, 1], .030, .014)))]


class Seed(Compare):
    def test_comparison_of_single_multi_and_hetero(self):
        done = self.compare(PASS, *self.seed_files(), "--price", "H200=3.5", "--output", "all.json")
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        for line in ["| Configuration               | Multimodal (ms) | Voxelize (ms) | Speedup |",
                     "| 1x NVIDIA H200              |           0.050 |         0.020 |   1.00x |",
                     "| 2x NVIDIA H200 (p2p)        |           0.028 |         0.012 |   1.73x |",
                     "| 2x NVIDIA H200 (collective) |           0.032 |         0.015 |   1.44x |",
                     "| 2x NVIDIA H200 (hetero)     |           0.030 |         0.014 |   1.54x |",
                     "Recommendation: multi for the best performance (1.73x), single for the most per price (0.286x/$).",
                     "Verdict: pass (exit code 0)"]:
            self.assertIn(line, lines, done.stdout)
        told = json.loads((self.folder / "all.json").read_text())
        self.assertEqual((told["schema"], told["command"], told["verdict"], told["exit_code"]), (1, "compare", "pass", 0))
        self.assertEqual([cost["price_per_hour"] for cost in told["cost"]], [3.5, 7, 7])
        self.assertEqual([len(test["values"]) for test in told["tests"]], [4, 4])
        self.assertEqual(self.files(), ["all.json", "hetero.json", "multi.json", "single.json"])

    def test_as_a_page(self):
        files = self.seed_files()
        done = self.compare(PASS, *files, "--output", "all.html")
        page = (self.folder / "all.html").read_text()
        self.assertEqual(done.stdout.splitlines()[-1], "Files: all.html")
        self.assertIn(html.escape(done.stdout.splitlines()[-2].strip()), page)  # for browsers without scripts
        self.assertEqual(re.findall(r"(?:src|href)=\"", page), [])
        if not CHROMIUM:
            self.skipTest("there is no Chromium (Debian: apt install chromium)")
        browser = Browser(self.folder)
        self.addCleanup(browser.close)

        def main(name):
            browser.open((self.folder / name).as_uri())
            self.wait_for(lambda: browser.value("document.readyState") == "complete")
            return browser.value("document.querySelector('main:not([hidden])').innerHTML")

        dom = main("all.html")
        for told in ("<title>multi, p2p, 1: 1</title>", "<title>multi, p2p, 2: 1.786</title>", "<h2>Tests</h2>", 'class="verdict pass"', 'class="bar gain"',
                     html.escape(done.stdout.splitlines()[-2].strip())):
            self.assertIn(told, dom)
        slow = self.bench_result(both("single", [0], .100, .020), 1)
        slow["results"][0]["failure"] = "<img src=x onerror=alert(1)>"
        self.write("<img src=x onerror=alert(1)>.json", slow)
        self.compare(DEGRADED, files[0], "<img src=x onerror=alert(1)>.json", "--output", "slow.html")
        dom = main("slow.html")
        self.assertIn('<rect x="0" width="50" height="10"></rect><line x1="50" x2="50"', dom)  # half as fast: the whole left side
        self.assertRegex(dom, 'data-label="Change">-50.0 %')
        self.assertRegex(dom, 'class="bad" [^>]*>worse<|>worse</td>')
        self.assertNotIn("items_per_second", dom)
        self.assertIn("&lt;img src=x", dom)
        self.assertNotIn("<img", dom)
        self.assertEqual(browser.errors, [])

    def test_a_file_alone(self):
        self.seed_files()
        done = self.compare(PASS, "multi.json")
        self.assertIn("a single file: nothing to judge for regressions", done.stdout)
        alone = self.compare(INCOMPLETE, "single.json").stdout
        self.assertTrue(alone.startswith("nothing to compare with: only one result\n"), alone)
        self.assertIn("Verdict: incomplete (exit code 4)", alone)


class Regressions(Compare):
    def check(self, change, code, *options):
        new = self.bench_result(both("p2p", [0, 1], .028, .012))
        new["results"][1]["items_per_second"] *= change
        self.write("new.json", new)
        return self.compare(code, "old.json", "new.json", "--output", "c.json", *options)

    def test_of_a_planted_one(self):
        self.write("old.json", self.bench_result(both("p2p", [0, 1], .028, .012)))
        done = self.check(0.94, DEGRADED)
        self.assertRegex(done.stdout, r"\| voxelize 1000000 points throughput \|.* -6.0 % \|.* worse \|")
        self.assertIn("worse than the baseline by more than 5 %: 1 of 2 metrics", done.stdout)
        self.assertIn("Verdict: degraded (exit code 5)", done.stdout)
        told = json.loads((self.folder / "c.json").read_text())
        self.assertEqual([(one["test_name"], one["file"], round(one["worse_percent"], 6)) for one in told["regressions"]],
                         [("voxelize 1000000 points", "new", 6)])
        self.assertEqual((told["verdict"], told["exit_code"]), ("degraded", 5))
        self.check(0.96, PASS)
        self.check(1.3, PASS)
        self.check(0.94, PASS, "--tolerance", "10%")
        self.check(0.96, DEGRADED, "--tolerance", "3.9%")


class RealRuns(Compare):
    def test_are_compared(self):
        for name, ranks in (("one", None), ("two", 2)):
            done = self.run_program(*SMALL_RUN, "--steps", "40", "--output", name, ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = self.compare(WRONG_USAGE, "one", "two", "--output", "c.json").stdout
        self.assertIn("two ran on 2 devices, one on 1: compare results of as many devices", text)
        self.assertIn("| train throughput ", text)
        told = json.loads((self.folder / "c.json").read_text())
        self.assertEqual([file["label"] for file in told["files"]], ["one", "two"])
        train = next(test for test in told["tests"] if test["test_name"] == "train")
        one, two = train["values"]
        rates = [part["samples_per_second"] for part in self.result("two")["results"] if part["test_name"] == "train"]
        self.assertAlmostEqual(two["value"], sum(rates), places=6)
        self.assertAlmostEqual(two["speedup"], two["value"] / one["value"])
        self.assertAlmostEqual(two["efficiency"], two["speedup"] / 2)
        self.check_planted(self.result("two"))

    def check_planted(self, result):
        slow = copy.deepcopy(result)
        for part in slow["results"]:
            if part["test_name"] == "train":
                part["samples_per_second"] *= 0.94
        self.write("slow.json", slow)
        self.write("same.json", result)
        self.compare(PASS, "two", "same.json")
        text = self.compare(DEGRADED, "two", "same.json", "slow.json").stdout
        self.assertRegex(text, r"\| train throughput +\| +slow \|.* -6.0 % \| +worse \|")
        self.assertEqual(text.count(" worse |"), 1, text)


    def test_with_a_fault_is_a_regression(self):
        for name, more, code in (("clean", [], PASS), ("faulty", ["--inject", "ecc:rank=1,step=20"], FAULT)):
            done = self.run_program(*SMALL_RUN, "--steps", "40", "--output", name, *more, ranks=2)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        # On a busy machine, runs this short differ in what they have time to measure.
        parts = json.loads((self.folder / "clean/result.json").read_text())["results"]
        self.write("faulty.json", {**json.loads((self.folder / "faulty/result.json").read_text()), "results": parts})
        text = self.compare(DEGRADED, "clean", "faulty.json").stdout
        self.assertIn("Verdict: degraded (exit code 5)\n  faulty: its verdict is fault (", text)
        self.compare(PASS, "faulty.json", "clean")


class Fleet(Compare):
    def write_fleet(self):
        """100 nodes in a shared folder, from one recorded run."""
        recorded = json.loads((Path(__file__).parents[1] / "corpus/burn-one-gpu/result.json").read_text())
        for number in range(100):
            result, name = copy.deepcopy(recorded), f"node{number:03}"
            for place in (result["nodes"][0], result["ranks"][0], result["system_info"]):
                place["hostname"] = name
            result["ranks"][0]["device"]["uuid"] = f"GPU-{number}"
            for part in result["results"]:
                if part["test_name"] == "memory":
                    part["memory_gb_per_s"] *= 0.8 if number == 33 else 1 + number / 1e4
            self.write(f"shared/{name}/{'before/' if number == 57 else ''}result.json", result)
        result.update(verdict="fault", exit_code=1, reasons=["GPU 0, UUID GPU-57: memory in block 3"])
        result["nodes"][0].update(hostname="node057", verdict="fail", action={"name": "reset-gpu", "text": "reset the GPU", "command": "nvidia-smi", "rank": 0})
        result["ranks"][0].update(hostname="node057")
        result["system_info"]["ended_at"] = "2026-11-29T00:00:00.000Z"
        result["ranks"][0]["device"]["uuid"] = "GPU-57"
        self.write("shared/node057/later/result.json", result)
        self.write("shared/node021/result.json", "{")
        (self.folder / "shared/node100").mkdir()

    def test_of_100_nodes(self):
        self.write_fleet()
        text = self.compare(FAULT, "--fleet", "shared", "--output", "fleet.json").stdout
        self.assertTrue(text.endswith("\nFiles: fleet.json\n"), text[-200:])
        rows = [line for line in text.splitlines() if re.match(r"(shared/)?node\d+\S* +(pass|fault|unreadable) ", line)]
        self.assertEqual(len(rows), 101, text)
        self.assertEqual([row.split()[0] for row in rows[:4]], ["node057", "shared/node021", "shared/node100", "node033"])
        self.assertIn("Verdict: fault (exit code 1)\n  98 pass, 1 fault, 2 unreadable\n", text)
        self.assertIn("node057: fault: GPU 0, UUID GPU-57: memory in block 3\n  action: reset the GPU\n", text)
        fleet = json.loads((self.folder / "fleet.json").read_text())
        self.assertEqual((len(fleet["nodes"]), fleet["exit_code"]), (101, FAULT))
        self.assertEqual((fleet["nodes"][0]["runs"], fleet["nodes"][0]["earlier_verdict"]), (2, "pass"))
        if SCHEMA:
            type(SCHEMA)(json.loads((Path(__file__).parents[2] / "docs/fleet.schema.json").read_text())).validate(fleet)
        (self.folder / "shared/node057/later/result.json").unlink()
        self.assertIn("  99 pass, 3 unreadable\n", self.compare(INCOMPLETE, "--fleet", "shared").stdout)
        self.check_page()

    def check_page(self):
        self.compare(INCOMPLETE, "--fleet", "shared", "--output", "fleet.html")
        if not CHROMIUM:
            self.skipTest("there is no Chromium (Debian: apt install chromium)")
        browser = Browser(self.folder)
        self.addCleanup(browser.close)
        browser.open((self.folder / "fleet.html").as_uri())
        self.wait_for(lambda: browser.value("document.querySelectorAll('#fleet tbody tr').length") == 102)
        self.assertEqual(browser.value("[...document.querySelectorAll('#fleet td.notable')].map((cell) => cell.innerText).join()").count("%"), 1)
        self.assertEqual(browser.value("document.querySelectorAll('#fleet td.bad').length"), 0, "red is for faults")
        self.assertEqual(browser.errors, [])


class BadFiles(Compare):
    def test_are_named_and_the_rest_is_compared(self):
        self.seed_files()
        (self.folder / "bare").mkdir()
        os.mkfifo(self.folder / "pipe")
        good = json.dumps(self.bench_result(both("single", [0], .050, .020)))
        bad = {"nowhere.json": "cannot be read: No such file or directory; name a result.json or the directory of a run",
               "bare": "is a directory without a result.json; `report DIR` makes one",
               "pipe": "is no regular file",
               self.write("empty.json", ""): "is empty; name a result.json",
               self.write("cut.json", good[:400]): "is damaged: no JSON at byte 401",
               self.write("text.json", b"\xff\x00 hello"): "is damaged: no JSON at byte 1",
               self.write("other.json", {"hello": 1}): "is JSON, but no result of this program",
               self.write("future.json", {**json.loads(good), "schema": 2, "program_version": "9.1"}): "is of schema 2, this program reads 1; compare it with version 9.1",
               self.write("none.json", {**json.loads(good), "results": []}): "holds no test: nothing was measured there",
               "./single.json": "is the same file as single.json; name each once"}
        done = self.compare(WRONG_USAGE, "single.json", *bad, "multi.json", "--output", "c.json")
        lines = self.program_lines(done)
        self.assertEqual(len(lines), len(bad), done.stderr)
        for line, (name, why) in zip(lines, bad.items()):
            self.assertTrue(line.startswith(f"{PREFIX}{name}: {why}"), line)
        self.assertIn("| 2x NVIDIA H200 (p2p)        |           0.028 |         0.012 |   1.73x |", done.stdout)
        self.assertIn("Not all could be compared (exit code 2)", done.stdout)
        told = json.loads((self.folder / "c.json").read_text())
        self.assertEqual([file["compared"] for file in told["files"]], [True] + [False] * len(bad) + [True])
        self.assertEqual((told["verdict"], told["exit_code"], len(told["reasons"])), (None, 2, 1))
        self.assertEqual(done.stdout.count("cannot be read"), 0, "a problem is printed once")
        self.assertEqual(self.compare(WRONG_USAGE, "empty.json").stdout, "")

    def test_without_a_common_test(self):
        self.write("a.json", self.bench_result([bench("mlp", 64, "single", [0], 1)]))
        self.write("b.json", self.bench_result([bench("mlp", 128, "single", [0], 1)]))
        self.assertIn("no test in common", self.compare(WRONG_USAGE, "a.json", "b.json").stdout)

    def test_of_another_version_are_compared(self):
        self.seed_files()
        self.write("older.json", {**self.bench_result(both("single", [0], .050, .020)), "program_version": "0.0.1"})
        done = self.compare(PASS, "single.json", "older.json")
        self.assertIn(f"older: written by version 0.0.1 of the program, this is {self.version()}", done.stdout)

    def test_names_of_all_kinds(self):
        self.seed_files()
        names = [self.write("größe 東京.json", (self.folder / "multi.json").read_text()),
                 self.write("runs/day 1/result.json", (self.folder / "multi.json").read_text())]
        done = self.compare(PASS, "single.json", names[0], "runs/day 1", "--output", "ergebnis ü.json")
        told = json.loads((self.folder / "ergebnis ü.json").read_text())
        self.assertEqual([file["label"] for file in told["files"]], ["single", "größe 東京", "day 1"])
        self.assertIn("2x NVIDIA H200 (p2p), größe 東京 ", done.stdout)


class Usage(Compare):
    def test_of_options(self):
        self.seed_files()
        before = {name: (self.folder / name).read_bytes() for name in self.files()}
        for arguments, named in [([], "compare: name result files"), (["single.json", "--tolerance", "5"], "--tolerance 5"),
                                 (["single.json", "--price", "H200=0"], "--price H200=0"), (["single.json", "--steps", "5"], "--steps"),
                                 (["single.json", "--price", "H100=2"], "--price H100: no file or device has that name; use one of: NVIDIA H200, single"),
                                 (["single.json", "--output", "./single.json"], "--output ./single.json: is one of the files to compare"),
                                 (["single.json", "--output", "."], "--output .: is a directory")]:
            with self.subTest(arguments=arguments):
                done = self.compare(WRONG_USAGE, *arguments)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(self.program_lines(done)), 1, done.stderr)
                self.assertIn(named, done.stderr)
        self.assertEqual({name: (self.folder / name).read_bytes() for name in self.files()}, before)

    def test_an_output_is_replaced_whole_or_not_at_all(self):
        self.seed_files()
        self.write("c.json", "old")
        reader = (self.folder / "c.json").open()
        self.addCleanup(reader.close)
        self.compare(PASS, "single.json", "multi.json", "--output", "c.json")
        self.assertEqual(reader.read(), "old", "who has the old file open still reads it")
        self.assertEqual(json.loads((self.folder / "c.json").read_text())["exit_code"], 0)
        done = self.compare(ENVIRONMENT, "single.json", "multi.json", "--output", "nowhere/c.json")
        self.assertIn("nowhere/c.json: cannot be written", done.stderr)

    def test_into_a_pipe_there_are_no_colours(self):
        done = self.compare(PASS, *self.seed_files(), environment={"TERM": "xterm-256color"})
        self.assertNotIn("\x1b", done.stdout)
        with open("/dev/full", "w") as full:
            process = subprocess.run(self.command(["compare", "single.json"]), cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240)
        self.assertEqual((process.returncode, process.stderr), (ENVIRONMENT, f"{PREFIX}standard output cannot be written\n"))


if __name__ == "__main__":
    unittest.main()
