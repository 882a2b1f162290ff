#!/usr/bin/env python3
"""Every way to stop a run, at every moment: it ends within 5 s with a valid result and leaves nothing behind.

signal_test.py [--all] [--jobs N] [--program PROGRAM] [--run-script scripts/run.sh] [--mpirun "mpirun .."] [NAME ..]
prints a table of the cases whose names contain one of NAME. Needs only the program, run.sh and an Open MPI. Signals
that this mpirun does not forward to its ranks are detected and reported; a stop file is used instead."""
import argparse
import concurrent.futures
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

LIMIT_S = 5.0
DEGRADED, INTERRUPTED, MPIRUN_WAS_ENDED = 5, 6, 1  # mpirun exits with 1 on SIGINT and SIGTERM, whatever its ranks return
EARLY_S, AGAIN_S = 0.3, 0.4
RESEND_S = 1.0  # mpirun drops signals that arrive before its ranks have started
PREFIX = "extreme_gpu_trainer: "
LOAD = ["--layers", "64,96,32", "--batch", "32", "--memory", "256MB", "--io-size", "16MB", "--io-every", "1", "--io-repeats", "50", "--io-dir", "."]
SIGNALS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "USR1": signal.SIGUSR1, "USR2": signal.SIGUSR2}
settings = argparse.Namespace()


class Case:
    """`start`: alone, mpirun, run.sh (in its own terminal). `how`: INT TERM USR1 USR2, file, key (Ctrl-C), rank. `when`: early (0.3
    s after the start), mid, twice. `special`: signals are blocked by the parent, the duty cycle is low (duty), or the terminal is
    stopped by Ctrl-S (xoff)."""

    def __init__(self, start, how, when="mid", *special, command=(), essential=True, serial=False):
        self.start, self.how, self.when, self.special = start, how, when, special
        self.command, self.essential, self.serial = list(command), essential, serial
        self.name = " ".join([start, how, when, *special, *(command[:1] if command else ())])

    def codes(self):
        if "duty" in self.special:
            return (DEGRADED, *((MPIRUN_WAS_ENDED,) if self.start == "mpirun" and self.how in ("INT", "TERM") else (INTERRUPTED,)))
        if self.start == "mpirun" and self.how in ("INT", "TERM"):
            return (MPIRUN_WAS_ENDED, INTERRUPTED)
        return (INTERRUPTED,)


def cases():
    quick = [Case("alone", "TERM"), Case("alone", "INT", "twice"), Case("alone", "USR2", "mid", "blocked"), Case("alone", "TERM", "early"),
             Case("mpirun", "USR1"), Case("mpirun", "USR2", "early"), Case("mpirun", "USR2", "twice"), Case("mpirun", "rank"),
             Case("mpirun", "file"), Case("mpirun", "file", "early"), Case("run.sh", "key"), Case("run.sh", "key", "early"),
             Case("run.sh", "key", "twice"), Case("run.sh", "key", "mid", "blocked"), Case("run.sh", "key", "mid", "duty"), Case("run.sh", "TERM", "mid", "xoff"),
             Case("alone", "TERM", "mid", "xoff"),
             Case("mpirun", "file", "mid", command=["verify"]),
             Case("mpirun", "TERM", serial=True), Case("mpirun", "INT", serial=True)]
    long = [Case(start, how, when, *special) for start, hows in
            (("alone", ("INT", "HUP", "USR1", "file")), ("mpirun", (*SIGNALS, "file")), ("run.sh", ("key", "TERM", "HUP", "file")))
            for how in hows for when, *special in (["mid"], ["early"], ["twice"], ["mid", "duty"], ["early", "blocked"], ["mid", "xoff"])
            if start != "mpirun" or ("xoff" not in special and ("blocked" not in special or how == "file"))]
    long += [Case("mpirun", how, "mid", command=[command]) for command in ("links", "bench", "verify", "selftest") for how in ("file", "USR2")]
    known = {case.name for case in quick}
    for case in long:
        case.essential = False
        case.serial = case.start == "mpirun" and case.how in ("INT", "TERM")
    return quick + [case for case in long if case.name not in known]


