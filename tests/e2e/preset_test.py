"""Presets, and the config file that --print-config generates from them."""
from program import *

TINY = ["--steps", "5", "--layers", "32,16", "--memory", "0", "--backend", "host"]


class Preset(ProgramTest):
    def test_a_printed_config_gives_the_same_run(self):
        printed = self.run_program("--quick", *TINY, "--io-size", "1MB", "--print-config", ranks=2)
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        self.assertEqual(printed.stdout.count('preset = "quick"\n'), 1, "one rank alone tells it")
        self.assertEqual(self.files(), [], "nothing was started")
        (self.folder / "c.toml").write_text(printed.stdout)
        options = []
        for name, words in (("first", ["--quick", *TINY, "--io-size", "1MB"]), ("second", ["--config", "c.toml"])):
            done = self.run_program(*words, "--output", name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            options.append(self.result(name)["options"])
        self.assertEqual(*options)
        self.assertEqual([options[0][key] for key in ("preset", "io-repeats", "batch")], ["quick", 2, 128])


if __name__ == "__main__":
    unittest.main()
