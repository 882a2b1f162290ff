"""Console output: the content of each stream, and that a stalled reader does not block the program."""
import fcntl
import pty

from program import *

INTERRUPTED = 6
TINY = ["--layers", "16,8", "--batch", "8", "--memory", "0", "--no-io", "--output", "run"]
STEPPING = [*TINY, "--progress", "lines", "--collective-timeout", "2s"]


class FullPipe:
    """A pipe with 4 KiB of capacity that is full; read only on request."""

    def __init__(self, test):
        self.reader, self.writer = os.pipe()
        os.write(self.writer, b"." * fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096))
        test.addCleanup(os.close, self.reader)

    def hand_over(self):
        os.close(self.writer)

    def read_all(self):
        return b"".join(iter(lambda: os.read(self.reader, 65536), b"")).decode()


class Console(ProgramTest):
    def start_with_pipe(self, arguments, ranks=None):
        pipe = FullPipe(self)
        process = subprocess.Popen(self.command(arguments, ranks), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=pipe.writer,
                                   stderr=pipe.writer)
        self.addCleanup(process.kill)
        pipe.hand_over()
        return process, pipe

    def records(self, kind, rank=0):
        path = self.folder / f"run/journal.rank{rank}.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = text[:text.rfind("\n") + 1].splitlines()  # the last line may be incomplete
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    def check_goes_on_unread(self, ranks):
        process, pipe = self.start_with_pipe([*STEPPING, "--duration", "8s"], ranks)
        self.wait_for(lambda: len(self.records("progress")) >= 6)
        self.assertIsNone(process.poll(), "it still runs")
        text = pipe.read_all()
        self.assertEqual(process.wait(timeout=300), 0, text)
        self.assertIn("\nVerdict: pass (exit code 0)\n", text)
        steps = [record["body"]["steps"] for record in self.records("progress")]
        self.assertTrue(all(later > sooner for sooner, later in zip(steps, steps[1:])), f"steps go on: {steps}")
        result = self.result()
        self.assertEqual((result["verdict"], result["losses"], result["restarts"]), ("pass", [], []))

    def test_an_unread_pipe_stops_nobody(self):
        self.check_goes_on_unread(None)

    def test_an_unread_pipe_behind_mpirun_stops_nobody(self):
        self.check_goes_on_unread(2)

    def test_a_pipe_that_nobody_reads_does_not_keep_it_from_ending(self):
        process, _ = self.start_with_pipe([*STEPPING, "--duration", "10m"])
        self.wait_for(lambda: len(self.records("progress")) >= 3)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=300), INTERRUPTED)
        self.assertLess(time.monotonic() - started, 15, "the output is waited for, 30 s; signal_test.py measures how long it takes alone")
        self.assertEqual(self.result()["verdict"], "interrupted")

    def start_on_terminal(self, arguments, **streams):
        master, terminal = pty.openpty()
        self.addCleanup(os.close, master)
        process = subprocess.Popen(self.command(arguments), cwd=self.folder, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "TERM": "xterm", "NO_COLOR": ""},
                                   **{name: terminal if stream is pty else stream for name, stream in streams.items()})
        self.addCleanup(process.kill)
        return process, master, terminal

    def read_terminal(self, master):
        text = b""
        try:
            while chunk := os.read(master, 65536):
                text += chunk
        except OSError:
            pass  # its last user has exited
        return text.decode()

    def test_a_terminal_on_standard_error_has_the_bar_and_a_file_no_escapes(self):
        with open(self.folder / "result.txt", "w+") as results:
            process, master, terminal = self.start_on_terminal([*TINY, "--duration", "3s"], stdout=results, stderr=pty)
            os.close(terminal)
            seen = self.read_terminal(master)
            self.assertEqual(process.wait(timeout=300), 0, seen)
            told = Path(results.name).read_text()
        self.assertRegex(seen, r"\[[#-]+\] +\d+ %")
        self.assertNotIn("Verdict", seen)
        self.assertIn("Verdict: pass", told)
        self.assertNotIn("\x1b", told)
        self.assertNotIn("EPOCH", told)

    def test_a_terminal_on_standard_output_puts_no_escapes_into_a_redirected_error(self):
        with open(self.folder / "messages.txt", "w+") as messages:
            process, master, terminal = self.start_on_terminal([*TINY, "--steps", "300", "--inject", "ecc:rank=0,step=20"], stdout=pty,
                                                               stderr=messages)
            os.close(terminal)
            seen = self.read_terminal(master)
            self.assertEqual(process.wait(timeout=300), 1, seen)
            told = Path(messages.name).read_text()
        self.assertIn("\x1b[31mVerdict: fault (exit code 1)", seen)
        self.assertIn("FAULT CPU 0 (", told)
        self.assertNotIn("\x1b", told)

    def test_a_result_that_cannot_be_written_is_not_named(self):
        process = self.start_program(*TINY, "--duration", "3s", "--progress", "none")
        self.wait_for(lambda: self.records("progress"))
        (self.folder / "run/result.json").mkdir()
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 4, out + err)
        self.assertIn("\nFiles: run/report.html, run/journal.rank*.jsonl\n", out)


if __name__ == "__main__":
    unittest.main()
