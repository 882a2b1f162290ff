#!/usr/bin/env python3
"""File cycles of this program compared with fio, alternating, with the same pattern in the same directory.

  tests/bench/file_cycles_fio.py build/extreme_gpu_trainer DIR [--size 1000] [--seconds 10] [--rounds 3]

A cycle writes two files of half the size each, in chunks of 16 MiB by direct I/O, and reads each back after its fsync.
This program verifies every byte on the device. fio's plain cycle checks nothing; its verified cycle does
(--verify=crc32c). Prints GB/s (bytes written and read per time of whole cycles) and the ratio to fio.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CHUNK = 16 << 20
BLOCK = 4096
TIMEOUT_S = 600


def ours(program, directory, size, seconds):
    with tempfile.TemporaryDirectory() as runs:
        done = subprocess.run([program, "--duration", f"{seconds}s", "--layers", "16,16", "--batch", "1", "--extreme-iterations", "0",
                               "--memory", "0", "--io-dir", directory, "--io-size", f"{size // 10**6}MB", "--io-every", "1", "--io-budget",
                               "unlimited", "--output", f"{runs}/run"], capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise SystemExit(f"the burn ended with exit code {done.returncode}: {done.stderr}")
        result = json.loads(pathlib.Path(runs, "run/result.json").read_text())
    io = next(part for part in result["results"] if part["test_name"] == "io")
    if not io["direct_io"]:
        raise SystemExit(f"{directory} takes no direct I/O: use another directory")
    write, read = io["write_gb_per_s"], io["read_gb_per_s"]
    return 2 / (1 / write + 1 / read)


def fio(directory, size, seconds, verify):
    """Runs whole cycles until the time is over."""
    half = size // 2 // CHUNK * CHUNK
    moved, spent = 0, 0.0
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        while spent < seconds:
            for file in ("a", "b"):
                for kind in ("write", "read"):
                    options = ["--name=cycle", f"--filename={folder}/{file}", f"--rw={kind}", f"--bs={CHUNK}", f"--size={half}",
                               "--direct=1", "--ioengine=psync", "--end_fsync=1", "--output-format=json"]
                    if verify:
                        options += ["--verify=crc32c", f"--verify_interval={BLOCK}", "--verify_state_save=0", "--do_verify=" + ("1" if kind == "read" else "0")]
                    done = subprocess.run(["fio", *options], capture_output=True, text=True, timeout=TIMEOUT_S)
                    if done.returncode != 0:
                        raise SystemExit(f"fio failed: {done.stderr}")
                    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
                    spent += job["job_runtime"] / 1e3
                    moved += job[kind]["io_bytes"]
    return moved / spent * 1e-9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--size", type=int, default=1000, help="MB, of both files (1000)")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement (10)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    size = options.size * 10**6
    ratios = {"fio": [], "fio, verified": []}
    for round_number in range(1, options.rounds + 1):
        own = ours(options.program, options.directory, size, options.seconds)
        line = f"round {round_number}: ours {own:.2f} GB/s"
        for name, verify in (("fio", False), ("fio, verified", True)):
            peer = fio(options.directory, size, options.seconds, verify)
            ratios[name].append(own / peer)
            line += f"; {name} {peer:.2f}"
        print(line, flush=True)
    for name, all_rounds in ratios.items():
        print(f"ours / {name}: {statistics.median(all_rounds):.3f} ({min(all_rounds):.3f} to {max(all_rounds):.3f})")


if __name__ == "__main__":
    main()
