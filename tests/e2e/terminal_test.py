"""Output in a tmux window: the bar and its rows are redrawn in place, even if the window changes."""
import re
import shlex
import shutil

from program import *
from program import PROGRAM

LONG = ["--duration", "120s", "--memory", "64MB", "--no-io", "--output", "run"]
HEADER = "device util memory temp power TFLOP/s verified faults"


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class Terminal(ProgramTest):
    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-f", "/dev/null", "-S", str(self.folder / "socket"), *map(str, arguments)], capture_output=True, text=True,
                              timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def start(self, columns, lines, *arguments, ranks=2):
        command = shlex.join(self.command(arguments, ranks))
        self.addCleanup(subprocess.run, ["tmux", "-S", str(self.folder / "socket"), "kill-server"], capture_output=True)
        (self.folder / "run.sh").write_text(f"cd {shlex.quote(str(self.folder))}; {command}; echo ended with $?; sleep 600\n")
        self.tmux("new-session", "-d", "-x", columns, "-y", lines, "env", "NO_COLOR=1", "bash", self.folder / "run.sh")
        self.tmux("set-option", "-g", "window-size", "manual")
        self.addCleanup(lambda: (self.folder / "run" / "stop").touch() if (self.folder / "run").is_dir() else None)

    def screen(self):
        """Lines of the window, including the scrollback."""
        return [line.rstrip() for line in self.tmux("capture-pane", "-p", "-S", "-").splitlines()]

    def await_screen(self, is_there, seconds=60):
        until = time.monotonic() + seconds
        while True:
            lines = self.screen()
            if is_there(lines):
                return lines
            self.assertLess(time.monotonic(), until, "\n".join(lines))
            time.sleep(0.1)

    def block(self, lines, ranks):
        """The bar and the lines below it; None during a redraw, or if it appears twice."""
        text = [line for line in lines if line]
        bars = [i for i, line in enumerate(text) if line.startswith("[")]
        below = [line for line in text[bars[0] + 1:] if not line.startswith("EXTREME EPOCH")] if len(bars) == 1 else []
        header, *rows = below or [""]
        is_whole = header and HEADER.startswith(" ".join(header.split())) and [row.split()[0] for row in rows] == ["CPU"] * ranks
        return text[bars[0]:] if is_whole else None

    def check_block(self, columns, ranks=2):
        block = self.block(self.await_screen(lambda lines: self.block(lines, ranks)), ranks)
        self.assertLess(max(map(len, block)), columns)
        self.assertRegex(block[0], r"^\[#*-*\] +\d+ %")
        return block

    def resize(self, columns, lines):
        """Resizes the window while the program is paused: output for the previous size could not fit."""
        pane = int(self.tmux("display-message", "-p", "#{pane_pid}"))
        program = next(int(name) for name in os.listdir("/proc") if name.isdigit() and self.is_program_of(int(name), pane))
        os.kill(program, signal.SIGSTOP)
        try:
            time.sleep(0.2)
            self.tmux("resize-window", "-x", columns, "-y", lines)
            time.sleep(0.5)  # until the terminal also has that size
        finally:
            os.kill(program, signal.SIGCONT)
        time.sleep(1)  # some redraws

    def is_program_of(self, process, shell):
        try:
            parent = int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1])
            return parent == shell and os.path.samefile(f"/proc/{process}/exe", PROGRAM)
        except OSError:
            return False

    def check_end(self, code):
        lines = self.await_screen(lambda lines: any(line.startswith("ended with") for line in lines))
        self.assertIn(f"ended with {code}", lines)
        self.assertEqual([line for line in lines if line.startswith(("[#", "[-", "device "))], [], "the bar is gone")
        self.assertEqual(sum(line.startswith("Verdict: ") for line in lines), 1)

    def test_the_screen_stays_clean_in_windows_that_change(self):
        self.start(80, 24, *LONG, ranks=None)
        narrow = self.check_block(80, 1)
        self.resize(200, 50)
        self.await_screen(lambda lines: len((self.block(lines, 1) or narrow)[0]) > len(narrow[0]))  # the bar uses the full width
        self.check_block(200, 1)
        for columns in (60, 45, 120):
            self.resize(columns, 20)
            self.check_block(columns, 1)
        (self.folder / "run/stop").touch()
        self.check_end(6)

    def test_the_screen_of_several_ranks(self):
        self.start(200, 50, *LONG, ranks=3)
        block = self.check_block(200, 3)
        for row in block[-3:]:
            self.assertRegex(row, r"^CPU \d +\S+.* [0-9.]+ [KMG]?B +0$")
        (self.folder / "run/stop").touch()
        self.check_end(6)

    def test_a_window_of_few_lines(self):
        self.start(80, 6, *LONG, ranks=3)
        for _ in range(5):
            time.sleep(0.3)
            lines = self.await_screen(lambda lines: sum(line.startswith("[") for line in lines) == 1 and "(3 more lines)" in lines)
        self.assertEqual(len([line for line in lines if line.endswith("more lines)")]), 1)
        (self.folder / "run/stop").touch()
        self.check_end(6)


if __name__ == "__main__":
    unittest.main()
