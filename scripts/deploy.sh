#!/usr/bin/env bash
# Runs the program on several hosts by ssh: deploy.sh --hosts FILE [options] [-- COMMAND options..]
# Copies the program to each host and runs it with one rank per GPU (without a GPU: up to 2 ranks). Gathers results,
# journals and logs in a local directory, and compares the results. Each host's files are in one temporary directory,
# which is removed unless its results could not be gathered.
#
# --one-job: a single run over all usable hosts. mpirun on the first host starts the other hosts' ranks by ssh with
# agent forwarding, so the key is not copied. OUTPUT/one-job has the result and all journals.
#
# Exit code: the first of 1, 4, 3, 2, 5, 6 that occurred on any host or in the single run. If mpirun ended with its own
# code, the printed verdict's code counts. 4 also if ssh failed or results could not be gathered. 3 also if a host
# cannot be used or nothing ran on it. If all separate runs passed, it is the exit code of `compare`.
#
# Ctrl-C stops all runs cleanly.
set -euo pipefail

usage='deploy.sh --hosts FILE [--key FILE] [--package PATH] [--ranks N] [--output DIR] [-o SSH_OPTION]..
          [--one-job [--mca NAME=VALUE]..] [-- COMMAND options..]
  --hosts FILE    lines of [USER@]HOST[:PORT], # for comments; or cluster.json: strings, or objects with ip, address,
                  host, hostname or name, and user, port
  --key FILE      of ssh; without it ssh decides
  --package PATH  a .deb package or a directory with the program; default: build/extreme_gpu_trainer, with those of its
                  libraries that a host has not. Open MPI must be there
  --ranks N       on each host
  --output DIR    default: extreme_gpu_trainer_runs/deploy-<UTC time>
  -o SSH_OPTION   for ssh, as NAME=VALUE
  --one-job       one run over all hosts, which must reach each other: by ssh from the first one, and for MPI
  --mca NAME=VALUE  of Open MPI, for one job: btl_tcp_if_include=10.0.0.0/16'

fail() { echo "deploy.sh: $2" >&2 && exit "$1"; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=extreme_gpu_trainer
stamp=$(date -u +%Y%m%dT%H%M%SZ)
all_arguments=("$@")
list='' key='' package='' ranks=0 output=${name}_runs/deploy-$stamp ssh_options=() one_job='' mca=()
while (($#)); do
  case $1 in
    --help) echo "$usage" && exit ;;
    --) shift && break ;;
    --one-job) one_job=yes && shift && continue ;;
    --hosts | --key | --package | --ranks | --output | --mca | -o) (($# > 1)) || fail 2 "$1 needs a value" ;;
    *) fail 2 "unknown option $1; see --help" ;;
  esac
  case $1 in
    --hosts) list=$2 ;;
    --key) key=$2 ;;
    --package) package=$2 ;;
    --ranks) ranks=$2 ;;
    --output) output=$2 ;;
    --mca)
      [[ $2 == ?*=* ]] || fail 2 "--mca $2: NAME=VALUE is allowed"
      mca+=(--mca "${2%%=*}" "${2#*=}")
      ;;
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
[[ -n $one_job || ${#mca[@]} == 0 ]] || fail 2 "--mca: is for --one-job"
for argument; do
  [[ -z $one_job || $argument != --nodes-file* ]] || fail 2 "$argument: one job has its list of nodes in OUTPUT/one-job/nodes"
  [[ $argument != @(--output*|--resume*) ]] || fail 2 "$argument: the hosts' runs have their directory; --output before -- is the one here"
done
local_program=$root/build/$name
[[ -x $local_program ]] || local_program=$(command -v $name) || fail 3 "there is no program in build/ nor in PATH: run scripts/build.sh"
# Runs this script again below a new ssh-agent. exec keeps the process ID, and the agent exits with this process.
if [[ -n $one_job && -n $key && ${EGT_DEPLOY_AGENT-} != "$$" ]]; then
  EGT_DEPLOY_AGENT=$$ exec ssh-agent bash "${BASH_SOURCE[0]}" "${all_arguments[@]}"
fi
if [[ -n $one_job && -n $key ]]; then
  ssh-add -q "$key" </dev/null 2>/dev/null || fail 2 "--key $key: ssh-add cannot take it; has it a passphrase? Then use an agent, and no --key"
fi
[[ -z $one_job || -n ${SSH_AUTH_SOCK-} ]] || fail 2 "--one-job needs --key FILE or an ssh agent"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints a line "USER HOST PORT" per host, with - for no user or port.
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
cp "$work/config" "$work/addresses"
{
  echo 'Host *'
  echo '  BatchMode yes' && echo '  ConnectTimeout 10' && echo '  ServerAliveInterval 15' && echo '  ServerAliveCountMax 4'
  [[ -z $key ]] || printf '  IdentitiesOnly yes\n  IdentityFile "%s"\n' "$(realpath "$key")"
  for option in "${ssh_options[@]}"; do echo "  ${option/=/ }"; done
  echo '  StrictHostKeyChecking accept-new' && echo '  LogLevel ERROR'
  [[ ! -r ~/.ssh/config ]] || echo "  Include ~/.ssh/config"
} >>"$work/config"
remote() { ssh -F "$work/config" "$@"; }

# Files to copy to each host: the folder `program` or the package, and job.sh.
stage=$work/stage
mkdir -p "$stage/program"
case $package in
  '') cp "$local_program" "$stage/program/" ;;
  *.deb) cp "$package" "$stage/package.deb" ;;
  *) cp -rL "$package/." "$stage/program/" ;;
