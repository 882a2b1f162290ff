#!/usr/bin/env python3
"""How measured times grow: training step against layers, width, batch and ranks; memory pass against memory size; file
cycle against file size.

  tests/bench/cost_of_growth.py build/extreme_gpu_trainer [--ranks 1,2] [--io-dir DIR] [--width 512] [--seconds 4]

Prints one row per dimension: the measured times, their log-log slope (least squares) next to the slope of the work
(GEMMs grow with the square of the width), and the reason for a difference. The reason is the fit t = fixed + unit *
work, with the fixed part and the error of the fit. If this fit is poor, the rates at both ends are printed. EGT_MPIRUN
sets the mpirun command ("mpirun --bind-to none --oversubscribe").
"""
import argparse
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

MPIRUN = shlex.split(os.environ.get("EGT_MPIRUN", "mpirun --bind-to none --oversubscribe"))
TIMEOUT_S = 900


def parts(program, ranks, *options):
    """The entries of rank 0, by their names, of a run that passed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*(MPIRUN + ["-np", str(ranks)] if ranks > 1 else []), program, *options, "--output", f"{folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)} ended with exit code {done.returncode}: {done.stderr}")
        result = json.loads(pathlib.Path(folder, "run/result.json").read_text())
    return {part["test_name"]: part for part in result["results"] if part["rank"] == 0}


def step_ms(options, ranks=1, layers=4, width=None, batch=None):
    neurons = ",".join([str(width or options.width)] * (layers + 1))
    found = parts(options.program, ranks, "--load", "train", "--precision", options.precision, "--layers", neurons,
                  "--batch", str(batch or options.batch), "--duration", f"{options.seconds}s")
    return found["train"]["step_ms"]["p50"]


def visit_ms(options, megabytes):
    small = ["--layers", "16,16", "--batch", "16", "--extreme-iterations", "0", "--no-io", "--precision", options.precision]
    found = parts(options.program, 1, *small, "--memory", f"{megabytes}MB", "--duration", f"{2 * options.seconds}s")["memory"]
    return found["filled_bytes"] / found["memory_gb_per_s"] * 1e-6


def cycle_ms(options, megabytes):
    small = ["--layers", "16,16", "--batch", "16", "--extreme-iterations", "0", "--memory", "0", "--precision", options.precision]
    found = parts(options.program, 1, *small, "--io-dir", options.io_dir, "--io-size", f"{megabytes}MB", "--io-every", "1",
                  "--io-budget", "unlimited", "--duration", f"{2 * options.seconds}s")["io"]
    return found["file_bytes"] * (1 / found["write_gb_per_s"] + 1 / found["read_gb_per_s"]) * 1e-6


def line(xs, ys):
    """Intercept and slope of a least-squares line."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    return mean_y - slope * mean_x, slope


def affine(work, ms):
    """Fixed part and unit of ms = fixed + unit * work. Minimizes relative errors: fits 1 over work / ms and 1 / ms."""
    a11 = sum(1 / t**2 for t in ms)
    a12 = sum(w / t**2 for w, t in zip(work, ms))
    a22 = sum((w / t) ** 2 for w, t in zip(work, ms))
    b1, b2 = sum(1 / t for t in ms), sum(w / t for w, t in zip(work, ms))
    determinant = a11 * a22 - a12**2
    return (a22 * b1 - a12 * b2) / determinant, (a11 * b2 - a12 * b1) / determinant


def why(work, ms, slope, expected):
    if abs(slope - expected) < 0.03:
        return "as the work"
    if expected == 0:
        return f"each doubling adds {100 * (2**slope - 1):.0f} %: sums over ranks, and what ranks share of the machine"
    fixed, unit = affine(work, ms)
    off = max(abs((fixed + unit * w) / t - 1) for w, t in zip(work, ms))
    if fixed > 0 and unit > 0 and off < 0.15:
        return f"{fixed:.3g} ms do not grow ({100 * fixed / ms[0]:.0f} % of the smallest); the fit is off by {100 * off:.0f} % at most"
    rate = [w / t for w, t in zip(work, ms)]
    return f"its rate changes by a factor of {rate[-1] / rate[0]:.2f} from end to end"


def row(name, values, expected, measure):
    ms = [measure(value) for value in values]
    _, slope = line([math.log(value) for value in values], [math.log(t) for t in ms])
    times = ", ".join(f"{value}: {t:.4g}" for value, t in zip(values, ms))
    print(f"| {name} | {times} | {slope:.2f} | {expected} | {why([value**expected for value in values], ms, slope, expected)} |", flush=True)


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ranks", type=numbers, default=[1, 2], help="1,2")
    parser.add_argument("--io-dir", default=".")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--width", type=int, default=512, help="neurons of each layer (512)")
    parser.add_argument("--batch", type=int, default=128, help="128")
    parser.add_argument("--memory", type=numbers, default=[64, 128, 256, 512, 1024], help="MB")
    parser.add_argument("--files", type=numbers, default=[64, 128, 256, 512], help="MB")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement (4)")
    options = parser.parse_args()
    print("| against | milliseconds | slope | of the work | why |\n|---|---|---|---|---|", flush=True)
    row("layers", [2, 4, 8, 16], 1, lambda layers: step_ms(options, layers=layers))
    row("width", [options.width // 2, options.width, 2 * options.width, 4 * options.width], 2, lambda width: step_ms(options, width=width))
    row("batch a rank", [options.batch // 2, options.batch, 2 * options.batch, 4 * options.batch], 1, lambda batch: step_ms(options, batch=batch))
    if len(options.ranks) > 1:
        row("ranks, a batch each", options.ranks, 0, lambda ranks: step_ms(options, ranks=ranks))
    row("memory, MB, a visit to all", options.memory, 1, lambda size: visit_ms(options, size))
    row("files, MB, a cycle", options.files, 1, lambda size: cycle_ms(options, size))


if __name__ == "__main__":
    sys.exit(main())
