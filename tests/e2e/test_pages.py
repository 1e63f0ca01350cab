"""The manual pages: what the programs tell of themselves, and no more."""
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import ROOT, class_folder, install, program

# The commands of lenetd, which its --help tells of in words.
LENETD_COMMANDS = (["selftest"], ["token", "add"])


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, **options).stdout


def flags_of(name, *words):
    """All flags of a program, also of its commands, as its --help lists them."""
    text = run(program(name), *words, "--help")
    flags = set()
    for line in re.findall(r"^  (-\S+)", text, re.MULTILINE):
        flags |= set(re.findall(r"--[\w-]+", line))
    if "Subcommands:" in text:
        for command in re.findall(r"^  (\w\S*)", text.split("Subcommands:")[1], re.MULTILINE):
            flags |= flags_of(name, *words, command)
    return flags


def entries(page):
    """The headings of a page's entries, as they are read."""
    lines = page.read_text().splitlines()
    headings = [lines[i + 1] for i, line in enumerate(lines) if line in (".TP", ".TQ")]
    plain = [re.sub(r"\\f[BIR]", "", heading).replace("\\-", "-") for heading in headings]
    return [heading.replace("\\(dq", '"').replace("\\(ti", "~") for heading in plain]


class PagesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = class_folder(cls)
        install(cls.folder)
        cls.man = cls.folder / "share/man"

    def test_the_pages_have_every_flag_and_no_other(self):
        lenetd = flags_of("LENETD").union(*(flags_of("LENETD", *words) for words in LENETD_COMMANDS))
        self.assertIn("--max-queued", lenetd)
        self.assertIn("--reference", lenetd)
        self.assertEqual(self.flags_in("man8/lenetd.8"), lenetd)
        # A sanitizer's build may take another's lenetctl for the tests.
        lenetctl = flags_of("LENETCTL")
        self.assertIn("--target-accuracy", lenetctl)
        self.assertEqual(self.flags_in("man1/lenetctl.1"), lenetctl)

    def flags_in(self, page):
        return {flag for entry in entries(self.man / page) for flag in re.findall(r"(?:^|, )(--[\w-]+)", entry)}

    def test_the_page_has_every_setting_and_no_other(self):
        text = run(program("LENETD"), "--config", "/dev/null", "--check-config")
        known = re.findall(r"^(\w+) = ", text, re.MULTILINE)
        self.assertIn("max_queued", known)
        described = [entry.split(" = ")[0] for entry in entries(self.man / "man5/lenetd.toml.5")]
        self.assertEqual(described, known)

    def test_the_pages_say_nothing_of_the_build(self):
        for page in self.pages():
            text = page.read_text()
            self.assertNotIn(str(ROOT).replace("-", "\\-"), text)
            self.assertNotIn(str(pathlib.Path.home()) + "/", text)
            self.assertIsNone(re.search(r"^@|@$|@VERSION@", text, re.MULTILINE))

    def pages(self):
        pages = sorted(self.man.rglob("*.*"))
        self.assertEqual([page.name for page in pages], ["lenetctl.1", "lenetd.toml.5", "lenetd.8"])
        return pages

    def test_the_default_address_is_that_of_the_service(self):
        self.assertIn("unix:/run/lenet/lenetd.sock", self.pages()[2].read_text())

    def test_troff_finds_no_fault(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        for page in self.pages():
            self.assertEqual(self.complaints(page), "", page)
        bad = self.folder / "bad.8"
        bad.write_text(self.pages()[0].read_text() + ".nosuchmacro\n")
        self.assertIn("nosuchmacro", self.complaints(bad))

    def complaints(self, page):
        return subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", page], capture_output=True, text=True,
                              check=False, timeout=120).stderr


if __name__ == "__main__":
    unittest.main()
