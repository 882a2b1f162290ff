"""An unreachable GPU differs from a missing one: tests that need a GPU fail, and the program refuses to start. Needs no GPU."""
import re

from program import *

ENVIRONMENT = 3
CTEST, BUILD = os.environ["EGT_CTEST"], os.environ["EGT_BUILD"]
FAILING = {"LD_PRELOAD": os.environ["EGT_FAILING_CUDA"]}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "EGT_BACKEND": "host"}
REASON = "CUDA could not count the GPUs: unknown error (cudaErrorUnknown)"
SUITES = ["gpu.trainer", "gpu.collectives.2", "gpu.peers.2", "gpu.burn", "contract.cuda.1"]


class FailingCuda(ProgramTest):
    def run_suites(self, environment):
        """Each suite's outcome according to ctest, and ctest's exit code."""
        which = "^(" + "|".join(re.escape(suite) for suite in SUITES) + ")( |$)"
        done = subprocess.run([CTEST, "--test-dir", BUILD, "-R", which, "--no-tests=error"], capture_output=True, text=True, timeout=240,
                              stdin=subprocess.DEVNULL, env={**os.environ, **environment})
        outcomes = dict(re.findall(r"Test +#\d+: (\S+) .*?\.\.+ *(?:\*\*\*)?(\w+)", done.stdout))
        self.assertEqual(sorted(outcomes), sorted(SUITES), done.stdout + done.stderr)
        return set(outcomes.values()), done.returncode

    def test_the_suites_fail(self):
        outcomes, code = self.run_suites(FAILING)
        self.assertEqual(outcomes, {"Failed"})
        self.assertNotEqual(code, 0)

    def test_without_a_gpu_they_are_skipped(self):
        self.assertEqual(self.run_suites(NO_GPU), ({"Skipped"}, 0))

    def check_refusal(self, *arguments, ranks=None):
        done = self.run_program(*arguments, ranks=ranks, environment=FAILING)
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
        self.assertIn(REASON, done.stderr)
        self.assertEqual(self.files(), [])
        return done

    def test_devices_says_so(self):
        self.assertIn(f"not usable: {REASON}", self.check_refusal("devices").stdout)

    def test_no_run_falls_back_to_the_host(self):
        self.check_refusal(*SMALL, "--output", "run")
        self.check_refusal(*SMALL, "--backend", "cuda", "--output", "run", ranks=2)

    def test_the_host_can_be_asked_for(self):
        done = self.run_program("--steps", "4", "--memory", "64MB", "--no-io", "--backend", "host", "--output", "run", environment=FAILING)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
