#!/usr/bin/env bash
# Runs the program on each of several hosts, by ssh: deploy.sh --hosts FILE [options] [-- COMMAND options..]
# Brings it there, one rank a GPU (without one: up to 2), gathers results, journals and what was printed in a directory
# here, and compares the results. On the hosts all of it is in one temporary directory, which is removed.
# The exit code is the first of 1, 4, 3, 2, 5, 6 that a host ended with, where 3 is also a host that cannot; where all
# passed, that of `compare`.
# Ctrl-C stops all runs cleanly.
set -euo pipefail

usage='deploy.sh --hosts FILE [--key FILE] [--package PATH] [--ranks N] [--output DIR] [-o SSH_OPTION].. [-- COMMAND options..]
  --hosts FILE    lines of [USER@]HOST[:PORT], # for comments; or cluster.json: strings, or objects with ip, address,
                  host, hostname or name, and user, port
  --key FILE      of ssh; without it ssh decides
  --package PATH  a .deb package or a directory with the program; default: build/extreme_gpu_trainer, with those of its
                  libraries that a host has not. Open MPI must be there
  --ranks N       on each host
  --output DIR    default: extreme_gpu_trainer_runs/deploy-<UTC time>
  -o SSH_OPTION   for ssh, as NAME=VALUE'

fail() { echo "deploy.sh: $2" >&2 && exit "$1"; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=extreme_gpu_trainer
stamp=$(date -u +%Y%m%dT%H%M%SZ)
list='' key='' package='' ranks=0 output=${name}_runs/deploy-$stamp ssh_options=()
while (($#)); do
  case $1 in
    --help) echo "$usage" && exit ;;
    --) shift && break ;;
    --hosts | --key | --package | --ranks | --output | -o) (($# > 1)) || fail 2 "$1 needs a value" ;;
    *) fail 2 "unknown option $1; see --help" ;;
  esac
  case $1 in
    --hosts) list=$2 ;;
    --key) key=$2 ;;
    --package) package=$2 ;;
    --ranks) ranks=$2 ;;
    --output) output=$2 ;;
    -o) ssh_options+=("$2") ;;
  esac
  shift 2
done
[[ -n $list ]] || fail 2 "--hosts FILE is needed"
[[ -r $list ]] || fail 2 "--hosts $list: cannot be read"
[[ -z $key || -r $key ]] || fail 2 "--key $key: cannot be read"
[[ -z $package || -e $package ]] || fail 2 "--package $package: there is none"
[[ $ranks =~ ^[0-9]+$ ]] || fail 2 "--ranks $ranks: a whole number is allowed"
[[ ! -e $output ]] || fail 2 "--output $output: is there already"
for argument; do
  [[ $argument != @(--output*|--resume*) ]] || fail 2 "$argument: the hosts' runs have their directory; --output before -- is the one here"