esac
cat >"$stage/job.sh" <<'JOB'
# Runs on a host: job.sh prepare | ranks RANKS | run RANKS ARGUMENTS.. | launch MPIRUN_ARGUMENTS.. | hold
# `run` (a separate run) and `launch` (--one-job, first host) stop cleanly when their standard input ends. `hold`
# (--one-job, every host) waits for that and for the job's end. All three then write the run's files to standard output
# as an archive, which is empty if `launch` already sent them. Exit code 7: the archive could not be written.
cd "$(dirname "$0")" || exit 3
here=$PWD
finish() {
  sent=run
  [ "$mode" != hold ] || [ ! -e "$here/sent" ] || sent=none
  mkdir -p "$here/$sent"
  tar -C "$here" -cf - "$sent"
  [ $? -lt 2 ] || exit 7 # tar's code 1: a file changed while it was read
  [ "$mode" != launch ] || : >"$here/sent"
}
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
mode=$1
shift
case $mode in run | ranks)
  ranks=$1
  shift
  if [ "$ranks" = 0 ]; then
    ranks=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ "$ranks" -gt 0 ] || ranks=$(($(nproc) < 2 ? 1 : 2))
  fi
  ;;
esac
[ "$mode" != ranks ] || { echo "$ranks $(hostname)"; exit 0; }
trap finish EXIT
trap 'exit 6' HUP INT TERM
if [ "$mode" = hold ]; then
  cd / && read -r _
  for _ in $(seq 30); do ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -qF " $here" || exit 0; sleep 1; done
  exit 0
fi
[ "$mode" = launch ] || set -- -np "$ranks" --bind-to none --oversubscribe ./start "$@" --output run
set -- --quiet "$@"
[ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
exec 3<&0 # a background job has no standard input
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
if [ "$code" -gt 6 ] && [ -d run ]; then
  echo "mpirun ended with code $code: judging what the journals hold" >&2
  ./start report run >&2
  code=$?
  [ "$code" != 0 ] || code=4 # a rank that crashes at exit may have written a complete journal before
fi
[ "$code" -le 6 ] || code=3 # not 255, which is ssh's code for a lost connection
exit "$code"
JOB

# say NAME TEXT CODE: records NAME's line of the final table and its exit code.
say() { echo "$2" >"$work/$1.says"; echo "$3" >"$work/$1.code"; }
last_line() { tail -n 1 "$work/$1.error" | tr -d '\r'; }

# bring HOST: copies the program and missing libraries to a temporary directory on HOST. $work/HOST.place has its path.
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
  [[ -e $work/$1.place && ! -e $work/$1.kept ]] || return 0
  place=$(<"$work/$1.place")
  timeout 60 ssh -F "$work/config" "$1" "rm -rf ${place@Q}" </dev/null &>/dev/null || echo "deploy.sh: $1: could not remove $place" >&2
}

