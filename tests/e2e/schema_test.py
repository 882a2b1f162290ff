"""docs/*.schema.json accept every recorded result and comparison and refuse damaged ones. Their names are those of the source.
Every other test checks the results that it reads (`ProgramTest.result`). Skipped (77) if Python has no module jsonschema."""
import copy
import re
import sys

from program import *
from program import SCHEMA, check_schema

if not SCHEMA:
    print("skipped: there is no module jsonschema (package python3-jsonschema)")
    sys.exit(77)

ROOT = Path(__file__).parents[2]
# Where the source lists the names of an enumeration: file, and the text that has all of them as string literals.
NAMES = {
    ("properties", "verdict"): ("src/judge/verdict.cpp", r"conclude\(\"\w+\""),
    ("properties", "command"): ("src/command/options/option_table.cpp", r"\{\"(?!compare|report|watch|reproduce|devices)\w+\", of_\w+,"),
    ("$defs", "node", "properties", "verdict"): ("src/judge/node_verdicts.cpp", r"verdict_of\(const Node.*?\n  \}|nodes\.list\([^;]*"),
    ("$defs", "node", "properties", "action", "properties", "name"): ("src/judge/action.cpp", r"\{Action::\w+, \"[\w-]+\""),
    ("$defs", "fault", "properties", "blame"): ("src/core/record.cpp", r"blame_names\[\] = \{[^}]*"),
    ("$defs", "loss", "properties", "how"): ("src/core/record.cpp", r"how_names\[\] = \{[^}]*"),
    ("$defs", "rank", "properties", "end_reason"): ("src/session/session.cpp", r"(?<=end\[\"reason\"\] = )[^;]*"),
    ("$defs", "rank", "properties", "error", "properties", "code"): ("src/core/status.cpp", r"return \"(?!ok|unknown)[^\"]*\";"),
}
LITERAL = re.compile(r'"([^"]*)"')
# The kind of a fault or finding is a literal, or one of these texts. Their values are literals where the patterns ASSIGNED match.
INDIRECT = {"kind", "const char* kind", "std::string kind", "finding.kind", "std::move(kind)", "to_string(first.kind)", "fault_kinds[question]",
            "std::size_t figure", "figure", "of.kind", "finding_kinds[source]"}
FAULT_KIND = r"\b(?:fault_of\(\s*[\w.]+(?: ?&? ?\w+)?(?:\(\))?,|fault\()\s*([^,;{}]+),"
ASSIGNED_FAULT_KINDS = (r"char\* const kind = [^;]*|\bwatch\(\"[\w-]+\"|OperationFinding\{\.kind = \"\w+\"|fault_kinds\[\] = \{[^}]*"
                        r"|to_string\(FileFault kind\) \{.*?\}")
FINDING_KIND = r"\bfinding\(\s*([^,;{}&]+),"
ASSIGNED_FINDING_KINDS = (r"(?<!Operation)(?<!Block)[Ff]inding(?:\{\.|\.)kind = \"\w+\"|\"[\w-]+\",\s+&SensorCounters"
                          r"|finding_kinds\[\] = \{[^}]*")


def sources():
    return "\n".join(path.read_text() for folder in ("src", "include") for path in sorted((ROOT / folder).rglob("*.[ch]pp")))


def at(value, *path):
    for key in path:
        value = value[key]
    return value


def put(*path_and_value):
    """A damage: sets the value at a path."""
    *path, key, value = path_and_value
    return lambda result: at(result, *path).__setitem__(key, value)


def drop(*path):
    return lambda result: at(result, *path[:-1]).__delitem__(path[-1])


# Of a result with a fault, a loss, a finding and a node with an action.
DAMAGES = [
    drop("verdict"), drop("exit_code"), drop("faults"), drop("nodes"), drop("system_info", "hostname"), drop("ranks", 0, "rank"), drop("ranks", 0, "device", "uuid"),
    drop("faults", 0, "rank"), drop("faults", 0, "kind"), drop("losses", 0, "rank"), drop("findings", 0, "text"), drop("results", 0, "success"),
    drop("test_summary", "failed_tests"), drop("nodes", 0, "action", "name"), drop("verified_work", "replays"), drop("counters", "0", "ecc_corrected", "after"),
    put("verdict", "passed"), put("verdict", None), put("verdict", "pass"), put("exit_code", 0), put("exit_code", 7), put("exit_code", "1"), put("schema", 2),
    put("command", "burnin"), put("reasons", []), put("reasons", "none"), put("run_id", 5), put("injected", "no"), put("precisions", 0, "fp12"),
    put("faults", 0, "kind", "gemms"), put("faults", 0, "blame", "probable"), put("faults", 0, "count", -1), put("faults", 0, "count", "1"),
    put("faults", 0, "count", 1.5), put("faults", 0, "offset", None), put("faults", 0, "gpu", 3), put("faults", 0, "time", "yesterday"),
    put("faults", 0, "suspects", [-1]), put("faults", 0, "map", {"offsets": [1, 2]}), put("losses", 0, "how", "gone"), put("losses", 0, "seconds", -1),
    put("losses", 0, "why", ""), put("findings", 0, "kind", "slow"), put("findings", 0, "actual", "NaN"), put("findings", 0, "unit", "W"),
    put("ranks", 0, "rank", -1), put("ranks", 0, "rank", "0"), put("ranks", 0, "backend", "rocm"), put("ranks", 0, "end_reason", "tired"), put("ranks", 0, "gpu", 0),
    put("nodes", 0, "verdict", "bad"), put("nodes", 0, "drain", True), put("nodes", 0, "action", "rank", -1), put("nodes", 0, "action", "cost", 1),
    put("test_summary", "total_tests", -1), put("test_summary", "passed", 1), put("verified_share", "gemm", 1.5), put("verified_work", "gemm_flops", "NaN"),
    put("results", 0, "success", "yes"), put("results", 0, "step_ms", "NaN"), put("results", 0, "rank", -1), put("telemetry", "0", "power_w", "NaN"),
    put("telemetry", "rank 0", {}), put("counters", "0", "ecc_corrected", "after", -1), put("peers", "0", "power_w", "value", "NaN"),
    put("checks_not_run", [{"check": "x", "rank": None}]), put("restarts", [{}]), put("injections", 0, "found", None), put("fault_repeats", [{"count": 1}]),
]


