#!/usr/bin/env python3
"""Writes a manual page: a template, whose lines "@WHAT ARGUMENTS@" become what the programs tell of themselves.

  @options PROGRAM [COMMAND...]@      the flags that its --help lists
  @commands PROGRAM [COMMAND...]@     a section for it, or for each of its commands if it has some
  @exit_codes PROGRAM [COMMAND...]@   those that its --help lists
  @settings FILE@                     the keys of the example of a configuration file
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDENT = 30  # where CLI11's descriptions begin


def escaped(text):
    """Text as it is, in roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha")
    return text.replace("~", "\\(ti").replace("'", "\\(aq").replace('"', "\\(dq")


def paragraph(text):
    text = escaped(text)
    return f"\\&{text}" if text.startswith(".") else text


def bold(text):
    return f"\\fB{escaped(text)}\\fR"


def italic(text):
    return f"\\fI{escaped(text)}\\fR"


class Help:
    """What a program's --help says, as CLI11 lays it out."""

    def __init__(self, programs, words):
        self.words = words
        # The defaults are those of the service, not of the one who builds.
        done = subprocess.run([programs[words[0]], *words[1:], "--help"], env={"RUNTIME_DIRECTORY": "/run/lenet"},
                              capture_output=True, text=True, check=True)
        self.lines = done.stdout.splitlines()
        self.description = self.lines[0]
        usage = next(line for line in self.lines if line.startswith("Usage: "))
        self.synopsis = re.sub(r"^Usage: .*?(?= \[OPTIONS\])", " ".join(words), usage)
        self.groups = {}  # entries by their heading
        self._read()

    def _read(self):
        group = None
        for i, line in enumerate(self.lines):
            if line.endswith(":") and not line.startswith(" "):
                group = self.groups.setdefault(line[:-1], [])
            elif not line.startswith("  "):
                group = group if not line else None
            elif group is not None and not line.startswith(" " * INDENT):
                following = self.lines[i + 1] if i + 1 < len(self.lines) else ""
                if following.startswith(" " * INDENT):
                    group.append((line.strip(), following.strip()))
                else:
                    group.append((line[:INDENT].strip(), line[INDENT:].strip()))

    def commands(self):
        return [name for name, _ in self.groups.get("Subcommands", [])]

    def options(self):
        """The flags and arguments, by their heading."""
        return {heading: entries for heading, entries in self.groups.items() if heading != "Subcommands"}

    def exit_codes(self):
        text = re.search(r"Exit codes: (.*?)\.(\s|$)", " ".join(self.lines))[1]
        return re.findall(r"(\d+) ([^;]+)", text)


def option(name, description):
    """An option's entry from "--listen TEXT:{a,b}=DEFAULT (Env:VARIABLE) REQUIRED Excludes: --other"."""
    name, *excluded = re.split(r" (?:Excludes|Needs): ", name)
    name, required = re.subn(r" REQUIRED", "", name)
    variable = re.search(r" \(Env:(\w+)\)", name)
    name = re.sub(r" \(Env:\w+\)", "", name)
    flags, _, value = name.partition(" ")
    value, _, default = value.partition("=")
    value, _, accepted = value.partition(":") if re.match(r"(TEXT|INT|UINT|FLOAT):", value) else (value, "", "")

    sentences = [description]
    if accepted:
        sentences.append("One of " + accepted.strip("{}").replace(",", ", ") if accepted.startswith("{") else
                         "Accepts " + re.sub(r"^[A-Z]+ in \[(.*) - (.*)\]$", r"\1 to \2", accepted))
    if required:
        sentences.append("Has to be given")
    if excluded:
        sentences.append("Not together with " + excluded[0])
    if default and not default.startswith(str(ROOT)):
        sentences.append("Default: " + default)
    if variable:
        sentences.append("In the environment: " + variable[1])
    heading = ", ".join(bold(flag) for flag in flags.split(","))
    return [".TP", f"{heading} {italic(value)}" if value else heading, paragraph(". ".join(sentences) + ".")]


def options(text):
    lines = []
    for heading, entries in text.options().items():
        if not entries:
            continue
        if heading not in ("Options", "Positionals"):
            lines += [".PP", f"{bold(heading)}"]
        for name, description in entries:
            if len(text.words) == 1 or not name.startswith("-h,"):
                lines += option(name, description)
    return lines


def commands(programs, words):
    text = Help(programs, words)
    if text.commands():
        return [line for name in text.commands() for line in commands(programs, [*words, name])]
    description = text.description if text.description.endswith(".") else text.description + "."
    return [f".SS {bold(' '.join(words))}", bold(text.synopsis), ".PP", paragraph(description), *options(text)]


def exit_codes(text):
    lines = []
    for code, meaning in text.exit_codes():
        lines += [".TP", bold(code), paragraph(meaning[0].upper() + meaning[1:] + ".")]
    return lines


def settings(file):
    lines = []
    comment = []
    for line in file.read_text().splitlines():
        key = re.match(r"#(\w+ = .*)", line)
        if line.startswith("["):
            lines += [f".SS {bold(line)}"]
        elif key and comment:
            lines += [".TP", bold(key[1]), paragraph(" ".join(comment))]
            comment = []
        elif key:  # described together with the one before
            lines[-1:-1] = [".TQ", bold(key[1])]
        elif line.startswith("# "):
            comment.append(line[2:])
        else:
            comment = []
    return lines


def expand(what, programs):
    word, *arguments = what.split()
    if word == "settings":
        return settings(ROOT / arguments[0])
    if word == "commands":
        return commands(programs, arguments)
    return {"options": options, "exit_codes": exit_codes}[word](Help(programs, arguments))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("template", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--program", action="append", default=[], metavar="NAME=PATH")
    arguments = parser.parse_args()
    programs = dict(program.split("=", 1) for program in arguments.program)
    lines = []
    for line in arguments.template.read_text().splitlines():
        macro = re.fullmatch(r"@(.*)@", line)
        lines += expand(macro[1], programs) if macro else [line.replace("@VERSION@", arguments.version)]
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
