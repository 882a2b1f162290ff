"""report.html in a browser: it needs no other file, and all its data stay text. Skipped without Chromium."""
import html
import lzma
import re

from browser import CHROMIUM, Browser
from program import *

CORPUS = Path(__file__).parents[1] / "corpus"
NETWORK = ["--layers", "32,48,16", "--batch", "16", "--memory", "64MB", "--no-io"]
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_NAME = f"\">{HOSTILE}"
NOBODY = "not an origin"  # origin of the browser's own requests to its vendor
FAULT = 1


class Page(ProgramTest):
    def rename_host(self):
        """Changes the host name in the journals, from which `report` creates the page again."""
        for journal in (self.folder / "run").glob("journal.*"):
            records = [json.loads(line) for line in journal.read_text().splitlines()]
            for record in records:
                if record["kind"] == "start":
                    record["body"]["identity"]["hostname"] = record["body"]["system"]["hostname"] = HOSTILE
                if record["kind"] == "fault":
                    record["body"].update(hostname=HOSTILE, where=f"file '\"</script>{HOSTILE}")
            journal.write_text("".join(json.dumps(record) + "\n" for record in records))
        done = self.run_program("report", "run")
        self.assertEqual(done.returncode, FAULT, done.stderr)

    def browse(self, *more):
        """The page's elements after its script ran, and the browser's log of the page and the network."""
        log = self.folder / "net.json"
        done = subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--no-first-run",
                               "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000",
                               f"--user-data-dir={self.folder}/profile", f"--log-net-log={log}", "--dump-dom", *more,
                               (self.folder / "run/report.html").as_uri()], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
        asked = {event["url"] for event in events if "url" in event and event.get("initiator", NOBODY) != NOBODY}
        return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line], asked

    def test_of_a_fault(self):
        done = self.run_program(*NETWORK, "--duration", "6s", "--output", "run", "--inject", "memory:rank=1,step=5", ranks=2)
        self.assertEqual(done.returncode, FAULT, done.stdout + done.stderr)
        page = self.page(done)
        static = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
        self.assertNotIn("{{", static)
        self.assertEqual(re.findall(r"(?:src|href)=[^#>]*[:/]", static), [])
        self.assertIn("<noscript>", static)
        self.rename_host()
        if not CHROMIUM:
            self.skipTest("there is no Chromium (Debian: apt install chromium): the page was read without its script only")
        self.check_in_a_browser(page)

    def check_in_a_browser(self, page):
        dom, errors, asked = self.browse()
        self.assertEqual(errors, [])
        self.assertEqual(asked, set())  # policy violations are errors
        self.assertIn('class="verdict fault"', dom)
        self.assertIn("memory fault</b>", dom)
        self.assertNotIn("<img src=\"x\"", dom)
        self.assertIn(html.escape(HOSTILE, quote=False), dom)
        if "Dygraph=" not in page:
            self.skipTest("the program was built without dygraphs: there are no charts")
        self.assertGreater(dom.count("<canvas"), 6)
        self.assertIn("Next fault", dom)
        self.assertRegex(dom, r'class="moment"[^>]*>20\d\d-')  # the fault's time is a button
        self.assertRegex(dom, r'class="dygraph-axis-label[^>]*>\d')  # the charts have data


