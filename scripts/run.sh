#!/usr/bin/env bash
# Builds and runs the program with one rank per GPU: run.sh [COMMAND] [options]. All arguments go to the program.
# Without a GPU it uses the host backend with up to 2 ranks. EGT_RANKS=N overrides the number of ranks.
#
# Exit code: the program's, or 3 if the build or mpirun fails before the run begins. If the run could not write its
# result, `report` judges the journals and provides the exit code, but 4 replaces 0 if mpirun failed.
#
# Signals: Ctrl-C and SIGTERM stop the run cleanly (exit code 6). Another Ctrl-C after 5 s terminates it immediately.
set -euo pipefail
trap 'echo "run.sh: stopped before the run began" >&2; exit 6' INT TERM QUIT HUP USR1 USR2

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=$root/build/extreme_gpu_trainer

# option_value NAME ARGUMENTS..: prints the value of the last `NAME value` or `NAME=value` in ARGUMENTS, or nothing.
option_value() {
  local name=$1 value=
  shift
  while (($#)); do
    case $1 in
      "$name") value=${2-} ;;
      "$name"=*) value=${1#*=} ;;
    esac
    shift
  done
  echo "$value"
}

count_list() { awk -F, '{ print NF }' <<<"$1"; }

gpu_count() {
  # A program built without CUDA cannot use GPUs.
  ldd "$program" | grep -q libcublasLt || { echo 0; return; }
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    case $CUDA_VISIBLE_DEVICES in
      '' | -1* | NoDevFiles) echo 0 ;;
      *) count_list "$CUDA_VISIBLE_DEVICES" ;;
    esac
  else
    { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU ' || true
  fi
}

rank_count() {
  local devices gpus cores
  devices=$(option_value --devices "$@")
  if [[ -n ${EGT_RANKS-} ]]; then echo "$EGT_RANKS" && return; fi
  if [[ -n $devices ]]; then count_list "$devices" && return; fi
  gpus=0
  [[ $(option_value --backend "$@") == host ]] || gpus=$(gpu_count)
  if ((gpus > 0)); then echo "$gpus" && return; fi
  cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
  echo $((cores < 2 ? cores : 2))
}

[[ $(option_value --backend "$@") != host ]] || export EGT_INSTALL_CUDA=0
"$root/scripts/setup.sh" || exit 3
"$root/scripts/build.sh" || exit 3
# These commands need no ranks. The exit code of `report` is another run's verdict, so it is returned unchanged.
case ${1-} in report | compare) exec "$program" "$@" ;; esac

ranks=$(rank_count "$@")
if ! [[ $ranks =~ ^[1-9][0-9]*$ ]]; then
  echo "run.sh: EGT_RANKS=$ranks is not a number of ranks: a whole number above 0 is allowed" >&2
  exit 2
fi
# Without --oversubscribe mpirun refuses more ranks than physical cores. --quiet suppresses its messages about nonzero
# exit codes, which are the program's verdicts.
launch=(mpirun --quiet -np "$ranks" --bind-to none --oversubscribe)
((EUID != 0)) || launch+=(--allow-run-as-root)

# On SIGINT and SIGTERM mpirun kills the ranks after one second and exits with 1. Whether it forwards other signals
# depends on its version. So mpirun runs in its own session, which the terminal's Ctrl-C does not reach. To stop the
# run, this script sends SIGUSR1 to each rank repeatedly until mpirun has exited.
mpirun=
asked=
last_seen= # when a rank last listened, after the first Ctrl-C
ask_period=0.5
patience=5 # seconds after the first Ctrl-C before another one terminates mpirun

# Prints the process IDs of the ranks that catch SIGUSR1 (signal 10). Other ranks are still starting, and the signal
# would kill them.
listening_ranks() {
  local process stat session key mask
  for process in /proc/[0-9]*; do
    [[ $process/exe -ef $program ]] || continue
    read -r stat 2>/dev/null <"$process/stat" || continue
    read -r _ _ _ session _ <<<"${stat##*)}"
    [[ $session == "$mpirun" ]] || continue
    while read -r key mask; do
      [[ $key != SigCgt: ]] || ((!(0x$mask >> 9 & 1))) || echo "${process#/proc/}"
    done 2>/dev/null <"$process/status" || true
  done
}

# Sends one stop request. Runs in this shell: a signal may reach all processes of the group, a helper of this script, too.
ask_ranks() {
  local rank ranks
  ranks=$(listening_ranks) || true  # a signal to the group ends it
  for rank in $ranks; do kill -USR1 "$rank" 2>/dev/null || true; done
  if [[ -n $ranks ]]; then last_seen=$SECONDS; fi
  # mpirun may hang before its ranks exist or after their end. SIGTERM during its own end crashes it.
  if [[ -z $last_seen ]] && ((SECONDS - asked >= patience)); then kill -TERM "$mpirun" 2>/dev/null || true; fi
  if ((SECONDS - ${last_seen:-$asked} >= 6 * patience)); then kill -KILL "$mpirun" 2>/dev/null || true; fi
}

# shellcheck disable=SC2317  # called by the trap
relay_stop() {
  interrupted=1
  if [[ -z $asked ]]; then
    asked=$SECONDS
    # A terminal stopped by Ctrl-S would block this script.
    [[ -z $mpirun ]] || timeout --foreground 1 echo "run.sh: stopping the run; another Ctrl-C after $patience s aborts it" >&2 &
  elif [[ -n $mpirun ]] && ((SECONDS - asked >= patience)); then
    kill -TERM "$mpirun" 2>/dev/null || true
  fi
}

