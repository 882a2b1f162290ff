#!/usr/bin/env bash
# Builds and runs all tests: test.sh [--sanitize]. With --sanitize it runs only the unit, contract and MPI tests, under
# AddressSanitizer and UndefinedBehaviorSanitizer on the host backend.
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
few=12  # max failed tests that are repeated

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

# run_tests LOG PRESET ARGUMENTS..: runs ctest with ARGUMENTS. A test's PROCESSORS property counts sixths of a core: 1 or
# 2 for tests that mostly wait, more for others. If the machine's load is high, --test-load starts fewer tests at once.
run_tests() {
  local log=$1 preset=$2
  shift 2
  heading "tests of preset $preset"
  ctest --preset "$preset" --no-tests=error --parallel $((6 * $(nproc))) --test-load $((8 * $(nproc))) "$@" 2>&1 |
    tee "$logs/$log" || run_once_more "$log" "$preset"
}

# On a slow machine, concurrent tests may exceed their time limits. If only a few tests failed and none crashed, runs them
# again, one by one, and lists them at the end. Not under sanitizers, whose findings may be intermittent.
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

# Prints a log from the line "100% tests passed, 0 tests failed out of 42" to its end.
summary() {
  [[ ! -e $logs/$1 ]] || { echo && echo "Preset $1:" && sed -n '/% tests passed/,$p' "$logs/$1"; }
}

scripts/setup.sh
if [[ $sanitize ]]; then
  export LSAN_OPTIONS="suppressions=$PWD/scripts/lsan.supp:print_suppressions=0"
  heading "build of preset asan"
  scripts/build.sh --preset asan --tests
  run_tests asan asan -L '^(unit|contract)$'
  # Open MPI's own leaks are suppressed. Its plug-ins are unloaded when leaks are reported, so only complete stack
  # traces identify them. These are slow, so only the test with one rank checks for leaks.
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
