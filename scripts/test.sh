#!/usr/bin/env bash
# Builds and runs all tests: test.sh [--sanitize]. With --sanitize instead: the unit, contract and MPI tests under
# AddressSanitizer and UndefinedBehaviorSanitizer, on the host backend.
# Ends with ctest's summaries; exit code 0 only if all passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sanitize=
for argument; do
  case $argument in
    --sanitize) sanitize=1 ;;
    *) echo "test.sh: unknown option $argument; allowed: --sanitize" >&2 && exit 2 ;;
  esac
done

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=()
slow=()
few=12  # tests

heading() { echo "=== $*"; }

check() {
  heading "$*"
  "$@" || failed+=("$*")
}

format_is_clean() {
  if ! command -v clang-format >/dev/null; then
    echo "clang-format is not installed here: the format was not checked"
    return
  fi
  find include src kernels tests -regex '.*\.\(cpp\|hpp\|cu\|cuh\)' -print0 | xargs -0 clang-format --dry-run -Werror
}

# run_tests LOG PRESET ARGUMENTS..: of ctest. Its processors are sixths of a core: tests that wait more than they
# compute take one or two, others more. On a machine too slow for them, which its load tells, fewer run at once.
run_tests() {
  local log=$1 preset=$2
  shift 2
  heading "tests of preset $preset"
  ctest --preset "$preset" --no-tests=error --parallel $((6 * $(nproc))) --test-load $((8 * $(nproc))) "$@" 2>&1 |
    tee "$logs/$log" || run_once_more "$log" "$preset"
}

# On a slow machine some tests miss a limit of seconds beside others: where a few failed, and none crashed, they run
# once more, one by one, and are named at the end. Not under sanitizers: what they find may come and go.
run_once_more() {
  local log=$1 preset=$2 wrong
  wrong=$(sed -n '/^The following tests FAILED/,$ s/^[[:space:]]*[0-9]* - \([^ ]*\) (\([^)]*\)).*/\1 \2/p' "$logs/$log")
  if [[ $sanitize || -z $wrong ]] || grep -qvE ' (Failed|Timeout)$' <<<"$wrong" || (($(wc -l <<<"$wrong") > few)); then
    failed+=("ctest of $log")
    return
  fi
  slow+=("$(cut -d ' ' -f 1 <<<"$wrong" | xargs)")
  heading "once more, one by one: ${slow[-1]}"
  ctest --preset "$preset" --rerun-failed 2>&1 | tee "$logs/$log-once-more" || failed+=("ctest of $log")
}

# From "100% tests passed, 0 tests failed out of 42" to the end.
summary() {
  [[ ! -e $logs/$1 ]] || { echo && echo "Preset $1:" && sed -n '/% tests passed/,$p' "$logs/$1"; }
}

scripts/setup.sh
if [[ $sanitize ]]; then
  export LSAN_OPTIONS="suppressions=$PWD/scripts/lsan.supp:print_suppressions=0"
  heading "build of preset asan"
  scripts/build.sh --preset asan --tests
  run_tests asan asan -L '^(unit|contract)$'
  # What Open MPI leaves allocated at its end is not ours to free; its plug-ins are unloaded by then, so only
  # whole stacks, which take their time, tell that it was Open MPI: one rank alone must do.
  ASAN_OPTIONS=fast_unwind_on_malloc=0 run_tests asan-mpi-one asan -R '^mpi[.]ranks[.]1$'
  ASAN_OPTIONS=detect_leaks=0 run_tests asan-mpi asan -R '^mpi[.](ranks|links)[.](3|hosts)$'
else
  check scripts/check_layers.py --headers
  check format_is_clean
  heading "build of preset release"
  scripts/build.sh --tests
  run_tests release release
fi

((${#slow[@]} == 0)) || printf 'failed beside others, ran once more: %s\n' "${slow[@]}"
for log in asan asan-mpi-one asan-mpi release release-once-more; do summary $log; done
if ((${#failed[@]})); then
  printf 'test.sh: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