done
local_program=$root/build/$name
[[ -x $local_program ]] || local_program=$(command -v $name) || fail 3 "there is no program in build/ nor in PATH: run scripts/build.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines of USER HOST PORT, - for none.
read_hosts() {
  if [[ $list != *.json ]]; then
    sed -En 's/#.*//; s/^[[:space:]]*(([^@[:space:]]+)@)?([^:[:space:]]+)(:([0-9]+))?[[:space:]]*$/\2 \3 \5/; t show; /[^[:space:]]/{s/.*/bad &/;p;q}; d; :show s/^ /- /; s/ $/ -/; p' "$list"
  else
    python3 - "$list" <<'PYTHON'
import json, sys
def hosts(node):
    if isinstance(node, str):
        yield "-", node, "-"
    elif isinstance(node, list):
        for one in node:
            yield from hosts(one)
    elif isinstance(node, dict):
        address = next((node[key] for key in ("ip", "address", "host", "hostname", "name") if isinstance(node.get(key), str)), None)
        lists = [value for value in node.values() if isinstance(value, list)]
        if lists:
            for one in lists:
                yield from hosts(one)
        elif address:
            yield str(node.get("user", "-")), address, str(node.get("port", "-"))
for one in hosts(json.load(open(sys.argv[1]))):
    print(*one)
PYTHON
  fi
}
found=$(read_hosts 2>"$work/error") || fail 2 "--hosts $list: $(tail -n 1 "$work/error")"
hosts=()
while read -r user host port; do
  [[ -n $host ]] || continue
  [[ $user != bad && $user$host$port =~ ^[A-Za-z0-9._-]+$ ]] || fail 2 "--hosts $list: not [USER@]HOST[:PORT]: $user $host $port"
  label=$host
  [[ " ${hosts[*]-} " != *" $label "* ]] || label=$host-${#hosts[@]}
  hosts+=("$label")
  {
    printf 'Host %s\n  HostName %s\n' "$label" "$host"
    [[ $user == - ]] || echo "  User $user"
    [[ $port == - ]] || echo "  Port $port"
  } >>"$work/config"
done <<<"$found"
((${#hosts[@]})) || fail 2 "--hosts $list: names no host"
{
  echo 'Host *'
  echo '  BatchMode yes' && echo '  ConnectTimeout 10' && echo '  ServerAliveInterval 15' && echo '  ServerAliveCountMax 4'
  [[ -z $key ]] || printf '  IdentitiesOnly yes\n  IdentityFile "%s"\n' "$(realpath "$key")"
  for option in "${ssh_options[@]}"; do echo "  ${option/=/ }"; done
  echo '  StrictHostKeyChecking accept-new' && echo '  LogLevel ERROR'
  [[ ! -r ~/.ssh/config ]] || echo "  Include ~/.ssh/config"
} >>"$work/config"
remote() { ssh -F "$work/config" "$@"; }

# What is brought: the folder `program` or the package, and job.sh.
stage=$work/stage
mkdir -p "$stage/program"
case $package in
  '') cp "$local_program" "$stage/program/" ;;
  *.deb) cp "$package" "$stage/package.deb" ;;
  *) cp -rL "$package/." "$stage/program/" ;;
esac
cat >"$stage/job.sh" <<'JOB'
# job.sh prepare | run RANKS ARGUMENTS.., on the host. `run` stops cleanly when its standard input ends; it gives the
# run's files on standard output, as an archive, and removes everything.
cd "$(dirname "$0")" || exit 3
here=$PWD
finish() { [ ! -d run ] || tar -cf - run; cd / && rm -rf "$here"; }
if [ "$1" = prepare ]; then
  mkdir -p lib program
  [ ! -e package.deb ] || dpkg -x package.deb program || exit 3
  program=$(find "$here/program" -type f -name extreme_gpu_trainer -perm -100 | head -n 1)
  [ -n "$program" ] || { echo "the package has no extreme_gpu_trainer" >&2; exit 3; }
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s:$LD_LIBRARY_PATH"\nexec "%s" "$@"\n' \
    "$(find "$here/program" -name '*.so*' -printf '%h:' | sort -u)$here/lib" "$program" >start && chmod +x start
  command -v mpirun >/dev/null || { echo "there is no mpirun: install openmpi-bin" >&2; exit 3; }
  LD_LIBRARY_PATH=$here/lib ldd "$program" | sed -n 's/^[[:space:]]*\([^ ]*\) => not found$/\1/p' | sort -u
  exit 0
fi
trap finish EXIT
trap 'exit 6' HUP INT TERM
ranks=$2
shift 2
if [ "$ranks" = 0 ]; then
  ranks=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
  [ "$ranks" -gt 0 ] || ranks=$(($(nproc) < 2 ? 1 : 2))
fi
set -- --quiet -np "$ranks" --bind-to none --oversubscribe ./start "$@" --output run
[ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
exec 3<&0 # a job in the background has none
mpirun "$@" </dev/null >&2 3<&- &
job=$!
{
  read -r _
  touch run/stop
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$job" 2>/dev/null && sleep 1; done
  kill -TERM "$job"
} <&3 >/dev/null 2>&1 &
watch=$!
wait "$job"
code=$?
kill "$watch" 2>/dev/null
if [ "$code" -gt 6 ] && [ -d run ]; then ./start report run >&2; code=$?; fi
exit "$code"
JOB

# One line of what went wrong, for the table.
say() { echo "$2" >"$work/$1.says"; echo "$3" >"$work/$1.code"; }
last_line() { tail -n 1 "$work/$1.error" | tr -d '\r'; }

# bring HOST: the program and its libraries into a temporary directory there, whose name is in $work/HOST.place.
bring() {
  local host=$1 place missing library file absent=()
  place=$(remote "$host" "d=\${TMPDIR:-/tmp}/$name-$stamp-$$; mkdir -m 700 \"\$d\" && echo \"\$d\"" </dev/null 2>"$work/$host.error") ||
    { say "$host" "cannot be used: $(last_line "$host")" 3 && return 1; }
  echo "$place" >"$work/$host.place"
  tar -C "$stage" -cf - . | timeout 1800 ssh -F "$work/config" "$host" "tar -C ${place@Q} -xf -" 2>"$work/$host.error" ||
    { say "$host" "the program could not be brought there: $(last_line "$host")" 3 && return 1; }
  for _ in 1 2 3; do
    missing=$(remote "$host" "sh ${place@Q}/job.sh prepare" </dev/null 2>"$work/$host.error") ||
      { say "$host" "cannot run the program: $(last_line "$host")" 3 && return 1; }
    [[ -n $missing ]] || return 0
    absent=()
    for library in $missing; do
      file=$(ldd "$local_program" | awk -v library="$library" '$1 == library && $3 ~ /^\// { print $3 }')
      [[ -n $file ]] && tar -C "$(dirname "$file")" -chf - "$library" |
        timeout 1800 ssh -F "$work/config" "$host" "tar -C ${place@Q}/lib -xf -" 2>"$work/$host.error" || absent+=("$library")
    done
    ((${#absent[@]} == 0)) || break
  done
  say "$host" "lacks libraries: ${absent[*]-$missing}" 3
  return 1
}

remove() {
  local place
  [[ -e $work/$1.place ]] || return 0
  place=$(<"$work/$1.place")
  timeout 60 ssh -F "$work/config" "$1" "rm -rf ${place@Q}" </dev/null &>/dev/null || echo "deploy.sh: $1: could not remove $place" >&2
}

# run_on HOST ARGUMENTS..: the whole of one host. Its standard input ends when all are to stop.
run_on() {
  local host=$1 code=0 place verdict last
  shift
  if bring "$host"; then
    place=$(<"$work/$host.place")
    mkdir -p "$output/$host"
    remote "$host" "sh ${place@Q}/job.sh run $ranks ${*@Q}" <"$work/hold" 2>"$output/$host/log" |
      tar -C "$output/$host" --strip-components=1 -xf - 2>/dev/null || code=${PIPESTATUS[0]}
    verdict=$(sed -n 's/^Verdict: \([a-z]*\).*/\1/p' "$output/$host/log" | tail -n 1)
    last=$(tail -n 1 "$output/$host/log")
    if ((code == 255)); then
      say "$host" "the connection was lost: $last" 4
    elif ((code == 0)) || [[ -n $verdict ]]; then
      say "$host" "${verdict:-done}" "$code"
    else # mpirun's own codes are no verdict
      say "$host" "refused: $last" $((code == 2 ? 2 : 3))
    fi
  fi
  remove "$host"
}

mkdir -p "$output"
mkfifo "$work/hold"
exec 9<>"$work/hold"
trap 'echo "deploy.sh: stopping the runs" >&2; exec 9>&-' INT TERM HUP

wait_for_all() {
  local child
  for child; do
    while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
  done
}
children=()
for host in "${hosts[@]}"; do
  run_on "$host" "$@" 9>&- &
  children+=($!)
done
wait_for_all "${children[@]}"

worst=0
heavier() { # than $worst
  local one
  for one in 1 4 3 2 5 6; do
    [[ $worst != "$one" ]] || return 1
    [[ $1 != "$one" ]] || return 0
  done
  return 1
}
results=()
for host in "${hosts[@]}"; do
  code=$(cat "$work/$host.code")
  printf '%s: %s (exit code %s)\n' "$host" "$(cat "$work/$host.says")" "$code"
  ! heavier "$code" || worst=$code
  [[ ! -e $output/$host/result.json ]] || results+=("$host")
done
if ((${#results[@]} > 1)); then
  code=0
  (cd "$output" && "$local_program" compare "${results[@]}") || code=$?
  ((worst)) || worst=$code
fi
echo "Files: $output"
exit "$worst"