default_parent=extreme_gpu_trainer_runs
EGT_RUN_ID=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
export EGT_RUN_ID
# Prints this run's default directory, found by its id because other runs may begin in the same folder.
own_default() {
  local one
  for one in "$default_parent"/*-"$EGT_RUN_ID"*/; do
    if [[ -d $one ]]; then echo "${one%/}"; fi
  done
}

# Prints the run directory given by the arguments or the config file, or nothing.
named_directory() {
  local directory
  directory=$(option_value --output "$@")
  [[ -n $directory ]] || directory=$(option_value --resume "$@")
  [[ -n $directory ]] || directory=$("$program" "$@" --print-config 2>/dev/null | sed -n "s/^output = \([\"']\)\(.*\)\1\$/\2/p")
  [[ $directory == *.json ]] || echo "${directory%/}" # a .json path is loadtest's result file
}
journals_in() { [[ -z $1 ]] || stat -c '%n %s %y' "$1"/journal.rank* 2>/dev/null || true; }
# Whether a directory's journals belong to another run, such as one with the same --output. A resumed run keeps its first id.
is_of_another_run() {
  grep -ho '"run_id":"[^"]*"' "$1"/journal.rank* 2>/dev/null | grep -qv "\"$EGT_RUN_ID\"" && [[ -z $(option_value --resume "${@:2}") ]]
}
named=$(named_directory "$@")
earlier=$(journals_in "$named")

# Prints the directory of the run that has just ended, or nothing if none began. An earlier run's journals do not count.
run_directory() {
  local directory=$named
  if [[ -z $directory ]]; then
    directory=$(own_default)
    [[ -n $directory ]] || return 0
  fi
  directory=${directory%/}
  if [[ $(journals_in "$directory") != "$earlier" ]] && ! is_of_another_run "$directory" "$@"; then echo "$directory"; fi
}

trap relay_stop INT TERM QUIT HUP USR1 USR2
setsid "${launch[@]}" "$program" "$@" <&0 &
mpirun=$!

# A trap interrupts `wait`, so repeat it until it returns the exit code of mpirun.
interrupted=1
while ((interrupted)); do
  interrupted=0
  while [[ -n $asked ]] && kill -0 "$mpirun" 2>/dev/null; do
    ask_ranks
    sleep "$ask_period" || true
  done
  code=0
  wait "$mpirun" 2>/dev/null || code=$?
done
# Prints the exit code in a directory's result.json, or nothing if there is none.
result_code() { sed -n 's/^  "exit_code": \([0-9]*\),\{0,1\}$/\1/p' "$1/result.json" 2>/dev/null || true; }

# Whether the arguments start a run, which creates a directory.
runs() {
  local previous=
  for word; do
    [[ $word != devices || $previous == --* ]] || return 1
    previous=$word
  done
  [[ " $* " != *" --"@(help|version|print-config)" "* && ${1-} != @(help|version) ]]
}
# A run refused with code 2 or 3 has no directory. Code 1 can also be mpirun's own, after SIGTERM.
directory=$(run_directory "$@")
if [[ -n $directory && -z $asked ]] && ((code > 6)); then
  echo "run.sh: mpirun ended with code $code, none of the program's: a rank was lost." \
    "To read mpirun's messages, run: ${launch[*]/--quiet/} $program $*" >&2
fi
# --resume of a complete run starts nothing and returns the verdict again.
if [[ -z $directory && -n $(option_value --resume "$@") && $(result_code "$named") == "$code" ]]; then exit "$code"; fi
if [[ -z $directory ]] && ((code == 1 || code > 6)); then
  # The program exits with 1 only if a run detected a fault. No run began, so the code is mpirun's.
  if [[ -n $asked ]]; then exit 6; fi
  echo "run.sh: mpirun failed with code $code before the run began; its messages are above" >&2
  exit 3
fi
if [[ -z $directory && -z $asked && $code == 0 ]] && runs "$@"; then
  echo "run.sh: mpirun ended with code 0, but no run began" >&2
  exit 3
fi
# The run has written its verdict; mpirun may still have crashed while it ended.
if [[ -n $directory && -n $asked && $(result_code "$directory") == 6 ]]; then exit 6; fi
if [[ -n $directory && $(result_code "$directory") != "$code" ]]; then
  # If mpirun was killed, its ranks exit by themselves and lock their journals until then. Wait up to 5 s for that.
  for ((i = 0; i < 50; ++i)); do
    [[ -n $(listening_ranks) ]] || break
    sleep 0.1
  done
  echo "run.sh: judging what the journals in $directory hold" >&2
  launcher_code=$code
  code=0
  "$program" report "$directory" || code=$?
  # A rank that crashes at exit may have written a complete journal before. A stop request that comes so late is no error.
  if [[ $code == 0 && $launcher_code != 0 ]] && { [[ -z $asked ]] || ((launcher_code > 6)); }; then
    echo "run.sh: mpirun ended with code $launcher_code, but the journals say pass: incomplete (exit code 4)" >&2
    code=4
  fi
fi
exit "$code"