def processes_in(folder):
    """All processes with this working folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.path.samefile(entry / "cwd", folder):
                found.append(int(entry.name))
    return found


def listens(process):
    """True if the process handles SIGUSR2."""
    with contextlib.suppress(OSError):
        caught = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("SigCgt:"))
        return int(caught.split()[1], 16) >> (signal.SIGUSR2 - 1) & 1
    return False


class Run:
    def __init__(self, case):
        self.case = case
        self.folder = Path(tempfile.mkdtemp(prefix="egt_stop_"))
        self.directory = self.folder / "run"
        self.output = b""
        self.terminal = None
        self.reported = None
        self.started = time.monotonic()
        self.process = self.start()

    # ---- Starting.

    def arguments(self):
        case = self.case
        command = case.command or ["burn"]
        words = [*command, "--backend", "host", "--output", "run"]
        if command == ["burn"]:
            words += ["--duration", "120s", *LOAD]
        if command == ["verify"]:
            words += ["--duration", "120s", "--io-dir", "."]
        if command == ["selftest"]:
            words += ["--io-dir", "."]
        if command == ["links"]:
            words += ["--size", "64MB", "--repeats", "100"]
        if command == ["bench"]:
            words += ["--trial-time", "60s"]
        if "duty" in case.special:  # steps of at least 0.1 s, so that idle periods are long
            words[words.index("64,96,32")] = "512,1024,512"
            words[words.index("--batch") + 1] = "256"
            words += ["--inject", "temperature:rank=0,step=2"]
        return words

    def start(self):
        case = self.case
        if case.when == "early" and case.how == "file":
            self.directory.mkdir()
        ranks = [*settings.mpirun, "-np", "2"] if case.start == "mpirun" else []
        words = [*ranks, settings.program, *self.arguments()]
        environment = dict(os.environ)
        if case.start == "run.sh":
            words = [str(self.make_root() / "scripts/run.sh"), *self.arguments()]
            environment["EGT_RANKS"] = "2"
        ours = ("USR1", "USR2") if case.start == "run.sh" else SIGNALS  # a shell cannot unblock the signal of its Ctrl-C
        blocked = [SIGNALS[name] for name in ours] if "blocked" in case.special else []
        if case.start == "run.sh" or "xoff" in case.special:
            return self.start_in_terminal(words, environment, blocked)
        process = subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=environment, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked))
        self.reader = threading.Thread(target=self.read, args=(process.stdout.fileno(),), daemon=True)
        self.reader.start()
        return process

    def make_root(self):
        """run.sh with the existing program: nothing is installed or built."""
        root = self.folder / "root"
        (root / "scripts").mkdir(parents=True)
        (root / "build").mkdir()
        # Links avoid "text file busy": a newly written file may still be open in the child of another thread.
        (root / "scripts/run.sh").symlink_to(settings.run_script)
        for name in ("setup.sh", "build.sh"):
            (root / "scripts" / name).symlink_to(shutil.which("true"))
        (root / "build/extreme_gpu_trainer").symlink_to(settings.program)
        return root

    def start_in_terminal(self, words, environment, blocked):
        self.terminal, user = pty.openpty()

        def enter():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells ignore it in background jobs, and then cannot trap it
            signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        process = subprocess.Popen(words, cwd=self.folder, stdin=user, stdout=user, stderr=user, env=environment, preexec_fn=enter)
        os.close(user)
        self.reader = threading.Thread(target=self.read, args=(self.terminal,), daemon=True)
        self.reader.start()
        return process

    def read(self, stream):
        with contextlib.suppress(OSError):
            while text := os.read(stream, 65536):
                self.output += text

    # ---- Stopping.

    def ranks(self):
        found = []
        for process in processes_in(self.folder):
            with contextlib.suppress(OSError):
                if os.path.samefile(f"/proc/{process}/exe", settings.program):
                    found.append(process)
        return found

    def wait_for(self, condition, seconds=300):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise TimeoutError(f"it did not come so far; exit code {self.process.poll()}: {self.text()[-500:]}")
            time.sleep(0.02)

    def text(self):
        return self.output.decode(errors="replace")

    def is_at_work(self):
        journals = list(self.directory.glob("journal.rank*.jsonl"))
        if self.case.command:
            return bool(journals) and any('"start"' in journal.read_text() for journal in journals)
        return bool(journals) and all('"progress"' in journal.read_text() for journal in journals)

    def wait_for_the_moment(self):
        if self.case.when == "early":
            time.sleep(max(0.0, self.started + EARLY_S - time.monotonic()))
            if self.case.start != "run.sh" and self.case.how != "file":  # signals kill the program while it is being loaded
                self.wait_for(lambda: len(self.ranks()) == (2 if self.case.start == "mpirun" else 1) and all(map(listens, self.ranks())))
            return
        self.wait_for(self.is_at_work)
        time.sleep(0.5)
        if "duty" in self.case.special:
            self.wait_for(lambda: "over the limit" in self.told() or "load" in self.told(), 30)
            time.sleep(3)  # the load decreases in steps
        if "xoff" in self.case.special:
            os.write(self.terminal, b"\x13")
            time.sleep(1)

    def told(self):
        return "".join(journal.read_text() for journal in self.directory.glob("journal.rank*.jsonl"))

    def ask(self):
        how = self.case.how
        with contextlib.suppress(OSError):
            if how == "file":
                (self.directory / "stop").touch()
            elif how == "key":
                os.write(self.terminal, b"\x03")
            elif how == "rank":
                os.kill(max(self.ranks()), signal.SIGTERM)
            else:
                os.kill(self.process.pid, SIGNALS.get(how) or getattr(signal, f"SIG{how}"))

    def has_ended(self):
        return not self.ranks() and ("xoff" in self.case.special or self.process.poll() is not None)

    def wait_for_end(self, seconds, resend):
        asked = time.monotonic()
        while not self.has_ended() and time.monotonic() - self.asked < seconds:
            time.sleep(0.02)
            if resend and time.monotonic() - asked > RESEND_S and self.ranks():  # otherwise mpirun is exiting and would be killed
                asked = time.monotonic()
                self.ask()

    def stop(self):
        case = self.case
        self.wait_for_the_moment()
        self.asked = time.monotonic()
        self.ask()
        if case.when == "twice":
            time.sleep(AGAIN_S)
            if case.how != "file" or (self.ranks() and not (self.directory / "result.json").exists()):
                self.ask()
        handed_on = settings.handed_on.get(case.how, True) or case.start != "mpirun"
        self.wait_for_end(LIMIT_S if not handed_on else 4 * LIMIT_S, case.when == "early" and case.how in ("USR1", "USR2"))
        if not handed_on and not self.has_ended():
            self.asked = time.monotonic()
            (self.directory / "stop").touch()
            self.wait_for_end(4 * LIMIT_S, False)
        self.seconds = time.monotonic() - self.asked
        if "xoff" in case.special:
            os.write(self.terminal, b"\x11")
        try:
            self.code = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.code = None
        time.sleep(0.1)
        # On the second signal mpirun kills its ranks at once, so the verdict comes from the journals.
        if case.start == "mpirun" and case.how in ("INT", "TERM") and case.when == "twice" and self.result() is None:
            self.reported = subprocess.run([settings.program, "report", "run"], cwd=self.folder, capture_output=True, timeout=30).returncode

    # ---- Outcome.

    def result(self):
        try:
            return json.loads((self.directory / "result.json").read_text())
        except OSError:
            return None

    def left_over(self):
        kept = {"run/result.json", "run/junit.xml", "run/metrics.prom", "run/report.html", *(f"run/journal.rank{rank}.jsonl" for rank in range(2))}
        files = [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if not path.is_dir()]
        left = [name for name in files if name not in kept and not name.startswith("root/")]
        return left + [f"process {process}" for process in self.ranks()]

    def problems(self):
        case, found, result = self.case, [], self.result()
        limit = 2 * LIMIT_S if "duty" in case.special else LIMIT_S  # its steps are long, and other tests run concurrently
        if self.seconds > limit:
            found.append(f"took more than {limit:g} s")
        if self.code not in case.codes():
            found.append(f"exit code {self.code}")
        if self.left_over():
            found.append("files are left")
        if result is None:
            if case.when != "early":
                found.append("no result")
            elif any(self.directory.glob("*")) or (self.directory.exists() and case.how != "file"):
                found.append("a run directory without a result")
            elif case.how in ("USR1", "USR2") and f"{PREFIX}stopped by SIG" not in self.text().replace("rank 1: ", ""):
                found.append("it does not say that it was stopped")
            return found
        if self.reported == 4 == result["exit_code"]:
            return found
        verdicts = {"interrupted": INTERRUPTED, **({"degraded": DEGRADED} if "duty" in case.special else {})}  # heat is a finding
        if verdicts.get(result["verdict"]) != result["exit_code"]:
            found.append(f"{result['verdict']}: {result['reasons']}")
        way = "the file stop" if case.how == "file" or not settings.handed_on.get(case.how, True) and case.start == "mpirun" else "(SIG|a stop request .SIGUSR1.)"
        if not any(re.match(f"stopped by {way}", reason) for reason in result["reasons"]):
            found.append(f"reasons {result['reasons']}")
        steps = {rank["steps"] for rank in result["ranks"]}
        if len(steps) > 1:
            found.append(f"ranks left after different steps: {steps}")
        if "was lost" in self.text():
            found.append("it says that a rank was lost")
        return found

    def close(self):
        for process in processes_in(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.terminal is not None:
            os.close(self.terminal)
        shutil.rmtree(self.folder, ignore_errors=True)


def row(case, seconds="-", code="-", verdict="-", left="-", outcome=""):
    return f"{case:34} | {seconds:>7} | {code:>4} | {verdict:11} | {left:24} | {outcome}"


def tell(line):
    sys.stdout.write(line + "\n")  # one write: concurrent threads also print
    sys.stdout.flush()


def make(case):
    run = Run(case)
    try:
        run.stop()
        result, problems = run.result(), run.problems()
        note = "" if settings.handed_on.get(case.how, True) or case.start != "mpirun" else " (this mpirun does not hand it on: by the file)"
        tell(row(case.name, f"{run.seconds:.2f}", str(run.code), result["verdict"] if result else "no run", ", ".join(run.left_over()) or "none",
                  ("FAILED: " + "; ".join(problems) if problems else "ok") + note))
        if problems:
            tell(run.text()[-1500:])
        return not problems
    except (OSError, TimeoutError, ValueError) as error:
        tell(row(case.name, outcome=f"FAILED: {error}"))
        return False
    finally:
        run.close()


def is_handed_on(name):
    """True if mpirun forwards this signal to its ranks."""
    number = int(SIGNALS[name])
    script = f"trap 'exit 7' {number}; echo up; i=0; while [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done"
    process = subprocess.Popen([*settings.mpirun, "-np", "1", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    process.stdout.readline()
    process.send_signal(number)
    try:
        return process.wait(timeout=3) == 7
    except subprocess.TimeoutExpired:
        process.terminate()
        return False
    finally:
        process.stdout.close()
        process.wait()


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--all", action="store_true", help="every case, in place of the essential ones")
    parser.add_argument("--jobs", type=int, default=3, help="cases at once")
    parser.add_argument("--program", default=os.environ.get("EGT_PROGRAM", str(root / "build/extreme_gpu_trainer")))
    parser.add_argument("--run-script", default=str(root / "scripts/run.sh"))
    parser.add_argument("--mpirun", type=str.split, default=os.environ.get("EGT_MPIRUN", "mpirun --quiet --oversubscribe --bind-to none").split())
    parser.add_argument("--skip", action="append", default=[], help="a word: cases with it in their names are left out")
    parser.add_argument("names", nargs="*")
    parser.parse_args(namespace=settings)
    settings.program = os.path.abspath(settings.program)
    if os.geteuid() == 0 and "--allow-run-as-root" not in settings.mpirun:
        settings.mpirun.append("--allow-run-as-root")
    settings.handed_on = {name: is_handed_on(name) for name in ("USR1", "USR2")}
    chosen = [case for case in cases() if case.essential or settings.all or settings.names]
    if settings.names:
        chosen = [case for case in chosen if any(name in case.name for name in settings.names)]
    chosen = [case for case in chosen if not any(word in case.name for word in settings.skip)]
    tell(row("case", "seconds", "code", "verdict", "left over", "outcome"))
    together = [case for case in chosen if not case.serial]
    with concurrent.futures.ThreadPoolExecutor(settings.jobs) as pool:
        passed = list(pool.map(make, together))
    # Time limits are tight and cases ran concurrently: repeat failed cases alone.
    passed = [good or make(case) for case, good in zip(together, passed)]
    passed += [make(case) for case in chosen if case.serial]  # the ranks have one second
    tell(f"{sum(passed)} of {len(passed)} cases are as they must be")
    return 0 if all(passed) and passed else 1


if __name__ == "__main__":
    sys.exit(main())
