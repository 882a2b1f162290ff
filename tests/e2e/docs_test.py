"""README.md and docs/: links resolve, every command has an example, and the program accepts each example."""
import itertools
import re
import shlex

from program import *

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page):
    """The page's text without code blocks."""
    return BLOCK.sub("", page.read_text())


def anchors(page):
    """Anchors of its headings, as GitHub generates them."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def shell_lines(page):
    return [line for kind, block in BLOCK.findall(page.read_text()) if kind == "sh" for line in block.replace("\\\n", " ").splitlines()]


def arguments_of(line):
    """Arguments of the program in a shell line, also through run.sh; nothing if the line does not call it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    names = [at for at, word in enumerate(words) if Path(word).name in ("extreme_gpu_trainer", "run.sh")]
    if not names or words[:2] == ["podman", "build"]:
        return None
    return list(itertools.takewhile(lambda word: not set(word) <= set(";<>|&()"), words[names[0] + 1:]))


class Docs(ProgramTest):
    def test_links_lead_somewhere(self):
        seen = 0
        for page in PAGES:
            links = re.findall(r"\]\(([^)]+)\)", prose(page))
            seen += len(links)
            for link in links:
                if link.startswith("https://"):
                    continue
                with self.subTest(page=page.name, link=link):
                    name, _, anchor = link.partition("#")
                    target = (page.parent / name).resolve() if name else page
                    self.assertTrue(target.exists())
                    self.assertTrue(target.is_relative_to(ROOT))
                    if anchor:
                        self.assertIn(anchor, anchors(target))
        self.assertGreater(seen, 30)

    def test_every_page_is_reached_from_the_readme(self):
        linked = set(re.findall(r"\]\((docs/[^)#]+)", PAGES[0].read_text()))
        self.assertEqual({str(file.relative_to(ROOT)) for file in ROOT.glob("docs/**/*") if file.is_file()} - linked, set())

    def test_files_that_are_named_are_there(self):
        for page in PAGES:
            for path in re.findall(r"(?<![\w/.])((?:scripts|src|tests|include|cmake|presets)/[\w./-]+)", page.read_text()):
                if "NAME" not in path and "MODULE" not in path:
                    self.assertTrue((ROOT / path.rstrip(".")).exists(), f"{page.name}: {path}")

    def test_every_command_has_an_example(self):
        commands = re.findall(r"^  (\w+)  +\w", self.run_program("--help").stdout.split("\n\n")[1], re.MULTILINE)
        self.assertIn("burn", commands)
        given = [arguments[0] for arguments in map(arguments_of, shell_lines(PAGES[0])) if arguments]
        for command in commands:
            self.assertIn(command, given)

    def test_every_mpirun_is_quiet(self):
        """Else Open MPI prints twelve lines below each verdict but pass."""
        texts = {page.name: page.read_text() for page in PAGES if page.name != "CHANGELOG.md"}
        texts |= {str(path.relative_to(ROOT)): path.read_text() for folder in ("src", "scripts") for path in (ROOT / folder).rglob("*")
                  if path.suffix in (".cpp", ".hpp", ".sh", ".example", ".yaml", ".sbatch")}
        seen = 0
        for name, text in texts.items():
            lines = [line for line in text.splitlines() if "mpirun -" in line]
            seen += len(lines)
            for line in lines:
                self.assertIn("mpirun --quiet", line, name)
        self.assertGreater(seen, 30)

    def test_the_pages_state_what_the_program_does(self):
        readme, clusters, commands = ((ROOT / name).read_text() for name in ("README.md", "docs/clusters.md", "docs/commands.md"))
        limits = re.search(r"min_share_of_peers = ([\d.]+), min_share_of_peers_in_memory = ([\d.]+)", (ROOT / "src/workload/links/link_judgement.hpp").read_text())
        share, in_memory = (f"{100 * float(limit):.0f} %" for limit in limits.groups())
        self.assertRegex(commands, rf"\| {share} \| {share}, in host memory {in_memory} \|")
        self.assertIn("137 after a rank was killed", readme)  # plain mpirun, whatever the verdict
        self.assertRegex(clusters, r"`mpirun` \| 137, 134 .*`incomplete` \(4\)")
        self.assertRegex(" ".join(readme.split()), r"To stop a run cleanly, press Ctrl-C where `scripts/run.sh` runs, or `touch node7/stop`")
        self.assertRegex(readme, r"Verified: [\d.]+ [PTG]FLOP of GEMMs")  # the sample output has the program's words
        self.assertNotIn("of products", readme)

    def test_the_program_takes_every_example(self):
        """--print-config checks the options without a run. --resume uses the options of its run."""
        (self.folder / "ours.toml").write_text('preset = "soak"\n')
        seen = 0
        for page in PAGES:
            for line in shell_lines(page):
                arguments = arguments_of(line)
                if not arguments or arguments[0] in ("help", "--resume"):
                    continue
                with self.subTest(page=page.name, line=line):
                    local = [str(self.folder) if word == "/scratch" else word for word in arguments]
                    done = self.run_program(*local, *([] if "--print-config" in local else ["--print-config"]))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    seen += 1
        self.assertGreater(seen, 20)


if __name__ == "__main__":
    unittest.main()