# heavier CODE THAN: whether CODE precedes THAN in the order 1, 4, 3, 2, 5, 6. An unknown CODE counts as 4.
heavier() {
  local code one=$1 than=$2
  [[ $one =~ ^[0-6]$ ]] || one=4
  for code in 1 4 3 2 5 6; do
    [[ $than != "$code" ]] || return 1
    [[ $one != "$code" ]] || return 0
  done
  return 1
}

# gather HOST DIRECTORY TAR_OPTION..: unpacks the archive in its standard input into DIRECTORY. On errors, the results
# stay on HOST, and $work/HOST.kept has the reason and their location.
gather() {
  local host=$1 directory=$2
  shift 2
  tar -C "$directory" --strip-components=1 "$@" -xf - 2>"$work/$host.tar" || keep_there "$host" "$(head -n 1 "$work/$host.tar")"
}
keep_there() { echo "its results were not gathered ($2); they are kept in $1:$(<"$work/$1.place")/run" >"$work/$1.kept"; }

# Whether the arguments start a run, which prints a verdict.
runs() { [[ " $* " != *" --"@(help|version|print-config)" "* && ${1-} != @(help|version) ]]; }

# run_job HOST NAME MODE JOB_SH_ARGUMENTS..: runs job.sh on HOST (MODE: run or launch), gathers its files, and records NAME's
# line of the final table. Ctrl-C closes the pipe of file descriptor 7, the standard input of job.sh, for all hosts.
run_job() {
  local host=$1 name=$2 directory=$output/${2// /-} code=0 place verdict printed last says
  place=$(<"$work/$host.place")
  shift 2
  mkdir -p "$directory"
  remote ${one_job:+-A} "$host" "sh ${place@Q}/job.sh ${*@Q}" <&7 2>"$directory/log" | gather "$host" "$directory" || code=${PIPESTATUS[0]}
  ((code != 7)) || keep_there "$host" "tar failed there"
  read -r verdict printed < <(sed -n 's/^Verdict: \([a-z]*\) (exit code \([0-6]\))$/\1 \2/p' "$directory/log" | tail -n 1) || true
  last=$(tr -d '\r' <"$directory/log" | sed '/^-*$/d' | tail -n 1)
  says=${verdict:-done}
  if ((code == 255)); then
    says="the connection was lost: $last"
    code=4
  elif ((code > 6)); then
    says="${verdict:+$verdict; }ssh ended with code $code"
    code=4
  elif ((code == 0)) && [[ $expects_run && (-z $verdict || ! -e $directory/result.json) && ! -e $work/$host.kept ]]; then
    says="nothing ran: no verdict was printed; see $directory/log"
    [[ -z $verdict ]] || says="nothing ran: no result came back; see $directory/log"
    code=3
  elif [[ -z $verdict ]] && ((code != 0)); then # without a verdict, the code is mpirun's
    says="refused: $last${one_job:+; see $directory/log}"
    code=$((code == 2 ? 2 : 3))
  elif ((code == 1)) && [[ $verdict != fault ]]; then # 1 is mpirun's code here, not a fault
    code=$((printed == 0 ? 4 : printed))
  fi
  [[ $code != 4 || $verdict != pass ]] || says="pass, but a rank was lost or its launcher failed; see $directory/log"
  if [[ -e $work/$host.kept ]]; then
    says+="; $(<"$work/$host.kept")"
    ! heavier 4 "$code" || code=4
  fi
  [[ -z $printed ]] || ! heavier "$printed" "$code" || code=$printed
  say "$name" "$says" "$code"
}

# run_on HOST ARGUMENTS..: copies the program to HOST, runs it, gathers its results and removes it from HOST.
run_on() {
  local host=$1
  shift
  ! bring "$host" || run_job "$host" "$host" run "$ranks" "$@"
  remove "$host"
}

# take_part HOST: for --one-job, copies the program to HOST, writes its number of ranks and host name to $work/HOST.ranks,
# waits for the end of the job, gathers files that exist only on HOST, and removes its temporary directory.
take_part() {
  local host=$1 place
  if bring "$host"; then
    place=$(<"$work/$host.place")
    if remote "$host" "sh ${place@Q}/job.sh ranks $ranks" </dev/null >"$work/$host.asked" 2>"$work/$host.error"; then
      mv "$work/$host.asked" "$work/$host.ranks"
      remote "$host" "sh ${place@Q}/job.sh hold" <&6 2>/dev/null | gather "$host" "$output/one-job" --skip-old-files ||
        keep_there "$host" "ssh ended with code ${PIPESTATUS[0]}"
      [[ ! -e $work/$host.kept ]] || say "$host" "$(<"$work/$host.kept")" 4
    else
      say "$host" "cannot be used: $(last_line "$host")" 3
    fi
  fi
  remove "$host"
}

expects_run=
! runs "$@" || expects_run=yes
mkdir -p "$output"
mkfifo "$work/hold" "$work/hold_all"
exec 9<>"$work/hold" 7<"$work/hold" 8<>"$work/hold_all" 6<"$work/hold_all"
trap 'echo "deploy.sh: stopping the runs" >&2; exec 9>&-' INT TERM HUP

wait_for_all() {
  local child
  for child; do
    while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
  done
}
children=()
for host in "${hosts[@]}"; do
  if [[ -n $one_job ]]; then take_part "$host"; else run_on "$host" "$@"; fi 8>&- 9>&- &
  children+=($!)
done

# launch ARGUMENTS..: runs the program as one MPI job on all prepared hosts, by mpirun on the first one.
launch() {
  local host first='' count place job=() options=("${mca[@]}")
  for host in "${hosts[@]}"; do
    [[ -e $work/$host.ranks ]] || continue
    place=$(<"$work/$host.place")
    read -r count _ <"$work/$host.ranks"
    job+=(${first:+:} -np "$count" -host "$([[ -n $first ]] && echo "$host" || echo localhost):$count" -wdir "$place"
      "$place/start" "$@" --output run --nodes-file run/nodes)
    first=${first:-$host}
  done
  [[ -n $first ]] || return 0
  place=$(<"$work/$first.place")
  {
    cat "$work/addresses"
    printf 'Host *\n  BatchMode yes\n  ConnectTimeout 10\n  StrictHostKeyChecking accept-new\n'
    printf '  UserKnownHostsFile %s/known_hosts\n  LogLevel ERROR\n' "$place"
  } | timeout 60 ssh -F "$work/config" "$first" "cat >${place@Q}/ssh_config" || true # if this failed, the launch fails and reports it
  options+=(--bind-to none --mca plm_rsh_agent "ssh -F $place/ssh_config" --mca plm_rsh_no_tree_spawn 1)
  run_job "$first" "one job" launch "${options[@]}" "${job[@]}"
}
if [[ -n $one_job ]]; then
  mkdir -p "$output/one-job"
  for number in "${!hosts[@]}"; do
    while [[ ! -e $work/${hosts[number]}.ranks ]] && kill -0 "${children[number]}" 2>/dev/null; do sleep 0.2; done
  done
  launch "$@" 8>&- 9>&- &
  wait_for_all $!
  exec 8>&-
fi
wait_for_all "${children[@]}"

worst=0
tell() { # tell NAME: prints NAME's line of the table
  local code says # both are empty if the local disk was full
  code=$(cat "$work/$1.code" 2>/dev/null) || true
  says=$(cat "$work/$1.says" 2>/dev/null) || true
  code=${code:-4}
  printf '%s: %s (exit code %s)\n' "$1" "${says:-nothing is known of it}" "$code"
  ! heavier "$code" "$worst" || worst=$code
}
results=()
joined=
nodes=$output/one-job/nodes
if [[ -n $one_job && ! -e $nodes ]]; then # the first host sent no list of node verdicts: write it from the journals
  "$local_program" report "$output/one-job" --nodes-file "$nodes" >"$work/report" 2>&1 || true
fi
for host in "${hosts[@]}"; do
  if [[ ! -e $work/$host.ranks ]]; then
    tell "$host"
  else
    joined=yes
    read -r _ hostname <"$work/$host.ranks"
    line=$(awk -v name="$hostname" '$2 == name && !n++' "$nodes" 2>/dev/null || true)
    echo "$host: ${line:-not judged}"
    [[ ! -e $work/$host.code ]] || tell "$host"
  fi
  [[ ! -e $output/$host/result.json ]] || results+=("$host")
done
[[ -z $joined ]] || tell "one job"
if ((${#results[@]} > 1)); then
  code=0
  (cd "$output" && "$local_program" compare "${results[@]}") || code=$?
  ((worst)) || worst=$code
fi
echo "Files: $output"
exit "$worst"
