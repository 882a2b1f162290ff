"""What cmake --install brings: the program, its manual page, completions, presets, the README and its pages."""
import re
import shutil

from program import *
from program import PROGRAM

COMMANDS = ["burn", "verify", "links", "bench", "loadtest", "selftest", "compare", "report", "devices"]
ROOT = Path(__file__).parents[2]
BASH = """source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _extreme_gpu_trainer; echo "${COMPREPLY[@]}" """


class Install(ProgramTest):
    def setUp(self):
        super().setUp()
        self.call("cmake", "--install", Path(PROGRAM).parent, "--prefix", self.folder / "usr")
        self.share = self.folder / "usr/share"

    def call(self, *command, **options):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, cwd=self.folder, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def help_options(self, command):
        return set(re.findall(r"^  (--[a-z0-9-]+)", self.call(PROGRAM, command, "--help"), re.MULTILINE))

    def test_the_installed_program_starts_and_has_its_presets(self):
        program = self.folder / "usr/bin/extreme_gpu_trainer"
        self.assertEqual(self.call(program, "--version"), self.call(PROGRAM, "--version"))
        presets = sorted(self.share.glob("extreme_gpu_trainer/presets/*.toml"))
        self.assertGreater(len(presets), 5)
        for preset in presets:
            with self.subTest(preset=preset.stem):
                as_file = self.call(program, "--config", preset, "--print-config")
                named = self.call(program, "--preset", preset.stem, "--print-config")
                values = [sorted(line for line in text.splitlines() if not line.startswith(("#", "preset"))) for text in (as_file, named)]
                self.assertEqual(*values)

    def test_the_readme_comes_with_its_pages(self):
        readme = next(self.share.glob("doc/*/README.md"))
        pages = re.findall(r"\]\((docs/[^)#]+)", readme.read_text())
        self.assertIn("docs/commands.md", pages)
        for page in pages:
            self.assertTrue((readme.parent / page).is_file(), page)

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_the_manual_tells_every_command_and_option(self):
        page = self.share / "man/man1/extreme_gpu_trainer.1"
        environment = {**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8", "MANROFFOPT": "-c"}
        text = re.sub(".\b", "", self.call("man", "--warnings", "-l", page, env=environment))
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^       {command}\b")
            for option in self.help_options(command):
                self.assertRegex(text, rf"(?m)^       (-\w, )?{option}\b", command)

    def complete_in_bash(self, *words):
        return self.call("bash", "-c", BASH, "bash", self.share / "bash-completion/completions/extreme_gpu_trainer", *words).split()

    def test_bash_completes(self):
        complete = lambda *words: self.complete_in_bash("extreme_gpu_trainer", *words)
        self.assertEqual(complete("ver"), ["verify"])
        self.assertEqual(set(complete("")), set(COMMANDS))
        self.assertEqual(complete("--preset", "so"), ["soak"])
        self.assertEqual(complete("links", "--log-level", ""), [], "a value that no list has")
        (self.folder / "my.toml").touch()
        self.assertEqual(complete("verify", "--config", "my"), ["my.toml"])
        for command in COMMANDS:
            self.assertEqual(set(complete(command, "--")), self.help_options(command), command)
        self.assertEqual(set(complete("--")), self.help_options("burn"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_reads_its_completion(self):
        file = self.share / "zsh/vendor-completions/_extreme_gpu_trainer"
        self.assertTrue(file.read_text().startswith("#compdef extreme_gpu_trainer\n"))
        text = self.call("zsh", "-fc", f"autoload -U compinit; compinit -D; source {file}; echo $_comps[extreme_gpu_trainer]")
        self.assertIn("_extreme_gpu_trainer", text)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        file = self.share / "fish/vendor_completions.d/extreme_gpu_trainer.fish"
        complete = lambda line: [text.split("\t")[0] for text in self.call(
            "fish", "--no-config", "-c", f"source {file}; complete -C 'extreme_gpu_trainer {line}'").splitlines()]
        self.assertEqual(complete("ver"), ["verify"])
        self.assertEqual(complete("--preset so"), ["soak"])
        for command in COMMANDS:
            self.assertEqual(set(complete(f"{command} --")), self.help_options(command), command)


class Container(ProgramTest):
    """scripts/Containerfile. That it builds is not tried here: that takes root and a base image."""

    def test_copies_all_that_the_build_needs(self):
        lines = (ROOT / "scripts/Containerfile").read_text().splitlines()
        copies = [line.split()[1:] for line in lines if line.startswith("COPY ") and "--from" not in line]
        for *sources, target in copies:
            for source in sources:
                place = self.folder / "tree" / (f"{target}/{source}" if target == "./" else target)
                place.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)
        configured = subprocess.run(["cmake", "-S", "tree", "-B", "made", "-DEGT_TESTS=OFF", "-DEGT_CUDA=OFF"], cwd=self.folder,
                                    capture_output=True, text=True, timeout=300)
        self.assertEqual(configured.returncode, 0, configured.stderr)
        installed = (self.folder / "made/cmake_install.cmake").read_text()
        for path in re.findall(rf'"({re.escape(str(self.folder / "tree"))}/[^"]+)"', installed):
            self.assertTrue(Path(path).exists(), path)

    def test_starts_what_it_installs(self):
        text = (ROOT / "scripts/Containerfile").read_text()
        place = re.search(r"^WORKDIR (\S+)\nCOPY scripts/run.sh scripts/$", text, re.MULTILINE)[1]
        self.assertIn(f'\nENTRYPOINT ["{place}/scripts/run.sh"]\n', text)
        for name in ("setup.sh", "build.sh"):
            self.assertIn(f'"$root/scripts/{name}"', (ROOT / "scripts/run.sh").read_text())
            self.assertIn(f"ln -s /bin/true scripts/{name}", text)


if __name__ == "__main__":
    unittest.main()
