"""What shells complete."""
import os
import pathlib
import shlex
import shutil
import subprocess
import unittest

from harness import PATIENCE, USAGE, TestCase, program


class CompletionTest(TestCase):

    def setUp(self):
        super().setUp()
        self.start_daemon()
        (self.folder / "bin").mkdir()
        (self.folder / "bin/lenetctl").symlink_to(pathlib.Path(program("LENETCTL")).resolve())
        self.environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "LENET_SERVER":
                            self.daemon.address}

    def run_shell(self, shell, script):
        done = subprocess.run([shell, "-c", script], env=self.environment, cwd=self.folder, capture_output=True,
                              text=True, check=True, timeout=PATIENCE)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def bash(self, *words):
        line = " ".join(map(shlex.quote, words))
        return self.run_shell("bash", f"source <(lenetctl completion bash); COMP_WORDS=(lenetctl {line}); "
                              "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lenetctl; printf '%s\\n' \"${COMPREPLY[@]}\"")

    def test_bash_completes_commands_flags_files_and_jobs(self):
        jobs = {self.submit_detached("--max-steps", 3) for _ in range(2)}
        self.assertEqual(self.bash("sto"), ["stop"])
        self.assertIn("submit", self.bash(""))
        self.assertEqual(self.bash("submit", "--epo"), ["--epochs"])
        self.assertEqual(self.bash("submit", "--serv"), ["--server"])
        self.assertEqual(self.bash("info", "--epo"), [])
        self.assertEqual(self.bash("submit", "--epochs", ""), [])
        self.assertIn("data", self.bash("info", "--ca", "da"))
        for command in ("watch", "stop", "rm"):
            self.assertEqual(set(self.bash(command, "")), jobs)
        self.assertEqual(self.bash("--json", "stop", "--wa"), ["--wait"])
        self.assertEqual(self.bash("completion", "z"), ["zsh"])
        self.make_contexts()
        self.assertEqual(self.bash("cont"), ["context"])
        self.assertEqual(self.bash("context", "u"), ["use"])
        for words in (("context", "use"), ("context", "show"), ("--context",), ("list", "--context")):
            self.assertEqual(self.bash(*words, ""), ["a.1", "b"])
        self.assertEqual(self.bash("context", "set", "b", "--serv"), ["--server"])
        self.assertEqual(set(self.bash("show", "")), jobs)
        self.daemon.kill()
        self.assertEqual(self.bash("stop", ""), [])

    def make_contexts(self):
        self.environment["LENETCTL_CONFIG"] = str(self.folder / "contexts")
        for name in ("b", "a.1"):
            subprocess.run([program("LENETCTL"), "context", "set", name, "--server", "host:1"], env=self.environment,
                           stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)

    @unittest.skipUnless(shutil.which("fish"), "needs fish")
    def test_fish_completes_the_same(self):
        job = self.submit_detached("--max-steps", 3)

        def complete(line):
            return self.run_shell("fish", f"lenetctl completion fish | source; complete -C {shlex.quote(line)} | "
                                  "string replace -r '\\t.*' ''; true")

        self.assertEqual(complete("lenetctl sto"), ["stop"])
        self.assertEqual(complete("lenetctl submit --epo"), ["--epochs"])
        self.assertIn(job, complete("lenetctl stop "))
        self.make_contexts()
        self.assertEqual(complete("lenetctl context u"), ["use"])
        self.assertEqual(set(complete("lenetctl context ")), {"list", "show", "use", "set", "remove"})
        for line in ("context use ", "context show ", "list --context "):
            self.assertEqual(set(complete("lenetctl " + line)), {"a.1", "b"}, line)
        self.assertIn(job, complete("lenetctl show "))

    @unittest.skipUnless(shutil.which("zsh"), "needs zsh")
    def test_zsh_takes_the_script(self):
        script = "autoload -U compinit; compinit -D; source =(lenetctl completion zsh); print ${+_comps[lenetctl]}"
        self.assertEqual(self.run_shell("zsh", script), ["1"])

    def test_another_shell_is_named(self):
        result = self.lenetctl("completion", "tcsh")
        self.assertEqual(result.code, USAGE)
        self.assertIn("tcsh", result.err)


if __name__ == "__main__":
    unittest.main()
