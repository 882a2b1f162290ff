"""--serve: the page of a running run, in a browser and for programs; clients cannot disturb the run."""
import http.client
import re
import shutil
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request

from browser import CHROMIUM, Browser
from program import *
from program import PROGRAM

NETWORK = ["--layers", "32,48,16", "--batch", "16", "--memory", "64MB", "--no-io", "--output=run"]
RESTING = ["--pulse", "1:0.1"]  # most of the time, which leaves the cores to other tests
HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "a secret of some length"
DASHBOARD = Path(__file__).parents[2] / "scripts/grafana.json"
# Metrics of sensors that a host may lack.
SENSORS = {"egt_rank_power_watts", "egt_rank_power_limit_watts", "egt_rank_temperature_celsius", "egt_rank_memory_temperature_celsius"}
PASS, FAULT, USAGE, INTERRUPTED = 0, 1, 2, 6


class Served(ProgramTest):
    @classmethod
    def setUpClass(cls):
        told = subprocess.run([PROGRAM, "devices"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300).stdout
        if "no --serve: " in told:
            raise unittest.SkipTest(told.split("no --serve: ")[1].splitlines()[0])

    def serve(self, *arguments, ranks=2, at="0", environment=None):
        """The process and the address of its page."""
        process = self.start_program(*NETWORK, *arguments, "--serve", at, ranks=ranks, environment=environment)
        self.lines = []
        for line in process.stderr:
            self.lines.append(line)
            if found := re.search(r"live page: (http://\S+/)$", line):
                self.reader = threading.Thread(target=lambda: self.lines.extend(process.stderr), daemon=True)
                self.reader.start()
                return process, found.group(1)
        self.fail("".join(self.lines))

    def steps_in(self, seconds):
        """Approximate number of steps of this machine in that time."""
        done = self.run_program(*NETWORK[:-1], "--duration", "4s", "--output", "before", ranks=2)
        self.assertEqual(done.returncode, PASS, done.stderr)
        return int(self.result("before")["ranks"][0]["steps"] * seconds / 4)

    def stop(self, process, code):
        """Stops the run as a user does."""
        (self.folder / "run/stop").touch()
        self.assertEqual(process.wait(60), code, "".join(self.lines))
        self.wait_for(lambda: not self.processes(), 10)
        self.reader.join(10)

    def ask(self, url, path="", headers=None, method="GET", body=None):
        """Status, headers and text of the response."""
        request = urllib.request.Request(url + path, body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def text(self, url, path=""):
        status, _, text = self.ask(url, path)
        self.assertEqual(status, 200, text)
        return text

    def rank0(self):
        for process in self.processes():
            if b"OMPI_COMM_WORLD_RANK=0\0" in Path(f"/proc/{process}/environ").read_bytes():
                return process
        self.fail("there is no rank 0")

    def resident_kb(self, process):
        return int(re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text()).group(1))


class Page(Served):
    @unittest.skipUnless(CHROMIUM, "there is no Chromium (Debian: apt install chromium)")
    def test_in_a_browser(self):
        process, url = self.serve("--steps", "1000000", "--inject", f"memory:rank=1,step={self.steps_in(20)}", "--nodes-file", HOSTILE)
        browser = Browser(self.folder)
        self.addCleanup(browser.close)

        def now(expression):
            return browser.value(f"String({expression})")

        def count(selector):
            return int(now(f"document.querySelectorAll({json.dumps(selector)}).length"))

        browser.open(url)
        self.wait_for(lambda: count(".verdict.running") == 1 and count("#system") == 1)
        self.assertIn("no fault found so far on 2 ranks", now("document.querySelector('.verdict').textContent"))
        self.assertNotIn(" to ", now("document.querySelector('.verdict > p:last-child').textContent"))  # no end before the end
        self.wait_for(lambda: re.search(r"s elapsed, .*left, updated .* ago. Last reports: rank 0 \d+ s ago, rank 1 \d", now("document.querySelector('#live').textContent")))
        self.assertTrue(0 < float(now("document.querySelector('#live progress').value")) < 1)
        self.assertIn(HOSTILE, now("document.querySelector('#system').textContent"))  # shown as text
        has_charts = "Dygraph=" in self.text(url)
        self.wait_for(lambda: count("td svg polyline") > 0)
        if has_charts:
            self.wait_for(lambda: count("#tools:not([hidden])") == 1 and count("canvas") > 6)
            charts = now("document.querySelector('.chart').getAttribute('aria-label')")
            self.wait_for(lambda: now("document.querySelector('.chart').getAttribute('aria-label')") != charts)
        points = "document.querySelector('td svg polyline').getAttribute('points').split(' ').length"
        before = int(now(points))
        browser.value("document.querySelector('#results details').open = true; document.querySelector('#system table').own = 'the same'; 1")
        self.wait_for(lambda: int(now(points)) > before + 2)
        self.assertEqual(count(".verdict.fault"), 0)
        self.wait_for(lambda: count(".verdict.fault") == 1, 150)
        self.assertIn("memory fault", now("document.querySelector('details.fault[open] summary').textContent"))
        self.assertEqual(now("document.querySelector('#system table').own"), "the same")  # updated in place, without flicker
        self.assertEqual(now("document.querySelector('#results details').open"), "true")
        if has_charts:
            self.wait_for(lambda: count("button[data-do=fault]:not([hidden])") == 1 and count("button.moment") > 0)
        self.assertEqual(browser.errors, [])
        asked = {urllib.parse.urlsplit(address).path for address in browser.asked if address.startswith(url)}
        self.assertEqual(asked, {"/", "/api/page", "/api/lines", "/api/end"})
        self.assertEqual([address for address in browser.asked if not address.startswith(url)], [])
        self.assertEqual(count("img"), 0)
        self.stop(process, FAULT)
        self.wait_for(lambda: "The run has ended: fault." in now("document.getElementById('live').textContent"), 10)
        self.assertIn(f"{self.folder}/run/report.html", now("document.getElementById('live').textContent"))
        self.assertIn("exit code 1", now("document.querySelector('.verdict').textContent"))

    @unittest.skipUnless(CHROMIUM, "there is no Chromium (Debian: apt install chromium)")
    def test_of_a_lost_first_rank(self):
        process, url = self.serve("--steps", "1000000", *RESTING)
        browser = Browser(self.folder)
        self.addCleanup(browser.close)
        browser.open(url)
        shown = lambda: browser.value("document.querySelector('#live')?.textContent ?? ''")
        self.wait_for(lambda: "Last reports" in shown())
        os.kill(self.rank0(), signal.SIGKILL)
        process.wait(60)
        self.wait_for(lambda: re.search(r"No answer since .* UTC: the run has ended or its first rank was lost; see .*/run/report.html", shown()))
        self.assertEqual(browser.value("document.querySelectorAll('.verdict.running').length"), 1)  # the last state

    def test_for_programs(self):
        process, url = self.serve("--steps", "1000000", "--inject", f"memory:rank=1,step={self.steps_in(12)}")
        self.assertEqual(self.text(url, "healthz"), "ok\n")
        page = self.text(url)
        self.assertIn('"verdict":"running"', page)
        self.assertIn('<noscript><meta http-equiv="refresh"', page)
        self.wait_for(lambda: "egt_rank_training_loss" in self.text(url, "metrics"))
        result = json.loads(self.text(url, "api/result"))
        self.assertEqual((result["verdict"], result["running"], result["exit_code"]), ("running", True, None))
        self.assertEqual([rank["rank"] for rank in result["ranks"]], [0, 1])
        self.assertNotIn("nodes", result)  # no verdict for any host
        self.wait_for(lambda: self.ask(url, "healthz")[0] == 503, 150)
        self.assertRegex(self.ask(url, "healthz")[2], "^fault\n")
        result = json.loads(self.text(url, "api/result"))
        self.assertEqual((result["verdict"], result["faults"][0]["rank"]), ("fault", 1))
        with socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(url).port), timeout=60) as client:
            client.sendall(b"GET /api/end HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.ask(url, "healthz")  # answered meanwhile
            self.stop(process, FAULT)
            end = json.loads(client.makefile("rb").read().split(b"\r\n\r\n", 1)[1])["result"]
        self.assertNotIn("running", self.result())
        self.assertEqual([end[key] for key in ("verdict", "exit_code", "run_id")], [self.result()[key] for key in ("verdict", "exit_code", "run_id")])
        self.assertNotIn("data-live", (self.folder / "run/report.html").read_text())

    def test_requests_of_all_kinds(self):
        process, url = self.serve("--steps", "1000000")
        self.check_journals(url)
        self.check_metrics(url)
        self.check_methods_and_names(url)
        self.stop(process, INTERRUPTED)
        self.assertNotIn("running", (self.folder / "run/metrics.prom").read_text())

    def check_journals(self, url):
        for rank in (0, 1):
            own = (self.folder / f"run/journal.rank{rank}.jsonl")
            records, position = [], 0
            while len(records) < 4:
                answer = json.loads(self.text(url, f"api/journal?rank={rank}&from={position}"))
                self.assertEqual(answer["from"], position)
                records, position = records + answer["records"], answer["next"]
            self.assertEqual(records, [json.loads(line) for line in own.read_text().splitlines()[:len(records)]])
        self.assertEqual(self.ask(url, "api/journal?from=7")[0], 400)
        self.assertEqual(json.loads(self.text(url, "api/journal?from=99999999"))["from"], 0)
        for odd in ("rank=2", "rank=-1", "rank=../..", "from=-1", "from=x", "from=99999999999999999999"):
            self.assertEqual(self.ask(url, f"api/journal?{odd}")[0], 400, odd)

    def check_metrics(self, url):
        """They contain all that the dashboard asks for."""
        steps = [rf'egt_rank_steps{{rank="{rank}"[^}}]*}} [1-9]' for rank in (0, 1)]
        self.wait_for(lambda: all(re.search(one, self.text(url, "metrics")) for one in [*steps, "egt_rank_work_index"]))
        status, headers, metrics = self.ask(url, "metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        there = set(re.findall(r"^(egt_\w+)[{ ]", metrics, re.MULTILINE))
        asked = set(re.findall(r"egt_\w+", DASHBOARD.read_text()))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - there - SENSORS, set())
        self.assertIn('egt_run_verdict{verdict="running"} 1', metrics)
        self.assertIn("# TYPE egt_rank_steps_total counter\n", metrics)
        for one in steps:
            self.assertRegex(metrics, one)

    def check_methods_and_names(self, url):
        """It answers read requests by its own name only."""
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            status, headers, _ = self.ask(url, method=method, body=b"x" if method == "POST" else None)
            self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"), method)
        status, headers, text = self.ask(url, method="HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 10000)
        self.assertRegex(headers["Content-Security-Policy"], "default-src 'none'")
        self.assertEqual((headers["X-Content-Type-Options"], headers["Cache-Control"]), ("nosniff", "no-store"))
        port = urllib.parse.urlsplit(url).port
        for name, status in (("127.0.0.1", 200), (f"localhost:{port}", 200), ("[::1]", 200), ("evil.example", 403), ("evil.example:80", 403), ("", 403)):
            self.assertEqual(self.ask(url, "healthz", {"Host": name})[0], status, name)


class Access(Served):
    def test_others_need_the_token(self):
        for environment, told in ({"EGT_SERVE_TOKEN": ""}, "set EGT_SERVE_TOKEN"), ({"EGT_SERVE_TOKEN": "short"}, "5 characters"):
            done = self.run_program(*NETWORK, "--serve", "0.0.0.0:0", ranks=2, environment=environment)
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertEqual(len(self.program_lines(done)), 1)
            self.assertIn(told, done.stderr)
            self.assertEqual(self.files(), [])
        process, url = self.serve("--duration", "5s", at="0.0.0.0:0", environment={"EGT_SERVE_TOKEN": TOKEN})
        url = url.replace("0.0.0.0", "127.0.0.1")
        for wrong in (None, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": TOKEN}):
            status, headers, text = self.ask(url, headers=wrong)
            self.assertEqual((status, headers["WWW-Authenticate"]), (401, "Bearer"), wrong)
            self.assertNotIn("verdict", text)
        self.assertEqual(self.ask(url, "metrics?token=" + TOKEN.replace(" ", "-"))[0], 401)
        self.assertEqual(self.ask(url, "metrics", {"Authorization": f"Bearer {TOKEN}"})[0], 200)
        self.assertEqual(self.ask(url, "?token=" + urllib.parse.quote(TOKEN))[0], 200)
        self.assertEqual(process.wait(60), PASS)
        for file in (self.folder / "run").iterdir():
            self.assertNotIn(TOKEN, file.read_text())

    def test_refuses_what_is_no_address(self):
        for value in ("", "x", "-1", "65536", "example.org:80", ":80", "::1:80", "127.0.0.1", "127.0.0.1:", "1.2.3.4.5:80", "8080 "):
            done = self.run_program(*NETWORK, f"--serve={value}")
            self.assertEqual((done.returncode, len(self.program_lines(done))), (USAGE, 1), f"{value}: {done.stderr}")
            self.assertIn("--serve", done.stderr)
        for command in (["report", "run"], ["selftest"], ["devices"], ["compare", "a", "b"]):
            done = self.run_program(*command, "--serve", "0")
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(f"--serve: the command {command[0]} has no such option", done.stderr)

    def test_a_port_that_is_taken_is_a_warning(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = self.run_program(*NETWORK, "--steps", "200", "--serve", port, ranks=2)
        self.assertEqual(done.returncode, PASS, done.stderr)
        told = f"--serve 127.0.0.1:{port}: Address already in use; the run continues without its page"
        self.assertIn(f"Warning: {told}", done.stderr)
        self.assertIn(told, (self.folder / "run/journal.rank0.jsonl").read_text())


class Clients(Served):
    """Whatever clients do, the run continues and its memory use does not grow."""

    def connect(self, url):
        client = socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(url).port), timeout=20)
        self.addCleanup(client.close)
        return client

    def raw(self, url, request):
        """First line of the response; empty if the connection was closed."""
        with self.connect(url) as client:
            try:
                client.sendall(request)
                return client.makefile("rb").readline()
            except (ConnectionError, TimeoutError) as error:
                self.assertNotIsInstance(error, TimeoutError)
                return b""

    def test_odd_requests_and_a_thousand_connections(self):
        process, url = self.serve("--steps", "1000000", *RESTING)
        for _ in range(3):
            self.text(url)
        rank = self.rank0()
        self.wait_for(lambda: "egt_rank_work_index" in self.text(url, "metrics"))
        before = self.resident_kb(rank)
        head = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for path in (b"/../../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/%00", b"/\x00", b"/journal.rank0.jsonl", b"/api/", b"//", b"http://x/"):
            self.assertRegex(self.raw(url, b"GET " + path + head), rb"^HTTP/1.1 (400|404) ", path)
        for request in (b"GET /" + b"a" * 1000000 + head, b"GET /?" + b"a=1&" * 250000 + head, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000000,
                        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000000, b"\x16\x03\x01" * 1000, b"\r\n" * 5000,
                        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"):
            self.assertRegex(self.raw(url, request), rb"^(HTTP/1.1 (200|400|405|414) |$)", request[:40])
        ranges = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip, br\r\nRange: bytes=" + b",".join([b"0-"] * 1000) + b"\r\n\r\n"
        with self.connect(url) as client:
            client.sendall(ranges)
            answer = client.makefile("rb").read()
        self.assertTrue(answer.startswith(b"HTTP/1.1 200 ") and len(answer) < 1000000, len(answer))
        self.assertEqual(answer.count(b"</html>"), 1)
        self.assertLess(self.resident_kb(rank) - before, 20000)
        self.check_a_thousand_connections(url, rank)
        self.stop(process, INTERRUPTED)

    def check_a_thousand_connections(self, url, rank):
        before, files = self.resident_kb(rank), len(os.listdir(f"/proc/{rank}/fd"))
        clients = [self.connect(url) for _ in range(1000)]
        self.assertLess(len(os.listdir(f"/proc/{rank}/fd")) - files, 85)
        for client in clients[:8]:
            client.sendall(b"GET / HT")  # then sends nothing more
        self.wait_for(lambda: self.ended(clients) == 1000)  # although each waits longer than its limit
        self.assertEqual(self.text(url, "healthz"), "ok\n")
        self.assertLess(self.resident_kb(rank) - before, 20000)

    def test_slow_clients(self):
        """serve() waits for the address, which is printed whatever the progress and the log level are."""
        process, url = self.serve("--steps", "1000000", *RESTING, "--progress", "none", "--log-level", "error")
        self.wait_for(lambda: "egt_rank_work_index" in self.text(url, "metrics"))
        self.check_that_they_are_sent_away(url)
        self.check_that_they_leave_healthz_to_others(url)
        self.stop(process, INTERRUPTED)

    def check_that_they_leave_healthz_to_others(self, url):
        """Clients that never complete a request, and as many that request the page but never read it."""
        clients = []
        for _ in range(3):
            clients += [self.connect(url) for _ in range(50)]
            for client in clients[-50:]:
                try:
                    client.sendall(b"GET / HT")
                except ConnectionError:
                    pass  # the oldest connection was closed
            self.assertEqual(self.text(url, "healthz"), "ok\n")
        for _ in range(20):
            deaf = socket.socket()
            clients.append(deaf)
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            deaf.connect(("127.0.0.1", urllib.parse.urlsplit(url).port))
            deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(self.text(url, "healthz"), "ok\n")
        for client in clients:
            client.close()

    def ended(self, clients):
        """Number of connections closed by the server."""
        count = 0
        for client in clients:
            client.setblocking(False)
            try:
                client.recv(1000)
                count += 1
            except BlockingIOError:
                pass
            except ConnectionError:
                count += 1
        return count

    def check_that_they_are_sent_away(self, url):
        """Clients that send one byte at a time, or never read."""
        slow, deaf = self.connect(url), socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        deaf.connect(("127.0.0.1", urllib.parse.urlsplit(url).port))
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        slow.setblocking(False)  # with a timeout, recv would wait for it and no further byte would be sent

        def refused():
            try:
                slow.sendall(b"X")
                slow.recv(1)
                return True
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        port = f":{urllib.parse.urlsplit(url).port:04X}"
        mine = f":{deaf.getsockname()[1]:04X}"

        def is_open():
            rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            return any(row[1].endswith(port) and row[2].endswith(mine) and row[9] != "0" for row in rows)  # held by a process

        self.wait_for(is_open)
        self.wait_for(refused, 30)
        self.wait_for(lambda: not is_open(), 30)
        deaf.close()
        self.assertEqual(self.text(url, "healthz"), "ok\n")

    def test_fifty_and_one_that_never_reads(self):
        process, url = self.serve("--duration", "10s")
        deaf = self.connect(url)
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        counts, going = [0] * 50, threading.Event()

        def poll(number):
            while not going.wait(0.5):
                try:
                    self.text(url, ("api/page", "api/lines?from=3&seconds=1", "metrics")[counts[number] % 3])
                    counts[number] += 1
                except (OSError, http.client.HTTPException):
                    if process.poll() is None and not (self.folder / "run/result.json").exists():
                        continue
                    return

        threads = [threading.Thread(target=poll, args=[number]) for number in range(50)]
        for thread in threads:
            thread.start()
        self.assertEqual(process.wait(90), PASS, "".join(self.lines))
        going.set()
        for thread in threads:
            thread.join()
        self.assertGreater(min(counts), 0, counts)

    def test_no_port_is_left(self):
        process, url = self.serve("--steps", "1000000")
        clients = [self.connect(url) for _ in range(20)]
        clients[0].sendall(b"GET / HT")
        self.text(url)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        self.wait_for(lambda: not self.processes(), 10)
        self.check_interrupted()
        with self.assertRaises(ConnectionRefusedError):
            self.connect(url)


if __name__ == "__main__":
    unittest.main()
