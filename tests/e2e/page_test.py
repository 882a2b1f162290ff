"""report.html in a browser: it needs no other file, and all its data stay text. Skipped without Chromium."""
import html
import re
import shutil

from program import *

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NETWORK = ["--layers", "32,48,16", "--batch", "16", "--memory", "64MB", "--no-io"]
HOSTILE = "<img src=x onerror=alert(1)>"
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
        self.check_without_script(page)
        self.rename_host()
        if not CHROMIUM:
            self.skipTest("there is no Chromium (Debian: apt install chromium): the page was read without its script only")
        self.check_in_a_browser(page)

    def check_in_a_browser(self, page):
        dom, errors, asked = self.browse()
        self.assertEqual(errors, [])
        self.assertEqual(asked, set())  # policy violations are errors
        self.assertIn('class="verdict fault"', dom)
        self.assertRegex(dom, r"<th[^>]*>memory</th>")
        self.assertNotIn("<img src=\"x\"", dom)
        self.assertIn(html.escape(HOSTILE, quote=False), dom)
        if "Dygraph=" not in page:
            self.skipTest("the program was built without dygraphs: there are no charts")
        self.assertGreater(dom.count("<canvas"), 6)
        self.assertIn("Next fault", dom)
        self.assertRegex(dom, r'class="moment"[^>]*>20\d\d-')  # the fault's time is a button
        self.assertRegex(dom, r'class="dygraph-axis-label[^>]*>\d')  # the charts have data

    def check_without_script(self, page):
        static = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
        for told in ('class="verdict fault"', "<polyline", "Error counters", "Named by the checks", ">memory</th>"):
            self.assertIn(told, static)
        self.assertNotIn("{{", static)
        self.assertEqual(re.findall(r"(?:src|href)=[^#>]*[:/]", static), [])


if __name__ == "__main__":
    unittest.main()
