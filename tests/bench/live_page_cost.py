#!/usr/bin/env python3
"""Cost of clients of a live page (--serve): step time with and without clients, alternating within one run.

  tests/bench/live_page_cost.py build/extreme_gpu_trainer [--ranks 2] [--clients 50] [--seconds 60] [-- more options of burn]

Each client polls every 2 seconds, as the page does. One more client never reads its response. Clients run on the same host,
hence at low priority. Phases with and without clients alternate every 5 seconds until both total --seconds. Prints the ratio
of the step times with and without clients, the ratio of the two halves without clients (the noise), the number of responses,
and the share of a core that the serving threads used. EGT_MPIRUN sets mpirun ("mpirun --bind-to none --oversubscribe").
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

MPIRUN = shlex.split(os.environ.get("EGT_MPIRUN", "mpirun --bind-to none --oversubscribe"))
TURN_S, POLL_S = 5, 2


def started(options, folder):
    """The running process and the address of its page."""
    log = pathlib.Path(folder, "messages")
    command = [*MPIRUN, "-np", str(options.ranks), options.program, "--duration", f"{2 * options.seconds + 60}s", "--no-io", "--serve", "0",
               "--output", f"{folder}/run", *options.more]
    with log.open("w") as messages:
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages)
    while run.poll() is None:
        if found := re.search(r"http://\S+/", log.read_text()):
            return run, found.group(0)
        time.sleep(0.1)
    raise SystemExit(f"{shlex.join(command)} ended with exit code {run.returncode}: {log.read_text()}")


def poll(url, end, answers):
    os.nice(19)  # applies to this thread
    paths, ask = ("api/page", "api/lines?from=30&seconds=1"), 0
    while not end.is_set():
        try:
            urllib.request.urlopen(url + paths[ask % 2], timeout=20).read()
            answers.append(True)
        except OSError:
            answers.append(False)
        ask += 1
        end.wait(POLL_S / 2)


def turn_with_clients(url, count, answers):
    end = threading.Event()
    threads = [threading.Thread(target=poll, args=(url, end, answers)) for _ in range(count)]
    with socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(url).port)) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for thread in threads:
            thread.start()
        time.sleep(TURN_S)
        end.set()
    for thread in threads:
        thread.join()


def journal(folder):
    return [json.loads(line) for line in pathlib.Path(folder, "run/journal.rank0.jsonl").read_text().splitlines()]


def serving_seconds(folder):
    """Processor time of the threads of rank 0 that serve clients, in seconds."""
    process = next(record["body"]["process"] for record in journal(folder) if record["kind"] == "start")
    threads = [task.read_text() for task in pathlib.Path(f"/proc/{process}/task").glob("*/stat")]
    fields = [thread.rsplit(")", 1)[1].split() for thread in threads if "(live page)" in thread]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def steps(records):
    """(time, steps) as reported by rank 0."""
    return [(record["time"], record["body"]["steps"]) for record in records if record["kind"] == "progress"]


def step_ms(told, turns):
    seconds = count = 0
    for begin, end in turns:
        within = [one for one in told if begin <= one[0] <= end]
        if len(within) > 1:
            seconds, count = seconds + within[-1][0] - within[0][0], count + within[-1][1] - within[0][1]
    return 1e3 * seconds / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("more", nargs="*", default=[])
    options = parser.parse_args()
    alone, served, answers = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        run, url = started(options, folder)
        time.sleep(10)  # warms the caches
        before, begun = serving_seconds(folder), time.time()
        for _ in range(round(options.seconds / TURN_S)):
            for turns, work in ((alone, lambda: time.sleep(TURN_S)), (served, lambda: turn_with_clients(url, options.clients, answers))):
                begin = time.time()
                work()
                turns.append((begin, time.time()))
        core = 2 * (serving_seconds(folder) - before) / (time.time() - begun)  # clients were active half of the time
        pathlib.Path(folder, "run/stop").touch()
        run.wait(60)
        told = steps(journal(folder))
    base = step_ms(told, alone)
    print(f"step without clients: {base:.3f} ms, with {options.clients} and one that never reads: {step_ms(told, served):.3f} ms")
    print(f"ratio with/without: {step_ms(told, served) / base:.3f}; noise, odd turns without/even turns without: {step_ms(told, alone[::2]) / step_ms(told, alone[1::2]):.3f}")
    print(f"answers: {answers.count(True)}, refused or failed: {answers.count(False)}; of a core to serve them: {core:.3f}; exit code {run.returncode}")


if __name__ == "__main__":
    main()