class Schema(ProgramTest):
    def damaged(self):
        """A result with an entry in each list."""
        read = lambda name: json.loads((ROOT / f"tests/corpus/{name}/result.json").read_text())
        result, lost = read("burn-fault"), read("burn-restart")
        result["losses"] = lost["losses"]
        result["findings"] = [{"time": lost["losses"][0]["time"], "kind": "power", "rank": 0, "hostname": "node-a", "device_uuid": None, "where": "power",
                               "text": "power of 800 W", "expected": 700, "actual": 800.5, "ranks": []}]
        result["nodes"][0]["action"] = {"name": "reset-gpu", "text": "reset the GPU", "command": None, "rank": 1}
        return result

    def test_recorded_results_are_valid(self):
        recorded = sorted((ROOT / "tests/corpus").glob("*/result.json"))
        self.assertGreaterEqual(len(recorded), 14)
        for file in recorded:
            with self.subTest(recorded=file.parent.name):
                result = json.loads(file.read_text())
                check_schema(result)
                self.assertLessEqual(set(result), set(SCHEMA.schema["properties"]))

    def test_damaged_results_are_refused(self):
        whole = self.damaged()
        check_schema(whole)
        for number, damage in enumerate(DAMAGES):
            result = copy.deepcopy(whole)
            damage(result)
            with self.subTest(damage=number):
                self.assertNotEqual(result, whole)
                self.assertFalse(SCHEMA.is_valid(result))

    def test_recorded_comparisons_are_valid_and_damaged_ones_are_not(self):
        schema = type(SCHEMA)(json.loads((ROOT / "docs/comparison.schema.json").read_text()))
        recorded = [json.loads(file.read_text()) for file in sorted((ROOT / "tests/corpus").glob("*/compare.json"))]
        self.assertEqual([comparison["exit_code"] for comparison in recorded], [2, 5])
        for comparison in recorded:
            schema.validate(comparison)
        for damage in (drop("verdict"), put("exit_code", 1), put("verdict", "fault"), put("tolerance", "5%"), put("tests", 0, "better", "larger"),
                       put("tests", 0, "values", 0, "value", "NaN"), put("regressions", 0, "gpu", 1), drop("regressions", 0, "failed"), put("judged", -1)):
            damaged = copy.deepcopy(recorded[1])
            damage(damaged)
            self.assertNotEqual(damaged, recorded[1])
            self.assertFalse(schema.is_valid(damaged))

    def test_a_pass_has_no_evidence_against_it(self):
        result = json.loads((ROOT / "tests/corpus/burn-one-rank/result.json").read_text())
        self.assertEqual(result["verdict"], "pass")
        for name in ("faults", "losses", "findings"):
            self.assertFalse(SCHEMA.is_valid({**result, name: self.damaged()[name]}), name)

    def test_names_are_those_of_the_source(self):
        for path, (file, listed) in NAMES.items():
            there = {name for text in re.findall(listed, (ROOT / file).read_text(), re.DOTALL) for name in LITERAL.findall(text)}
            with self.subTest(path=path):
                self.assertEqual(set(at(SCHEMA.schema, *path)["enum"]) - {None}, there)
        kinds = re.search(r"enum class WorkKind \{([^}]*)\}", (ROOT / "include/egt/core/part_report.hpp").read_text())[1]
        self.assertEqual(at(SCHEMA.schema, "properties", "detectable_error_rate", "propertyNames")["enum"], re.findall(r"\w+", kinds))

    def check_kinds(self, listed, given, assigned):
        text, there = sources(), set()
        for kind in re.findall(given, text):
            there |= set(LITERAL.findall(kind))
            if not LITERAL.search(kind):
                self.assertIn(kind.strip(), INDIRECT)
        there |= {name for one in re.findall(assigned, text, re.DOTALL) for name in LITERAL.findall(one)}
        self.assertEqual(set(listed), there)

    def test_kinds_are_those_of_the_source(self):
        self.check_kinds(at(SCHEMA.schema, "$defs", "fault_kind", "enum"), FAULT_KIND, ASSIGNED_FAULT_KINDS)
        self.check_kinds(at(SCHEMA.schema, "$defs", "finding", "properties", "kind", "enum"), FINDING_KIND, ASSIGNED_FINDING_KINDS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
