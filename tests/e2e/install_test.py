"""Files of cmake --install: the program, its manual page, completions, presets, the README and its pages."""
import re
import shutil

from program import *
from program import PROGRAM

COMMANDS = ["burn", "verify", "links", "bench", "loadtest", "selftest", "compare", "report", "watch", "reproduce", "devices"]
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
        return set(re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", self.call(PROGRAM, command, "--help"), re.MULTILINE))

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


APT_GET = """#!/bin/sh
echo "$*" >>"$APT_LOG"
"""
APT_CACHE = """#!/bin/sh
case $1 in
  search) for version in $TOOLKITS; do echo "cuda-toolkit-$version - CUDA Toolkit meta-package"; done ;;
  policy) printf 'nvidia-cuda-toolkit:\\n  Installed: (none)\\n  Candidate: %s\\n' "${DISTRIBUTION:-(none)}" ;;
  madison) for version in $NCCLS; do echo "libnccl-dev | $version | https://example.org Packages"; done ;;
esac
"""
DPKG_QUERY = """#!/bin/sh
for word; do case $word in -*) ;; "$MISSING") ;; *) printf 'installed %s ' "$word" ;; esac; done
"""
NVIDIA_SMI = """#!/bin/sh
[ -n "$DRIVER" ] && echo "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: $DRIVER     |"
"""
NAMESPACES = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


@unittest.skipUnless(subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode == 0, "unshare is not permitted")
class Setup(ProgramTest):
    """scripts/setup.sh on a machine with a GPU and all packages except CUDA."""

    def setUp(self):
        super().setUp()
        (self.folder / "bin").mkdir()
        fakes = {"apt-get": APT_GET, "apt-cache": APT_CACHE, "nvidia-smi": NVIDIA_SMI, "dpkg-query": DPKG_QUERY}
        for name, text in fakes.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "bus/0000:17:00.0").mkdir(parents=True)
        (self.folder / "bus/0000:17:00.0/vendor").write_text("0x10de\n")
        (self.folder / "bus/0000:17:00.0/class").write_text("0x030200\n")

    def run_setup(self, **environment):
        hide = 'mount --bind bus /sys/bus/pci/devices && mount -t tmpfs none /usr/local && exec "$0"'
        done = subprocess.run([*NAMESPACES, "bash", "-c", hide, ROOT / "scripts/setup.sh"], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PATH": f"{self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "APT_LOG": str(self.folder / "log"), **environment})
        log = self.folder / "log"
        calls = [line for line in log.read_text().splitlines() if line.startswith("install")] if log.exists() else []
        log.unlink(missing_ok=True)
        return done, [line.split("--no-install-recommends ")[1] for line in calls]

    @unittest.skipIf(Path("/usr/include/nccl.h").exists() or shutil.which("nvcc", path="/usr/bin:/bin"), "CUDA is installed")
    def test_installs_the_newest_toolkit_and_nccl_that_the_driver_supports(self):
        toolkits, nccls = "12-4 13-0 12-10 12-8", "2.28.3-1+cuda13.0 2.27.3-1+cuda12.9 2.26.2-1+cuda12.8 2.22.3-1+cuda12.5 2.21.5-1+cuda12.4"
        distribution = "12.0.140~12.0.1-4build4"
        for driver, offered, packages in (
                ("12.8", {"TOOLKITS": toolkits, "NCCLS": nccls}, "cuda-toolkit-12-8 libnccl2=2.26.2-1+cuda12.8 libnccl-dev=2.26.2-1+cuda12.8"),
                ("12.7", {"TOOLKITS": toolkits, "NCCLS": nccls}, "cuda-toolkit-12-4 libnccl2=2.22.3-1+cuda12.5 libnccl-dev=2.22.3-1+cuda12.5"),
                ("13.1", {"TOOLKITS": toolkits, "NCCLS": nccls}, "cuda-toolkit-13-0 libnccl2=2.28.3-1+cuda13.0 libnccl-dev=2.28.3-1+cuda13.0"),
                ("12.2", {"DISTRIBUTION": distribution, "NCCLS": "2.18.5-1-1"}, "nvidia-cuda-toolkit libnccl2=2.18.5-1-1 libnccl-dev=2.18.5-1-1")):
            with self.subTest(driver=driver):
                done, installed = self.run_setup(DRIVER=driver, **offered)
                self.assertEqual((done.returncode, installed), (0, [packages]), done.stderr)

    @unittest.skipIf(Path("/usr/include/nccl.h").exists() or shutil.which("nvcc", path="/usr/bin:/bin"), "CUDA is installed")
    def test_stops_with_the_commands_where_nothing_fits(self):
        for driver, offered, text in (("12.4", {}, "cuda-keyring_1.1-1_all.deb && apt-get update"),
                                      ("12.4", {"TOOLKITS": "12-8 13-0"}, "need a CUDA toolkit of 12.0 to 12.4 and NCCL"),
                                      ("12.4", {"DISTRIBUTION": "11.8.0-5~deb12u1"}, "the GPUs at 0000:17:00.0 need"),
                                      ("12.4", {"TOOLKITS": "12-4", "NCCLS": "2.27.3-1+cuda12.9"}, "and NCCL"),
                                      ("", {"TOOLKITS": "12-4"}, "the GPUs at 0000:17:00.0 have no working driver: nvidia-smi fails")):
            with self.subTest(driver=driver, offered=offered):
                done, installed = self.run_setup(DRIVER=driver, **offered)
                self.assertEqual((done.returncode, installed), (3, []), done.stderr)
                self.assertIn(text, done.stderr)

    @unittest.skipIf(Path("/usr/include/nccl.h").exists() or shutil.which("nvcc", path="/usr/bin:/bin"), "CUDA is installed")
    def test_leaves_cuda_alone_where_it_is_asked_to(self):
        done, installed = self.run_setup(DRIVER="12.8", TOOLKITS="12-8", EGT_INSTALL_CUDA="0")
        self.assertEqual((done.returncode, installed), (0, []), done.stderr)
        self.assertIn("only --backend host will work", done.stderr)

    def test_does_nothing_without_a_gpu(self):
        (self.folder / "bus/0000:17:00.0/vendor").write_text("0x1002\n")
        done, installed = self.run_setup(DRIVER="", TOOLKITS="12-8")
        self.assertEqual((done.returncode, installed, done.stderr), (0, [], ""))
        done, installed = self.run_setup(DRIVER="", MISSING="libfmt-dev")
        self.assertEqual((done.returncode, installed), (0, ["libfmt-dev"]), done.stderr)


