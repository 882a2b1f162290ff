#!/usr/bin/env bash
# Checks the program on a machine with GPUs: gpu_check.sh [PART..]. Works in build-gpu/. Without arguments it runs all parts:
#   build  builds the program, benchmarks and GPU tests (EGT_PROGRAM_ONLY=1: only the program)
#   tests  runs the GPU tests
#   step   training step compared with its GEMMs alone and with PyTorch's step, alternately, on one GPU and on all. Batch 1024
#          and 8192. Ours: tf32, bf16, fp8, bf16 gradients. PyTorch: tf32, autocast and pure bf16; on one GPU also compiled
#   train  training step in the main job (--load train) compared with the same step alone, on one GPU
#   loadtest  command loadtest on one GPU, and its networks compared with PyTorch's, eager and compiled
#   selftest  injects every kind of fault that a detector must find, on every GPU
#   stall  on two GPUs or more: a stopped, killed or hung rank, a hung kernel, and a stall from which the run recovers
#   burn   the main job with default options on all GPUs for 60 s (EGT_BURN_SECONDS: another duration)
#   robotics  voxelization and sensor fusion compared with a copy of as many bytes, on one GPU
#   parts  every part of the load compared with the machine's limit (bench --ceilings), on all GPUs
#   links  all pairs compared with plain peer copies, all-reduce compared with nccl-tests (EGT_NCCL_TESTS: folder of its
#          programs), and two ranks that NCCL treats as two nodes
#   bench  scaling of training, voxelization and sensor fusion
#   parallel  tensor, pipeline, data and task parallel compared with each other, and with PyTorch's tensor parallel
#          (on exactly two GPUs also pipeline parallel)
#   verify the 30-second check
#   sanitize  compute-sanitizer's four tools over the contract tests of our kernels, on one GPU (GTEST_FILTER: other tests)
#   stop   every way to stop a run, with this machine's mpirun, on the host backend
# All parts run and print their tables even if others fail. Exit code 1 if any part failed, 3 without a working GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$PWD/build-gpu
targets=(extreme_gpu_trainer)
((${EGT_PROGRAM_ONLY-0})) || targets+=(egt_bench_train_step egt_bench_peer_copy egt_bench_robotics egt_contract_cuda
  egt_gpu_trainer egt_gpu_collectives egt_gpu_peers egt_failing_cuda egt_striking_cuda)
modes=tf32,bf16
batches=1024,8192
steps=20  # per timed block, of ours and of PyTorch
rounds=3

EGT_BURN_SECONDS=${EGT_BURN_SECONDS:-60}

say() { echo "gpu_check.sh: $*" >&2; }

# launch RANKS PROGRAM ARGUMENTS..: runs PROGRAM by mpirun with RANKS ranks, one per GPU, with a time limit.
launch() {
  local ranks=$1 as_root=()
  shift
  ((EUID != 0)) || as_root=(--allow-run-as-root)
  timeout --foreground "$((EGT_BURN_SECONDS + 300))" mpirun --quiet "${as_root[@]}" -np "$ranks" --bind-to none --oversubscribe "$@"
}

build() {
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DEGT_CUDA=ON -DEGT_TESTS=ON &&
    cmake --build "$folder" --parallel "$(nproc)" --target "${targets[@]}"
}

tests() {
  ctest --test-dir "$folder" -L gpu --output-on-failure --no-tests=error
}

our_step() {
  launch "$1" "$folder/egt_bench_train_step" --backend cuda --precisions "$modes,fp8" --batches "$batches" --steps "$steps" || return
  (($1 == 1)) || launch "$1" "$folder/egt_bench_train_step" --backend cuda --precisions bf16 --gradient-dtype bf16 \
    --batches "$batches" --steps "$steps"
}

