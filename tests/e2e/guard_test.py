"""The thermal and memory limiter: injected heat and memory pressure reduce the load and are reported."""
from program import *

# Steps are so short that some complete within a few seconds even on a busy machine.
SHORT = ["--layers", "32,48,16", "--batch", "16"]
HOT = ["--memory", "0", "--no-io", *SHORT]


class Guard(ProgramTest):
    def inject(self, spec, *options):
        done = self.run_program(*options, "--inject", spec, "--output", "run", ranks=2)
        return done, self.result()

    def check_told(self, done, result, kind):
        told = done.stderr + json.dumps({name: result[name] for name in ("verdict", "reasons", "injections")}, indent=1)
        self.assertEqual(result["faults"], [], told)
        self.assertEqual([i["kind"] for i in result["injections"]], [kind], told)
        self.assertGreaterEqual(result["injections"][0]["struck_step"], 5, told)
        return told

    def warnings(self, done, text):
        return [line for line in done.stderr.splitlines() if text in line]

    def test_heat_lowers_the_duty(self):
        done, result = self.inject("temperature:rank=1,step=5,ms=4000", "--duration", "9s", *HOT)
        told = self.check_told(done, result, "temperature")
        hot, cool = result["telemetry"]["1"], result["telemetry"]["0"]
        self.assertLess(hot["duty"]["min"], 0.9, told)
        self.assertGreater(hot["guard"]["heat_seconds"], 2, told)
        self.assertGreater(hot["temperature_c"]["max"], 85, told)
        self.assertEqual(len(self.warnings(done, "the load is lowered until it falls")), 1, told)
        self.assertEqual((cool["duty"]["min"], cool["memory_share"]["min"]), (1, 1), told)
        # More than 5 % of such a short run: degraded, and the rank is reported.
        self.assertEqual((done.returncode, result["verdict"]), (5, "degraded"), told)
        self.assertTrue(any("rank 1" in reason and "limit of 85 C" in reason for reason in result["reasons"]), told)

    def test_memory_pressure_shrinks_the_fill(self):
        done, result = self.inject("memory-pressure:rank=1,step=5", "--duration", "10s", "--memory", "64MB", "--no-io", *SHORT)
        told = self.check_told(done, result, "memory-pressure")
        self.assertEqual((done.returncode, result["verdict"]), (0, "pass"), told)
        pressed, other = self.part(result, "memory", 1), self.part(result, "memory", 0)
        self.assertGreater(pressed["freed_bytes"], 0, told)
        self.assertGreater(pressed["filled_bytes"], 2 * pressed["freed_bytes"], "no more than two or three steps: " + told)
        self.assertTrue(pressed["success"], told)
        self.assertEqual(other["freed_bytes"], 0, told)
        self.assertLess(result["telemetry"]["1"]["memory_share"]["last"], 1, told)
        self.assertTrue(self.warnings(done, "memory is in use, the limit is 95 %: the fill is made smaller"), told)
        self.assertTrue(self.warnings(done, "memory: less memory is filled"), told)


if __name__ == "__main__":
    unittest.main()