CMAKE = """#!/bin/sh
echo "$*" >>log
case $1 in --preset) [ -z "$FAILS" ] && echo "EGT_TESTS:BOOL=${3#*=}" >build/CMakeCache.txt ;; esac
"""


class Build(ProgramTest):
    """scripts/build.sh with another cmake, which writes a log."""

    def build(self, *arguments, **environment):
        """Lines of the log."""
        self.done = subprocess.run([self.folder / "scripts/build.sh", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60,
                                   env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **environment})
        log = (self.folder / "log").read_text().splitlines()
        (self.folder / "log").unlink()
        return log

    def test_cmake_configures_only_after_a_change(self):
        for name in ("scripts", "bin", "build"):
            (self.folder / name).mkdir()
        (self.folder / "scripts/build.sh").symlink_to(ROOT / "scripts/build.sh")
        (self.folder / "bin/cmake").write_text(CMAKE)
        (self.folder / "bin/cmake").chmod(0o755)
        (self.folder / "CMakePresets.json").touch()
        configure, configure_tests, build = "--preset release -DEGT_TESTS=OFF", "--preset release -DEGT_TESTS=ON", "--build --preset release"
        self.assertEqual(self.build(), [configure, build], self.done.stderr)
        self.assertEqual(self.build(), [build])
        self.assertEqual(self.build("--tests"), [configure_tests, build])
        self.assertEqual(self.build(), [configure, build])
        os.utime(self.folder / "CMakePresets.json", (1, 1))
        self.assertEqual(self.build(), [configure, build])
        self.assertEqual(self.build(CUDACXX="/opt/nvcc"), [configure, build])
        self.assertEqual(self.build(CUDACXX="/opt/nvcc"), [build])
        self.assertEqual(self.build(FAILS="1"), [configure])
        self.assertEqual(self.done.returncode, 1)
        self.assertEqual(self.build(CUDACXX="/opt/nvcc"), [configure, build])  # what failed is repeated
        (self.folder / "bin/nvcc").write_text("#!/bin/sh\n")
        (self.folder / "bin/nvcc").chmod(0o755)
        self.assertEqual(self.build(CUDACXX="/opt/nvcc"), [configure, build])  # CUDA was installed by hand


class Container(ProgramTest):
    """scripts/Containerfile. The build is not tested here, because it needs root and a base image."""

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
