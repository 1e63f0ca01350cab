"""What the Debian packages are made of, as far as it can be told without root: the components of the installation, the
scripts, and the files that containers take. tests/soak/packages.sh installs them."""
import os
import re
import subprocess
import unittest

from harness import ROOT, class_folder, install, program

PACKAGE = ROOT / "deploy/package"
DOCKER = ROOT / "deploy/docker"


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


class PackagesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = class_folder(cls)
        for component in ("lenetd", "lenetctl", "lenetd-cuda"):
            install(cls.folder / component, "--component", component)
        install("/usr", "--component", "lenetd-package", env={**os.environ, "DESTDIR": str(cls.folder / "extra")})
        install(cls.folder / "all")

    def test_the_components_are_the_whole_installation(self):
        whole = files_below(self.folder / "all")
        parts = [files_below(self.folder / part) for part in ("lenetd", "lenetctl", "lenetd-cuda")]
        self.assertEqual(set().union(*parts), whole)
        self.assertEqual(sum(map(len, parts)), len(whole))

    def test_what_is_in_which(self):
        lenetd = files_below(self.folder / "lenetd")
        for file in ("bin/lenetd", "lib/lenet/liblenet_cpu.so", "lib/lenet/wait-for-nvidia",
                     "lib/systemd/system/lenetd.service", "lib/systemd/system/lenetd.socket",
                     "lib/sysusers.d/lenet.conf", "share/lenet/lenetd.toml", "share/man/man8/lenetd.8",
                     "share/man/man5/lenetd.toml.5", "share/doc/lenetd/examples/prometheus.yml",
                     "share/doc/lenetd/examples/lenet.json"):
            self.assertIn(file, lenetd)
        self.assertEqual(files_below(self.folder / "lenetctl"), {
            "bin/lenetctl", "share/man/man1/lenetctl.1", "share/bash-completion/completions/lenetctl",
            "share/zsh/site-functions/_lenetctl", "share/fish/vendor_completions.d/lenetctl.fish"})
        self.assertLessEqual(files_below(self.folder / "lenetd-cuda"), {"lib/lenet/liblenet_cuda.so"})

    def test_the_configuration_file_is_the_administrators(self):
        conffiles = (PACKAGE / "lenetd/conffiles").read_text().split()
        self.assertEqual(conffiles, ["/etc/lenet/lenetd.toml"])
        for file in conffiles:
            self.assertEqual((self.folder / "extra" / file[1:]).read_text(), (ROOT / "deploy/lenetd.toml").read_text())
        self.assertEqual({file for file in files_below(self.folder / "extra") if file.startswith("etc/")},
                         {file[1:] for file in conffiles})

    def test_the_scripts_are_shells(self):
        for script in ("lenetd/postinst", "lenetd/prerm", "lenetd/postrm", "lenetd-cuda/postinst"):
            subprocess.run(["sh", "-n", PACKAGE / script], check=True)
            self.assertTrue((PACKAGE / script).stat().st_mode & 0o111, script)


class ContainersTest(unittest.TestCase):

    def test_what_the_images_copy_is_there(self):
        copied = re.findall(r"^COPY (\S+) ", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
        self.assertIn("deploy/docker/install.sh", copied)
        for source in copied:
            self.assertTrue((ROOT / source).exists(), source)
        run = re.findall(r"source=/src/(\S+?),", (DOCKER / "Dockerfile").read_text())
        self.assertEqual(set(run), {"build/packages"})
        self.assertIn('"packageDirectory": "${sourceDir}/build/packages"', (ROOT / "CMakePresets.json").read_text())

    def test_what_compose_mounts_is_there(self):
        text = (DOCKER / "compose.yaml").read_text()
        mounted = re.findall(r"^ +- (\.\S+?):/", text, re.MULTILINE)
        self.assertIn("../grafana/lenet.json", mounted)
        for source in mounted:
            self.assertTrue((DOCKER / source).is_file(), source)
        # An image's stage is what compose builds.
        stages = re.findall(r"^FROM \S+ AS (\S+)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
        for file in ("compose.yaml", "compose.cuda.yaml"):
            self.assertIn(re.search(r"target: (\S+)", (DOCKER / file).read_text())[1], stages)

    def test_their_variables_are_settings(self):
        text = "".join((DOCKER / name).read_text() for name in ("Dockerfile", "compose.yaml", "compose.cuda.yaml"))
        variables = {name: "1" for name in re.findall(r"\bLENETD_\w+", text)}
        self.assertIn("LENETD_STATE_DIR", variables)
        variables["LENETD_NOSUCH"] = "1"
        done = subprocess.run([program("LENETD"), "--check-config"], env={"LENETD_CONFIG": "/dev/null", **variables},
                              capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(re.findall(r"(LENETD_\w+).*there is no such setting", done.stderr), ["LENETD_NOSUCH"])

    def test_the_stop_waits_longer_than_the_drain(self):
        text = subprocess.run([program("LENETD"), "--help"], capture_output=True, text=True, check=True).stdout
        drain = int(re.search(r"--drain-timeout\D*?(\d+)", text)[1])
        grace = int(re.search(r"stop_grace_period: (\d+)s", (DOCKER / "compose.yaml").read_text())[1])
        self.assertGreater(grace, drain + 15 + 5)


if __name__ == "__main__":
    unittest.main()