torch_step() {
  local start=(python3) ranks=$1
  shift
  ((ranks == 1)) || start=(python3 -m torch.distributed.run --standalone --nproc-per-node "$ranks")
  timeout --foreground 300 "${start[@]}" tests/bench/train_step_torch.py --batches "$batches" --steps "$steps" "$@"
}

# step_table FILE: medians over the rounds of FILE's EGT and TORCH lines: our step time, and its ratios to the GEMMs alone and
# to PyTorch. PyTorch's pure bf16 all-reduces gradients in bf16, so on several GPUs it is compared with our bf16 gradients.
step_table() {
  python3 - "$1" <<'PYTHON'
import collections, re, statistics, sys

times = collections.defaultdict(list)
for line in open(sys.argv[1], encoding="utf-8"):
    if line.startswith(("EGT ", "TORCH ")):
        field = dict(re.findall(r"(\w+)=(\S+)", line))
        mode, how = field["mode"], field.get("how", "ours")
        case = int(field["ranks"]), int(field["batch_per_rank"])
        if mode == "pure_bf16" or field.get("gradients") == "bf16":
            mode, how = "bf16", f"{how} in bf16"
        times[mode, case, how].append(float(field["step_ms"]))
        if how == "ours":
            times[mode, case, "products"].append(float(field["products_ms"]))
median = {key: statistics.median(values) for key, values in times.items()}
row = "{:<5} {:>4} {:>6} {:>8} {:>10} {:>10} {:>12} {:>13}".format
print(row("mode", "GPUs", "batch", "our ms", "/ products", "/ PyTorch", "/ compiled", "/ pure bf16"))
for mode, case in sorted({key[:2] for key in median}, key=lambda key: (key[1][0], key[0], key[1][1])):
    of = lambda how: median.get((mode, case, how))
    ratio = lambda mine, other: f"{mine / other:.3f}" if mine and other else "-"
    ours = of("ours")
    print(row(mode, *case, f"{ours:.3f}" if ours else "-", ratio(ours, of("products")), ratio(ours, of("eager")), ratio(ours, of("compiled")),
              ratio(of("ours in bf16") if case[0] > 1 else ours, of("eager in bf16"))))
PYTHON
}

step() {
  local lines=$folder/step.txt failed=0 gpus round counts=(1)
  ((gpu_count == 1)) || counts+=("$gpu_count")
  local with_torch=1
  python3 -c 'import torch' 2>/dev/null || { with_torch=0 && say "python3 has no torch here: nothing to compare with"; }
  : >"$lines"
  for gpus in "${counts[@]}"; do
    for ((round = 0; round < rounds; ++round)); do
      our_step "$gpus" >>"$lines" || { failed=1 && say "step: ours failed on $gpus GPUs"; }
      ((with_torch == 0)) || torch_step "$gpus" --modes "$modes,pure_bf16" >>"$lines" || { failed=1 && say "step: PyTorch's failed on $gpus GPUs"; }
      ((with_torch == 0 || gpus > 1)) || torch_step 1 --modes "$modes" --compile >>"$lines" || { failed=1 && say "step: PyTorch's compiled one failed"; }
    done
  done
  step_table "$lines" || failed=1
  return "$failed"
}

# train_table FILE: step time alone (FILE's EGT lines, mean of before and after) and in the main job (results in BURN lines).
train_table() {
  python3 - "$1" <<'PYTHON'
import collections, json, re, statistics, sys

alone, inside = collections.defaultdict(list), {}
for line in open(sys.argv[1], encoding="utf-8"):
    field = dict(re.findall(r"(\w+)=(\S+)", line))
    if line.startswith("EGT "):
        alone[field["mode"], field["batch_per_rank"]].append(float(field["step_ms"]))
    elif line.startswith("BURN "):
        part = next(p for p in json.load(open(field["result"], encoding="utf-8"))["results"] if p["test_name"] == "train")
        inside[field["mode"], field["batch"]] = 1e3 * int(field["batch"]) / part["samples_per_second"]
print("{:<5} {:>6} {:>9} {:>9} {:>7}".format("mode", "batch", "alone ms", "burn ms", "ratio"))
for case, ms in inside.items():
    bare = statistics.mean(alone[case])
    print("{:<5} {:>6} {:>9.3f} {:>9.3f} {:>7.3f}".format(*case, bare, ms, ms / bare))
PYTHON
}

