"""Hardware errors that CUDA returns at a random call, on one rank and on one rank per GPU (up to 3). Each run exits with 1
and reports the GPU, the phase and the code. EGT_DEVICE_ERROR_RUNS=50 makes 50 runs per number of ranks. Skipped (77) if no
GPU is available."""
import random
import shutil
import sys

from burn_on_gpu import SKIPPED, devices, gpu_count
from program import *

STRIKING, RUNS = os.environ["EGT_STRIKING_CUDA"], int(os.environ.get("EGT_DEVICE_ERROR_RUNS", "4"))
SEED = int(os.environ.get("EGT_DEVICE_ERROR_SEED", random.randrange(2**32)))
SHORT = ["burn", "--quick", "--duration", "5s", "--no-io", "--memory", "12GB", "--output", "run"]
CODES = {214: "ECCUncorrectable", 220: "NvlinkUncorrectable", 226: "Contained", 700: "IllegalAddress", 714: "HardwareStackError",
         715: "IllegalInstruction", 716: "MisalignedAddress", 717: "InvalidAddressSpace", 718: "InvalidPc", 719: "LaunchFailure"}
# function: max index of the failing call
FUNCTIONS = {"cudaSetDevice": 8000, "cudaMalloc": 40, "cudaMallocHost": 10, "cudaMemGetInfo": 2, "cudaMemcpyAsync": 1500, "cudaMemsetAsync": 1500,
             "cudaStreamCreateWithPriority": 5, "cudaStreamQuery": 300, "cudaStreamWaitEvent": 6000, "cudaEventCreateWithFlags": 50,
             "cudaEventRecord": 8000, "cudaEventQuery": 40000, "cudaEventElapsedTime": 100, "cudaLaunchKernelExC": 2000, "__cudaLaunchKernel": 8000,
             "cudaGraphLaunch": 50, "cublasLtMatmul": 4000, "ncclAllReduce": 100, "ncclCommGetAsyncError": 300}


class DeviceError(ProgramTest):
    gpus = 0

    def strike(self, ranks, chance):
        """One run. Returns its errors (empty if none), or None if the call was not reached."""
        rank, code, function = chance.randrange(ranks), chance.choice(list(CODES)), chance.choice(list(FUNCTIONS))
        call = chance.randint(1, FUNCTIONS[function])
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        mark = self.folder / "struck"
        mark.unlink(missing_ok=True)
        done = self.run_program(*SHORT, ranks=ranks, timeout=240, environment={
            "LD_PRELOAD": STRIKING, "EGT_STRIKE_FUNCTION": function, "EGT_STRIKE_CALL": str(call), "EGT_STRIKE_ERROR": str(code),
            "EGT_STRIKE_RANK": str(rank), "EGT_STRIKE_FILE": str(mark)})
        if not mark.exists():
            return None
        result = self.result() if (self.folder / "run/result.json").exists() else {}
        faults = result.get("faults", [])
        uuids = {r["rank"]: r["device"]["uuid"] for r in result.get("ranks", [])}
        seen = [(f["kind"], f["rank"], f["device_uuid"], f["actual"], f["blame"]) for f in faults]
        wrong = [] if (done.returncode, result.get("verdict")) == (1, "fault") else [f"exit {done.returncode}, {result.get('reasons')}, {done.stderr[-1500:]}"]
        wrong += [] if seen == [("device-error", rank, uuids.get(rank), str(code), "certain")] else [f"faults {faults}"]
        wrong += [] if faults and faults[0]["phase"] else ["no phase"]
        phase = f"{faults[0]['phase']}, step {faults[0]['step']}" if faults else "-"
        print(f"{ranks:5} {rank:4} {code:4} cudaError{CODES[code]:20} {function:29} {call:5} {done.returncode:4}  {phase:30} {'ok' if not wrong else wrong}", flush=True)
        return wrong

    def check(self, ranks):
        chance = random.Random(SEED + ranks)
        print(f"\nseed {SEED}\nranks rank code name                           function                       call exit  phase", flush=True)
        outcomes, tries = [], 0
        while len(outcomes) < RUNS and tries < 4 * RUNS:
            tries += 1
            outcome = self.strike(ranks, chance)
            if outcome is not None:
                outcomes.append(outcome)
        print(f"{ranks} ranks: {outcomes.count([])} of {len(outcomes)} right, {tries - len(outcomes)} calls never came", flush=True)
        self.assertEqual([wrong for wrong in outcomes if wrong], [])
        self.assertEqual(len(outcomes), RUNS)

    def test_one_gpu(self):
        self.check(1)

    def test_several_gpus(self):
        if self.gpus < 2:
            self.skipTest("one GPU answers")
        for ranks in range(2, min(self.gpus, 3) + 1):
            with self.subTest(ranks=ranks):
                self.check(ranks)


if __name__ == "__main__":
    there = devices()
    DeviceError.gpus = gpu_count(there)
    if DeviceError.gpus == 0:
        print(f"skipped: no GPU answers:\n{there}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
