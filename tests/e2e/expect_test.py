"""--expect and devices --write-expect, with a fake NVML of eight GPUs. The load runs on the host backend."""
from program import *
from program import PROGRAM

NODE = """gpus 8
memory_total 150754820096
memory_used 0
temperature 35
links 18
nvlink.up 1
pcie_max_generation 5
pcie_width 16
pcie_max_width 16
ecc 1
mig 0
persistence 1
fabric 3
processes 0
power_limit_w 700
"""
RUN = ["burn", "--backend", "host", "--steps", "3", "--memory", "0", "--no-io"]
# A line of the script, and what is reported before load.
BAD_NODES = [
    ("gpus 7", "gpus is 7, expected 8", "reboot the node"),
    ("gpu.3.nvlink.up 0", "GPU 3, GPU-3, 00000000:13:00.0, serial number 1653: nvlinks is 0, expected 18", "reseat the GPU"),
    ("gpu.2.pcie_width 8", "GPU 2, GPU-2, 00000000:12:00.0, serial number 1652: pcie_width is 8, expected min 16", "reseat the GPU"),
    ("fabric 1", "fabric is not started, expected completed", "read the kernel log"),
    ("gpu.7.ecc 0", "ecc is false, expected true", "reset the GPU"),
    ("gpu.0.fail 15", "GPU 0: does not respond", ""),
]


class Expect(ProgramTest):
    def setUp(self):
        super().setUp()
        library = self.folder / "nvml/libnvidia-ml.so.1"
        library.parent.mkdir()
        library.symlink_to(Path(PROGRAM).parent / "tests/unit/libegt_fake_nvml.so")
        self.node("")

    def node(self, line, folder=None):
        """The environment of a node: the script of a good one and one more line."""
        script = (folder or self.folder) / "node"
        script.write_text(NODE + line + "\n")
        path = f"{self.folder / 'nvml'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        return {"LD_LIBRARY_PATH": path, "FAKE_NVML_SCRIPT": str(script)}

    def write_file(self):
        done = self.run_program("devices", "--backend", "host", "--write-expect", "good.toml", environment=self.node(""))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / "good.toml"

    def test_a_good_node_passes_its_own_file(self):
        file = self.write_file()
        self.assertIn("\nnvlinks = 18  # ", file.read_text())
        self.assertIn("\nbf16_tflops = ", file.read_text(), "from the preset of the model")
        file.write_text("".join(line + "\n" for line in file.read_text().splitlines() if "tflops" not in line and "host_copy" not in line))
        done = self.run_program(*RUN, "--expect", str(file), "--output", "run", ranks=2, environment=self.node(""))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        result = json.loads((self.folder / "run/result.json").read_text())
        self.assertEqual([(one["gpus"], one["deviations"]) for one in result["inventory"]], [(8, [])])
        self.assertEqual(result["inventory"][0]["gpu"][5]["serial"], "1655")
        self.assertIn({"check": "--expect power_share under load", "rank": 0, "reason": "no memory is filled"},
                      result["checks_not_run"])

    def test_a_bad_node_is_reported_before_load(self):
        file = self.write_file()

        def run(case, folder):
            ranks = 2 if case == BAD_NODES[0] else None
            return self.run_program(*RUN, "--expect", str(file), folder=folder, environment=self.node(case[0], folder), ranks=ranks)
        for (line, text, action), done, folder in self.side_by_side(BAD_NODES, run):
            with self.subTest(line=line):
                self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
                self.assertIn(text, done.stderr)
                self.assertIn(action, done.stderr)
                self.assertEqual([one.name for one in folder.iterdir()], ["node"], "nothing was run")

    def test_a_node_below_its_rates_is_degraded(self):
        file = self.folder / "rates.toml"
        file.write_text("gpus = 8\nfp32_tflops = 1000000\n")
        done = self.run_program(*RUN, "--precision", "fp32", "--expect", str(file), "--output", "run", "--nodes-file", "nodes",
                                ranks=2, environment=self.node("gpu.1.ecc 0"))
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        result = json.loads((self.folder / "run/result.json").read_text())
        self.assertEqual([(one["rank"], one["kind"], one["where"], one["expected"]) for one in sorted(result["findings"], key=lambda one: one["rank"])],
                         [(rank, "expectation", "fp32_tflops", 1e6) for rank in (0, 1)])
        self.assertEqual(result["nodes"][0]["action"]["name"], "isolate-gpu")
        self.assertIn("action: isolate-gpu", (self.folder / "nodes").read_text())
        self.assertIn("GPU 1, GPU-1, 00000000:11:00.0, serial number 1651: ecc is false, expected true", done.stderr + done.stdout,
                      "reported without an expectation, as a warning")

    def test_wrong_files_and_nodes_without_gpus(self):
        for name, text, code, named in [("none", None, 2, "none: cannot be read"), ("key", "nvlink = 1", 2, "nvlink: unknown key"),
                                        ("empty", "", 2, "expects nothing"), ("section", "[a]\ngpus = 1", 2, "section")]:
            if text is not None:
                (self.folder / name).write_text(text)
            done = self.run_program(*RUN, "--expect", str(self.folder / name))
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(named, done.stderr)
        environment = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        done = self.run_program(*RUN, "--expect", "H200", environment={**environment, **self.node("init 9")})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("gpus is 0, expected 8", done.stderr)


if __name__ == "__main__":
    unittest.main()