train() {
  local lines=$folder/train.txt failed=0 mode batch output
  : >"$lines"
  for mode in ${modes//,/ }; do
    for batch in ${batches//,/ }; do
      output=$folder/train-$mode-$batch-$(date -u +%Y%m%dT%H%M%SZ)
      local alone=("$folder/egt_bench_train_step" --backend cuda --precisions "$mode" --batches "$batch" --momentum 0.9)
      launch 1 "${alone[@]}" >>"$lines" || failed=1
      launch 1 "$folder/extreme_gpu_trainer" --load train --extreme-iterations 0 --precision "$mode" --batch "$batch" --duration 15s \
        --progress none --output "$output" || failed=1
      launch 1 "${alone[@]}" >>"$lines" || failed=1
      echo "BURN mode=$mode batch=$batch result=$output/result.json" >>"$lines"
    done
  done
  train_table "$lines" || failed=1
  return "$failed"
}

# loadtest_table RESULT TORCH: samples per second of each test, ours (RESULT) and PyTorch's (TORCH).
loadtest_table() {
  python3 - "$@" <<'PYTHON'
import json, re, sys

result = json.load(open(sys.argv[1], encoding="utf-8"))
torch = {}
for line in open(sys.argv[2], encoding="utf-8"):
    if line.startswith("TORCH "):
        field = dict(re.findall(r"(\w+)=(\S+)", line))
        torch[field["test"], field["how"]] = float(field["samples_per_second"])
row = "{:<22} {:>10} {:>12} {:>13} {:>13} {:>15}".format
print(row("test", "ours", "torch eager", "ours / eager", "torch compile", "ours / compile"))
for entry in result["results"]:
    ours = entry.get("throughput_samples_per_second")
    if ours is None:
        continue
    text = []
    for how in ("eager", "compile"):
        theirs = torch.get((entry["test_name"], how))
        text += [f"{theirs:.1f}", f"{ours / theirs:.3f}"] if theirs else ["-", "-"]
    print(row(entry["test_name"], f"{ours:.1f}", *text))
PYTHON
}

loadtest() {
  local directory failed=0
  directory=$folder/loadtest-$(date -u +%Y%m%dT%H%M%SZ)
  launch 1 "$folder/extreme_gpu_trainer" loadtest --num-epochs 1 --output "$directory" || failed=1
  : >"$folder/loadtest.txt"
  if python3 -c 'import torch' 2>/dev/null; then
    timeout --foreground 300 python3 tests/bench/load_test_torch.py >>"$folder/loadtest.txt" || { failed=1 && say "loadtest: PyTorch's failed"; }
  else
    say "python3 has no torch here: nothing to compare with"
  fi
  loadtest_table "$directory/result.json" "$folder/loadtest.txt" || failed=1
  return "$failed"
}

# burn_table FILE: verdict of the result.json FILE, and one row of metrics per rank.
burn_table() {
  python3 - "$1" <<'PYTHON'
import json, sys

result = json.load(open(sys.argv[1], encoding="utf-8"))
print(f"verdict {result['verdict']} (exit code {result['exit_code']}), {len(result['faults'])} faults")
for reason in result["reasons"]:
    print(f"  {reason}")


def figure(source, *path):
    for name in path:
        source = (source or {}).get(name)
    return "-" if source is None else f"{source:.4g}"


row = "{:>4} {:>10} {:>10} {:>8} {:>8} {:>8} {:>11} {:>12} {:>8} {:>9}".format
print(row("rank", "util min %", "util avg %", "avg W", "limit W", "filled", "min. visits", "full load s", "replays", "checks %"))
for rank in (entry["rank"] for entry in result["ranks"]):
    telemetry = result["telemetry"].get(str(rank)) or {}
    memory = next((p for p in result["results"] if (p["test_name"], p["rank"]) == ("memory", rank)), {})
    train = next((p for p in result["results"] if (p["test_name"], p["rank"]) == ("train", rank)), {})
    share = train.get("checks_fraction")
    print(row(rank, figure(telemetry, "gpu_utilization_percent", "min"), figure(telemetry, "gpu_utilization_percent", "avg"),
              figure(telemetry, "power_w", "avg"), figure(telemetry, "power_limit_w"), figure(memory, "filled_fraction"),
              figure(memory, "minimum_visits"), figure(telemetry, "time_to_full_load_s"),
              figure(train, "replays"), "-" if share is None else f"{100 * share:.3f}"))
loads = [p for p in result["results"] if p["test_name"] == "load"]
names = [name for name in (loads[0] if loads else {}) if name.startswith("share_")]
for load in loads:
    shares = ", ".join(f"{name.removeprefix('share_')} {figure(load, name)}" for name in names)
    print(f"rank {load['rank']}: {figure(load, 'power_w_mean')} W on average, {figure(load, 'power_ratio')} of the limit, "
          f"work index {figure(load, 'work_index')}: {shares}")
PYTHON
}

selftest() {
  launch "$gpu_count" "$folder/extreme_gpu_trainer" selftest --output "$folder/selftest-$(date -u +%Y%m%dT%H%M%SZ)"
}

# stall_row DIRECTORY SPEC SECONDS: what the run reported for the injection SPEC. Fails if the report is wrong.
stall_row() {
  python3 - "$@" <<'PYTHON'
import json, sys

directory, spec, seconds = sys.argv[1:]
result = json.load(open(f"{directory}/result.json", encoding="utf-8"))
rank = int(spec.split("rank=")[1].split(",")[0])
events = result["restarts"] if "ms=" in spec else result["losses"]
digests = {part["weight_digest"] for part in result["results"] if part["test_name"] == "train"}
right = [event["rank"] for event in events] == [rank]
right = right and (result["verdict"] == "pass" and len(digests) == 1 if "ms=" in spec else result["exit_code"] == 4)
for event in events or [{}]:
    print(f"{spec:<34} {result['verdict']:<11} {event.get('how', 'restart'):<9} rank {event.get('rank')} {event.get('phase', '-'):<20} "
          f"step {event.get('step', event.get('resumed_step'))} {seconds} s {'right' if right else 'WRONG'}")
sys.exit(not right)
PYTHON
}

stall() {
  ((gpu_count > 1)) || { say "stall: one GPU has no peers to wait for it" && return 0; }
  local rank=$((gpu_count - 1)) spec output begun failed=0
  for spec in "stop:rank=$rank,step=60" "kill:rank=$rank,step=60" "hang:rank=0,step=60" "hang:rank=$rank,step=60,layer=1" \
    "hang:rank=$rank,step=60,ms=6000"; do
    output=$folder/stall-${spec//[:=,]/_}-$(date -u +%Y%m%dT%H%M%SZ)
    begun=$SECONDS
    local options=(--duration 60s --max-restarts 0)
    [[ $spec != *ms=* ]] || options=(--steps 600)
    launch "$gpu_count" "$folder/extreme_gpu_trainer" "${options[@]}" --memory 0 --no-io --collective-timeout 3s --progress none \
      --inject "$spec" --output "$output" >"$output.log" 2>&1 || true
    stall_row "$output" "$spec" $((SECONDS - begun)) || { failed=1 && tail -n 20 "$output.log"; }
  done
  ! pgrep -f "$folder/extreme_gpu_trainer" || { failed=1 && say "stall: processes are left"; }
  return "$failed"
}

burn() {
  local output failed=0
  output=$folder/burn-$(date -u +%Y%m%dT%H%M%SZ)
  launch "$gpu_count" "$folder/extreme_gpu_trainer" --duration "${EGT_BURN_SECONDS}s" --output "$output" || failed=1
  if [[ -e $output/result.json ]]; then
    burn_table "$output/result.json" || failed=1
  else
    failed=1 && say "burn: no result was written"
  fi
  return "$failed"
}

parts() {
  launch "$gpu_count" "$folder/extreme_gpu_trainer" bench --ceilings --precision bf16
}

robotics() {
  CUDA_VISIBLE_DEVICES=0 timeout --foreground 120 "$folder/egt_bench_robotics"
}

# links_table RESULT PEERS NCCL: our bandwidths (links' RESULT) compared with plain peer copies (PEERS) and nccl-tests (NCCL).
links_table() {
  python3 - "$@" <<'PYTHON'
import json, re, sys

result = json.load(open(sys.argv[1], encoding="utf-8"))
print(f"verdict {result['verdict']} (exit code {result['exit_code']})")
bare = {}
for line in open(sys.argv[2], encoding="utf-8"):
    if line.startswith("PEER "):
        field = dict(re.findall(r"(\w+)=(\S+)", line))
        bare[int(field["from"]), int(field["to"]), int(field["ways"])] = float(field["gb_per_second"])
worst = None
print("{:<8} {:<14} {:>9} {:>9} {:>7}".format("pair", "what", "ours", "bare", "ratio"))
for pair in (p for p in result["results"] if p.get("method") == "peer copies" and p["success"]):
    a, b = pair["from"], pair["to"]
    ways = [(f"{a} -> {b}", pair["one_way"][f"{a}->{b}"], bare.get((a, b, 1))),
            (f"{b} -> {a}", pair["one_way"][f"{b}->{a}"], bare.get((b, a, 1))),
            (f"{a} <> {b}", pair["both_ways"], bare.get((a, b, 2)))]
    for name, ours, other in ways:
        rate = ours["gb_per_second"]
        ratio = rate / other if other else None
        worst = min(worst or 9, ratio or 9)
        print("{:<8} {:<14} {:>9.1f} {:>9} {:>7}".format(name, "peer copy", rate, f"{other:.1f}" if other else "-", f"{ratio:.3f}" if ratio else "-"))
print(f"lowest ratio of a pair: {worst and round(worst, 4)}")
nccl = [line.split() for line in open(sys.argv[3], encoding="utf-8") if re.match(r"\s+\d+\s+\d+\s+float", line)]
ours = {e["size_bytes"]: e for e in result["results"] if e["test_name"] == "all-reduce"}
for columns in nccl:
    size, in_place = int(columns[0]), float(columns[11])
    if size in ours:
        rate = ours[size]["bus_gb_per_second"]
        print(f"all-reduce of {size} bytes, bus bandwidth: ours {rate:.1f}, nccl-tests {in_place:.1f} GB/s, ratio {rate / in_place:.4f}")
PYTHON
}

links() {
  ((gpu_count > 1)) || { say "links: one GPU has no pairs" && return 0; }
  local output failed=0 nccl=$folder/nccl.txt
  output=$folder/links-$(date -u +%Y%m%dT%H%M%SZ)
  "$folder/egt_bench_peer_copy" >"$folder/peers.txt" || failed=1
  launch "$gpu_count" "$folder/extreme_gpu_trainer" links --size 1GB --output "$output" || failed=1
  : >"$nccl"
  if [[ -n ${EGT_NCCL_TESTS-} ]]; then
    "$EGT_NCCL_TESTS/all_reduce_perf" -b 1000000000 -e 1000000000 -g "$gpu_count" -n 20 -c 0 | tee "$nccl"
  else
    say "links: EGT_NCCL_TESTS is not set; all-reduce is not compared"
  fi
  links_table "$output/result.json" "$folder/peers.txt" "$nccl" || failed=1
  # With its own NCCL_HOSTID, each rank is a separate node for NCCL, which then uses the network.
  launch 2 bash -c 'NCCL_HOSTID=host$OMPI_COMM_WORLD_RANK exec "$@"' bash "$folder/extreme_gpu_trainer" links --size 64MB \
    --output "$output-network" || (($? == 5)) || failed=1
  return "$failed"
}

bench() {
  launch "$gpu_count" "$folder/extreme_gpu_trainer" bench --output "$folder/bench-$(date -u +%Y%m%dT%H%M%SZ)"
}

parallel() {
  ((gpu_count > 1)) || { say "parallel: one GPU divides nothing" && return 0; }
  local failed=0 mode batch
  launch "$gpu_count" "$folder/extreme_gpu_trainer" bench --parallel task --workload voxelize,multimodal \
    --output "$folder/task-$(date -u +%Y%m%dT%H%M%SZ)" || failed=1
  for mode in ${modes//,/ }; do
    for batch in ${batches//,/ }; do
      launch "$gpu_count" "$folder/extreme_gpu_trainer" bench --parallel all --workload mlp --mode collective --precision "$mode" \
        --batch "$batch" --output "$folder/parallel-$mode-$batch-$(date -u +%Y%m%dT%H%M%SZ)" || failed=1
    done
  done
  if python3 -c 'import torch' 2>/dev/null; then
    timeout --foreground 300 python3 -m torch.distributed.run --standalone --nproc-per-node "$gpu_count" tests/bench/parallel_torch.py \
      --modes "$modes" --batches "$batches" || failed=1
  else
    say "python3 has no torch here: nothing to compare with"
  fi
  return "$failed"
}

verify() {
  launch "$gpu_count" "$folder/extreme_gpu_trainer" verify --output "$folder/verify-$(date -u +%Y%m%dT%H%M%SZ)"
}

# The tools run concurrently. Their own memory changes what is free, which the one test left out accounts for. initcheck has
# to see what cuBLAS writes, so it has no filter.
sanitize() {
  local tool code=0 ours=(--kernel-regex kns=egt)
  local -A jobs=()
  for tool in memcheck racecheck synccheck initcheck; do
    [[ $tool != initcheck ]] || ours=()
    GTEST_FILTER=${GTEST_FILTER:--*AllocationsAreAlignedAndAccountedFor*} timeout --foreground 3000 compute-sanitizer --tool "$tool" \
      "${ours[@]}" --report-api-errors no --error-exitcode 9 "$folder/egt_contract_cuda" --gtest_brief=1 >"$folder/$tool.log" 2>&1 &
    jobs[$tool]=$!
  done
  for tool in "${!jobs[@]}"; do
    wait "${jobs[$tool]}" || { code=1 && tail -n 40 "$folder/$tool.log"; }
    echo "$tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|PASSED|FAILED' "$folder/$tool.log" | tail -n 3 | xargs)"
  done
  return "$code"
}

stop() {
  python3 tests/e2e/signal_test.py --all --program "$folder/extreme_gpu_trainer" --run-script scripts/run.sh
}

parts=("$@")
all_parts=(build tests step train loadtest selftest stall burn robotics parts links bench parallel verify sanitize stop)
(($#)) || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] || {
    say "unknown part $part; allowed: ${all_parts[*]}"
    exit 2
  }
done

nvidia-smi --query-gpu=index,name,driver_version,memory.total,power.limit --format=csv || {
  say "no NVIDIA GPU answers on this machine (nvidia-smi); nothing was checked"
  exit 3
}
gpu_count=$(nvidia-smi -L | grep -c '^GPU ')

failed=()
for part in "${parts[@]}"; do
  echo "=== $part"
  "$part" || failed+=("$part")
done
if ((${#failed[@]})); then
  say "failed: ${failed[*]}"
  exit 1
fi