@unittest.skipUnless(CHROMIUM, "there is no Chromium (Debian: apt install chromium)")
class Script(ProgramTest):
    """What the page's script makes of recorded runs and of results from elsewhere."""

    def setUp(self):
        super().setUp()
        self.browser = Browser(self.folder)
        self.addCleanup(self.browser.close)

    def open(self, recorded):
        """Opens the page of that run of the corpus; returns the output of `report`."""
        run = self.folder / recorded
        run.mkdir()
        for journal in (CORPUS / recorded).glob("journal.*.xz"):
            (run / journal.stem).write_bytes(lzma.decompress(journal.read_bytes()))
        done = self.run_program("report", recorded)
        self.browser.open((run / "report.html").as_uri())
        self.wait_for(lambda: self.value("document.readyState") == "complete")
        return done.stdout

    def value(self, expression):
        return self.browser.value(expression)

    def shown(self, part, data):
        """HTML of that part of the page."""
        return self.value(f"{{ const box = document.createElement('div'); box.append(...[parts[{json.dumps(part)}]({json.dumps(data)})].flat().filter(Boolean)); box.innerHTML }}")

    def test_without_scripts_the_text_report_is_shown(self):
        self.browser.call("Emulation.setScriptExecutionDisabled", value=True)
        told = self.open("burn-fault")
        text = self.value("document.body.innerText")
        self.assertIn(told[told.index("Verdict: fault"):told.index("Files: ")].strip(), text)
        self.assertNotIn("Faults and events", text)

    def test_of_a_fault(self):
        self.open("burn-fault")
        text = self.value("document.querySelector('main').innerText")
        for told in ("FAULT exit code 1", "burn: node-a, 3x AMD EPYC, 2 s, 1 error", "CPU 1 (AMD EPYC): replay fault", "2026-11-27 03:59:34 UTC to 03:59:36 UTC",
                     "GEMMs verified\n66.06 MFLOP", "red: errors or lost", "output gradient of layer 2, fp16", "Error counters", "certain"):
            self.assertIn(told, text)
        self.assertEqual(self.value("document.title"), "FAULT node-a burn 2026-11-27")
        self.assertEqual(self.value("[...document.querySelectorAll('#devices table')[0].querySelectorAll('.bad')].map((cell) => cell.textContent)"), ["CPU 1", "1"])
        self.assertEqual(self.value("document.querySelectorAll('td svg polyline').length > 5"), True)
        for hidden in ("CUDA version", "NCCL version", "UUID"):  # of a run on the host
            self.assertNotIn(hidden, self.value("document.querySelector('main').textContent"))

    def test_on_paper(self):
        self.open("burn-fault")
        self.value("dispatchEvent(new Event('beforeprint'))")
        self.browser.call("Emulation.setEmulatedMedia", media="print")
        self.browser.call("Emulation.setDeviceMetricsOverride", width=703, height=1000, deviceScaleFactor=1, mobile=False)  # A4 less its margins
        shown = self.value("document.querySelector('main').innerText")
        for told in ("xor", "detector", "expected", "--layers 32,48,16", "ECC counters: "):
            self.assertIn(told, shown)
        self.assertNotIn("Whole run", shown)
        self.assertEqual(self.value("getComputedStyle(document.querySelector('.verdict')).color"), "rgb(0, 0, 0)")
        self.assertEqual(self.value("[...document.querySelectorAll('main table')].filter((one) => one.offsetWidth > 703).length"), 0)

    def test_of_the_summary_of_a_command(self):
        self.open("loadtest")
        self.assertEqual(self.value("document.querySelector('#results table caption').textContent"), "Load tests, all devices together")
        self.assertEqual(self.value("document.querySelectorAll('#results pre').length"), 0)
        first = "document.querySelector('#results tbody tr th').textContent"
        self.assertEqual(self.value(first), "train_simple_cnn_bs16")
        self.value("[...document.querySelectorAll('#results button.sort')].find((one) => one.textContent === 'Samples/s').click()")
        self.assertEqual(self.value(first), "retrieval")  # 9.483e+04
        self.assertEqual(self.value("document.querySelector('#results [aria-sort]').getAttribute('aria-sort')"), "descending")
        self.assertEqual(self.browser.errors, [])

    def test_of_a_selftest(self):
        self.open("selftest")
        self.assertEqual(self.value("document.querySelector('#results details[open] summary').textContent.startsWith('selftest')"), True)
        self.assertEqual(self.value("document.querySelectorAll('#devices .bad, details.fault[open]').length"), 0)  # injected faults do not count against a device
        self.assertIn("Injected faults", self.value("document.querySelector('.tiles').innerText"))

    def test_numbers_are_those_of_the_console(self):
        self.open("burn-one-rank")
        for expression, told in (("bytes(0)", "0 B"), ("bytes(999.6)", "1.00 KB"), ("bytes(1.5e9)", "1.50 GB"), ("bytes(9.996e7)", "100 MB"),
                                 ("bytes(4.2e19)", "42.0 EB"), ("duration(42.4)", "42 s"), ("duration(65)", "1 m 05 s"), ("duration(11220)", "3 h 07 m"),
                                 ("duration(183600)", "2 d 03 h"), ("amount(9999, 'a/s')", "9999 a/s"), ("amount(12345, 'a/s')", "12.35 k a/s"),
                                 ("amount(83.333e6, 'a/s')", "83.33 M a/s"), ("figure(null)", "-"), ("figure(true)", "yes"), ("figure(0.123456)", "0.1235"),
                                 ("figure(184320)", "184320"), ("figure(2e9, 'bytes_read')", "2.00 GB"), ("figure(0)", "0"), ("short(1.2341e-7)", "1.234e-7"),
                                 ("xorText('0x02000080')", "0x02000080 (bits 7, 25)"), ("xorText('0x8000000000000000')", "0x8000000000000000 (bit 63)"),
                                 ("xorText('0xffff0000')", "0xffff0000 (16 bits)"), ("xorText('0xzz')", "0xzz"), ("xorText('0x00')", "0x00"),
                                 ("titleOf({title: 'a', unit: 'TFLOP/s', most: 0.0035})", "a, GFLOP/s"), ("titleOf({title: 'a', unit: 'MHz', most: 1980})", "a, MHz"),
                                 ("titleOf({title: 'a', unit: 'ms', most: 0.02})", "a, µs"), ("titleOf({title: 'a', unit: '', most: 0})", "a"),
                                 ("titleOf({title: 'a', unit: 'samples/s', most: 12345})", "a, k samples/s"), ("unitFor({unit: 'GB/s', most: 2e4}).factor", 0.001)):
            self.assertEqual(self.value(expression), told, expression)

    def test_charts_of_eight_gpus(self):
        """Rank 3 has less power than the others; its memory clock equals theirs."""
        records = [json.loads(line) for line in lzma.decompress((CORPUS / "burn-one-rank/journal.rank0.jsonl.xz").read_bytes()).splitlines()]
        start, epoch, end = (next(record for record in records if record["kind"] == kind) for kind in ("start", "epoch", "end"))
        start["body"]["size"], run = 8, self.folder / "run"
        run.mkdir()
        for rank in range(8):
            samples = [{**end, "kind": "progress", "time": start["time"] + second, "body": {"steps": 9, "telemetry": {
                "power_w": {"last": (600 if rank == 3 else 690) + rank + second}, "power_limit_w": 700, "memory_clock_mhz": {"last": 3201},
                "gpu_utilization_percent": {"last": 97 + second}}}} for second in range(4)]
            end["body"]["telemetry"]["power_limit_w"] = 700
            start["body"]["identity"]["rank"] = rank
            own = [start, *([{**epoch, "time": start["time"] + at, "body": {**epoch["body"], "precision": name}} for at, name in ((1, "fp8"), (3, "bf16"))] if not rank else []), *samples, end]
            (run / f"journal.rank{rank}.jsonl").write_text("".join(json.dumps({**record, "rank": rank}) + "\n" for record in own))
        self.run_program("report", "run")
        if "Dygraph=" not in (run / "report.html").read_text():
            self.skipTest("the program was built without dygraphs: there are no charts")
        self.browser.call("Page.addScriptToEvaluateOnNewDocument", source="""
            window.drawn = new Set();
            const draw = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...place) { drawn.add(text); draw.call(this, text, ...place); };""")
        self.browser.open((run / "report.html").as_uri())
        self.wait_for(lambda: self.value("document.querySelectorAll('canvas').length > 2"))
        texts = lambda selector: self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")
        self.assertEqual(texts("#time h3")[:3], ["Power and temperature", "Clocks", "Compute"])
        self.assertEqual(self.value("[...drawn]"), ["700 W limit"])  # no text of a precision over the lines
        self.assertEqual(texts("#legend li")[:2], ["Precision: fp8 (no band)", "bf16"])
        self.assertEqual(texts("[data-group^=Power] figcaption"), ["Power, W rank 3"])
        self.assertEqual(texts("[data-group=Clocks] figure"), [])  # constant: in the table only
        self.assertIn("Memory clock, MHz", texts("#time tbody th"))
        self.assertEqual(texts("[data-group=Compute] figure:first-child .dygraph-axis-label-y"), ["0", "20", "40", "60", "80", "100"])
        self.assertIn("0:02", texts("[data-group^=Power] .dygraph-axis-label-x"))
        pressed = lambda: dict(self.value("[...document.querySelectorAll('#ranks button')].map((one) => [one.textContent, one.ariaPressed])"))
        self.assertEqual([pressed()[name] for name in ("median of 8 ranks", "rank 0", "rank 3")], ["true", "false", "mixed"])
        self.value("document.querySelectorAll('#ranks button')[1].click()")
        self.assertEqual((texts("#ranks button")[1], pressed()["rank 0"]), ("rank 0", "true"))
        self.assertEqual(self.browser.errors, [])

    def test_marks_links_below_their_limit_only(self):
        self.open("burn-one-rank")
        pairs = [{"measurement": "pair", "method": method, "from": 0, "to": 1,
                  "one_way": {way: {"gb_per_second": rate, "below_limit": rate < 200} for way, rate in (("0->1", forth), ("1->0", 100))}}
                 for method, forth in ((HOSTILE, 50), ("peer copies", 400))]
        title = "One way, from the row's rank to the column's, GB/s"
        matrix = f"{HOSTILE}\n| rank |   0 |   1 |\n|------|----:|----:|\n| 0    |   X | 400 |\n| 1    | 100 |   X |\n".replace(HOSTILE, title)
        links = self.shown("results", {"summary": f"{HOSTILE}\nx\n\n{matrix}", "result": {"results": pairs}})
        self.assertRegex(links, r'class="heat number"[^>]*--share: 1.00[^>]*>400')
        self.assertIn('<td class="bad number">100', links)
        self.assertEqual((links.count('"bad'), links.count('"heat')), (1, 1))
        self.assertIn("red: below its limit", links)
        self.assertNotIn("<img", links)
        self.assertIn("<pre", self.shown("results", {"summary": "T\n| a |\n|---|\n| b | c |", "result": {}}))  # no table: stays a text

    def test_counters_faults_and_reasons(self):
        self.open("burn-one-rank")
        counters = {"ecc_corrected": {"before": 5, "after": 5}, "pcie_replay": {"before": 1, "after": 4}, "xid": [{"xid": 79, "time": 0, "detail": HOSTILE}]}
        text = self.shown("counters", {"result": {"counters": {"0": counters}}})
        self.assertRegex(text, r'<td class="bad number">79</td>')
        self.assertIn('1 → 4 (+3)', text)
        self.assertLess(text.index("PCIe replay"), text.index("ECC corrected"))
        self.assertNotIn("<img", text)

        fault = {"kind": "memory", "rank": 0, "where": "block 3", "offset": 64, "xor": "0x00000002", "expected": "0x00000003", "actual": "0x00000001"}
        data = {"devices": {"rows": [{"rank": 0, "identity": f"GPU 0, UUID {HOSTILE}"}]}, "result": {"faults": [fault] * 4}}
        text = self.shown("happened", data)
        self.assertIn("memory fault</b> byte 64, bit 1 wrong: expected 0x00000003, read 0x00000001", text)
        self.assertEqual(text.count("<mark>"), 8)
        self.assertEqual(text.count('open=""'), 3)
        self.assertNotIn("<img", text)
        self.assertIn(HOSTILE, html.unescape(text))

        self.value("render({ result: { verdict: 'fault', exit_code: 1, reasons: ['a', 'b', 'a'] } })")
        self.assertEqual(self.value("document.querySelector('.verdict ul').innerText"), "a (2 times)\nb")

    def test_a_line_chart_places_points_by_their_ratios(self):
        self.open("burn-one-rank")

        def chart(name, *series):
            series = [{"name": one, "points": points, "isIdeal": one == "ideal"} for one, points in series]
            return self.value(f"lineChart({json.dumps(name)}, {json.dumps(name)}, {json.dumps(name)}, {json.dumps(series)})?.outerHTML ?? null")

        drawn = chart("speed", ("ours", [[4, 2], [1, 1], [2, 1]]), ("ideal", [[1, 1], [4, 4]]))
        self.assertIn('<g class="of-0"><polyline points="56,208 222,208 388,109"></polyline>', drawn)
        self.assertIn('<g class="ideal"><polyline points="56,208 388,10"></polyline></g>', drawn)
        self.assertIn("<title>ours, 4: 2</title>", drawn)
        self.assertEqual(drawn.count("<title>"), 3)
        self.assertEqual((chart("one number", ("ours", [[2, 1], [2, 3]])), chart("none")), (None, None))
        self.assertNotIn("NaN", chart("flat", ("ours", [[1, 1], [2, 1]])))
        self.assertNotIn("<img", chart(HOSTILE_NAME, (HOSTILE_NAME, [[1, 1], [2, 2]])))

    def test_a_map_of_wrong_words(self):
        self.open("burn-one-rank")
        fault = {"kind": "memory", "where": "block 3", "map": {"first": 64, "last": 192, "stride": 64, "period": 64, "xor_or": "0x80000001",
                                                               "readers": 1, "offsets": [64, 128, 192], "xors": ["0x00000001", "0x80000000", "0x1"]}}
        section = self.shown("happened", {"result": {"faults": [fault]}})
        self.assertIn("<title>3 positions from 64 to 192, stride 64 bytes, bits 0x80000001, read by 1 multiprocessor</title>", section)
        for rect in ('x="0" y="31"', 'x="119" y="0"', 'x="238" y="31"'):
            self.assertIn(f"<rect {rect}", section)
        self.assertEqual(section.count("<rect"), 3)
        for broken in (None, 7, {"offsets": [5]}, {"offsets": ["a", "b"]}, {"offsets": [1, 2]}, [{}]):
            self.assertIn("block 3", self.shown("happened", {"result": {"faults": [dict(fault, map=broken)]}}))
        self.assertNotIn("<img", self.shown("happened", {"result": {"faults": [dict(fault, map=dict(fault["map"], xor_or=HOSTILE))]}}))

    def test_a_map_of_wrong_elements(self):
        self.open("burn-one-rank")
        even = {"first": 64, "last": 80, "stride": 8, "period": 8}
        fault = {"kind": "gemm", "where": "block 3", "map": {"wrong": 70, "rows": [64, 72, 80], "columns": [5, 6, 5], "row": even,
                                                             "column": {"first": 5, "last": 6, "stride": None, "period": None},
                                                             "tile": {"row": 64, "rows": 32, "column": 4, "columns": 4}}}
        section = self.shown("happened", {"result": {"faults": [fault]}})
        self.assertIn("<title>3 of 70 wrong elements, rows 64 to 80, stride 8, columns 5 to 6, tile 32 x 4 at row 64, column 4</title>", section)
        self.assertIn('aria-label="Wrong elements by row and column: 3 of 70', section)
        for rect in ('x="0" y="0" width="120"', 'x="120" y="15', 'x="0" y="30'):
            self.assertIn(f"<rect {rect}", section)
        self.assertEqual(section.count("<rect"), 3)
        for broken in ({"rows": [1]}, {"rows": None}, {"row": 7}, {"column": {"first": "a"}}, {"columns": [None, 5, 6]}, {"tile": HOSTILE}, {"wrong": HOSTILE}):
            section = self.shown("happened", {"result": {"faults": [dict(fault, map=dict(fault["map"], **broken))]}})
            self.assertIn("block 3", section)
            self.assertNotIn("NaN", section)
            self.assertNotIn("<img", section)

    def test_many_faults_and_results(self):
        self.open("burn-one-rank")
        faults = [{"kind": "memory", "rank": 0, "where": f"block {block}"} for block in range(1234)]
        told = self.shown("happened", {"result": {"faults": faults}})
        self.assertIn("The first 1000 of 1234", told)
        self.assertNotIn("block 1000", told)
        told = self.shown("results", {"result": {"results": [{"measurement": "pair", "value": 1.5}] * 501}})
        self.assertIn("Not shown here: 1 result of result.json.", told)
        for part, limit in (("files", 0), ("tests", 0), ("text", 0), ("results", 0)):
            self.assertEqual(len(self.shown(part, {"result": {}})), limit)

    def test_a_result_that_is_cut_or_foreign(self):
        self.open("burn-fault")
        keys = self.value("Object.keys(JSON.parse(document.getElementById('data').textContent).result)")
        for key in [None, *keys]:  # None: the result itself
            problems = self.value(f"""{{
                const page = JSON.parse(document.getElementById('data').textContent), key = {json.dumps(key)}, problems = [];
                for (const value of [null, 7, 'text', [1, 'x', null], {{ 0: 3 }}, [{{}}, [{{}}]], {{ 0: {{ 0: {{}} }} }}]) {{
                  render({{ ...page, result: key === null ? value : {{ ...page.result, [key]: value }} }});
                  if (document.querySelector('main').textContent.includes('cannot be shown')) problems.push(JSON.stringify(value));
                }}
                problems }}""")
            self.assertEqual(problems, [], key)
        self.assertEqual(self.browser.errors, [])


if __name__ == "__main__":
    unittest.main()
