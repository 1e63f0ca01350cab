"""Whose a call over the unix socket is."""
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import unittest

from api_harness import ApiTestCase, grpc
from harness import ERROR, PATIENCE, PYTHON, SUCCESS, Result, program, wait_until

# Name, id and primary group of the users that the daemon finds in its databases.
USERS = {"ann": (4001, 4100), "bob": (4002, 4100), "cat": (4003, 4101), "4005": (4004, 4101)}
NOBODY_KNOWN = 4077
MAX_USERS = 256

# Makes connections and calls as its user, several at once, and prints how the server names it, each once.
WHO_AM_I = """
import sys, threading, grpc
address, connections, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = set()
def connect():
    for _ in range(connections):
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            start = channel.unary_unary("/lenet.v1.TrainingService/Start")
            for call in [start.future(b"", timeout=120, wait_for_ready=True) for _ in range(calls)]:
                try:
                    call.result()
                    names.add("no error")
                except grpc.RpcError as error:
                    names.add(f"{error.code().name} {error.details()}")
threads = [threading.Thread(target=connect) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("\\n".join(sorted(names)))
"""


def mounts_work():
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "mount", "--bind", "/etc/passwd", "/etc/passwd"],
                                                capture_output=True).returncode == 0


@unittest.skipUnless(mounts_work(), "needs root and mounts, to connect as others and to name them")
class PeersTest(ApiTestCase):
    """The daemon has databases of users and groups of its own in place of /etc/passwd and /etc/group."""

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)
        self.rules = self.folder / "rules"
        self.passwd = self.folder / "passwd"
        self.group = self.folder / "group"
        self.passwd.write_text("root:x:0:0::/root:/bin/sh\n" + "".join(
            f"{name}:x:{uid}:{gid}::/:/bin/sh\n" for name, (uid, gid) in USERS.items()))
        self.write_groups(students="", staff="cat")
        # Others may not reach the build's folder.
        self.client = self.folder / "lenetctl"
        shutil.copy(program("LENETCTL"), self.client)
        wrapper = self.folder / "lenetd"
        wrapper.write_text(f"""#!/bin/sh
exec unshare --mount bash -c 'mount --bind {self.passwd} /etc/passwd && mount --bind {self.group} /etc/group && exec "$0" "$@"' \\
  {shlex.quote(program("LENETD"))} "$@"
""")
        wrapper.chmod(0o755)
        self.addCleanup(os.environ.__setitem__, "LENETD", os.environ["LENETD"])
        os.environ["LENETD"] = str(wrapper)

    def write_groups(self, **members):
        """In place: a mount is of the file that there is."""
        ids = {"students": 4200, "staff": 4201}
        self.group.write_text("root:x:0:\npeople:x:4100:\nothers:x:4101:\n" + "".join(
            f"{name}:x:{ids[name]}:{users}\n" for name, users in members.items()))

    def serve(self, rules, *arguments):
        if rules is not None:
            self.rules.write_text(rules)
            arguments += ("--access-file", self.rules)
        self.log = open(self.folder / "log", "w", encoding="utf-8")
        self.addCleanup(self.log.close)
        self.start_daemon(*arguments, listen=self.address, stderr=self.log)
        os.chmod(self.address.removeprefix("unix:"), 0o666)

    def reload(self, rules):
        """SIGHUP, until it has been obeyed."""
        self.rules.write_text(rules)
        before = self.log_text().count("access rules of")
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log_text().count("access rules of") > before, "the rules are read again")

    def log_text(self):
        return (self.folder / "log").read_text()

    def as_(self, user, *arguments):
        uid, gid = USERS.get(user, (user, 4999))
        done = subprocess.run([self.client, "--server", self.address, *map(str, arguments)], user=uid, group=gid,
                              extra_groups=[], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/",
                              timeout=PATIENCE)
        return Result(done.returncode, done.stdout, done.stderr)

    def submit_as(self, user):
        started = self.as_(user, "submit", "--detach", "--epochs", 10**6, "--evaluate-every", 0)
        self.assertEqual((started.code, started.err), (SUCCESS, ""))
        return started.out.strip()

    def owner(self, user, job):
        shown = self.as_(user, "show", job, "--json")
        self.assertEqual((shown.code, shown.err), (SUCCESS, ""))
        return json.loads(shown.out)["client"]

    def assert_denied(self, result, name, role):
        self.assertEqual((result.code, result.out), (ERROR, ""))
        self.assertIn("PERMISSION_DENIED", result.err)
        self.assertIn(f'"{name}" has the role {role}', result.err)

    def test_users_and_groups_have_roles_and_own_jobs(self):
        self.serve("user 4004 admin\nuser bob submitter\ngroup people viewer\ngroup staff submitter\n"
                   "group 4101 viewer\nunix viewer\n")
        job = self.submit_as("bob")
        self.assertEqual(self.owner("ann", job), "unix:bob")
        # By her primary group.
        self.assert_denied(self.as_("ann", "stop", job), "unix:ann", "viewer")
        # The higher one of her primary and her supplementary group: she may stop a job, but not another's.
        other = self.as_("cat", "stop", job)
        self.assertEqual(other.code, ERROR)
        self.assertIn(f'job {job} is of "unix:bob", and "unix:cat" has the role submitter', other.err)
        self.assert_denied(self.as_(NOBODY_KNOWN, "stop", job), f"unix:{NOBODY_KNOWN}", "viewer")
        own = self.submit_as("cat")
        self.assertEqual(self.owner("bob", own), "unix:cat")
        self.assertEqual(self.as_("cat", "stop", own, "--wait").code, SUCCESS)
        self.assertEqual(self.as_("bob", "pause", job).code, SUCCESS)
        self.assertEqual(self.as_("bob", "resume", job).code, SUCCESS)
        # A name of digits would be another's id.
        third = self.submit_as("4005")
        self.assertEqual(self.owner("ann", third), "unix:4004")
        self.assertEqual(self.as_("4005", "stop", job, "--wait").code, SUCCESS)
        log = self.log_text()
        for line in (f"audit: unix:bob (submitter): Start of job {job}: OK", f"audit: unix:ann: Stop of job {job}: PERM",
                     f"audit: unix:4004 (admin): Stop of job {job}: OK"):
            self.assertIn(line, log)

    def test_without_rules_jobs_still_have_owners(self):
        self.serve(None)
        for user, name in (("ann", "unix:ann"), (NOBODY_KNOWN, f"unix:{NOBODY_KNOWN}")):
            self.assertEqual(self.owner("bob", self.submit_as(user)), name)

    def test_a_token_goes_before_the_user(self):
        made = subprocess.run([program("LENETD"), "token", "add", "robot", "--role", "submitter", "--access-file",
                               self.rules], capture_output=True, text=True, check=True)
        (self.folder / "token").write_text(made.stdout)
        (self.folder / "token").chmod(0o644)
        self.serve(self.rules.read_text() + "user ann viewer\n")
        started = self.as_("ann", "--token-file", self.folder / "token", "submit", "--detach", "--max-steps", 3)
        self.assertEqual(started.code, SUCCESS, started.err)
        self.assertEqual(self.owner("ann", started.out.strip()), "robot")

    def test_sighup_changes_roles_on_open_connections(self):
        with grpc.insecure_channel(self.address) as channel:
            states = []
            channel.subscribe(states.append)
            start = channel.unary_unary("/lenet.v1.TrainingService/Start")

            def code():
                with self.assertRaises(grpc.RpcError) as refused:
                    start(b"", timeout=PATIENCE, wait_for_ready=True)
                return refused.exception.code()

            self.serve("group staff submitter\nunix viewer\n")
            self.assertEqual(code(), grpc.StatusCode.PERMISSION_DENIED)
            wait_until(lambda: grpc.ChannelConnectivity.READY in states, "the channel tells that it is connected")
            # The rules stay, the group has another member.
            self.write_groups(students="", staff="cat,root")
            self.assertEqual(code(), grpc.StatusCode.PERMISSION_DENIED)
            self.reload("group staff submitter\nunix viewer\n")
            self.assertEqual(code(), grpc.StatusCode.INVALID_ARGUMENT)  # it has no spec, but could have
            self.reload("group staff viewer\nunix submitter\n")
            self.assertEqual(code(), grpc.StatusCode.PERMISSION_DENIED)
            self.reload("user root submitter\ngroup staff viewer\n")
            self.assertEqual(code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(states.count(grpc.ChannelConnectivity.READY), 1, states)

    def test_many_connections_of_many_users_are_told_apart(self):
        script = self.folder / "who_am_i.py"
        script.write_text(WHO_AM_I)
        self.serve("unix viewer\n")
        ids = [uid for uid, _ in USERS.values()] + [NOBODY_KNOWN, NOBODY_KNOWN + 1]
        names = {uid: f"unix:{name}" for name, (uid, _) in USERS.items() if not name.isdigit()}
        clients = [(uid, subprocess.Popen([PYTHON, "-B", script, self.address, "8", "10"], user=uid, group=4999,
                                          extra_groups=[], stdout=subprocess.PIPE, text=True, cwd="/"))
                   for uid in ids]
        for uid, client in clients:
            with self.subTest(uid=uid):
                out, _ = client.communicate(timeout=PATIENCE)
                name = names.get(uid, f"unix:{uid}")
                self.assertEqual(out, f'PERMISSION_DENIED "{name}" has the role viewer; this call needs submitter\n')

    def test_a_passed_socket_tells_users_apart_too(self):
        path = self.address.removeprefix("unix:")
        with socket.socket(socket.AF_UNIX) as passed:
            passed.bind(path)
            os.chmod(path, 0o666)
            passed.listen()
            # As systemd passes it: descriptor 3, and the process's own id.
            wrapper = pathlib.Path(os.environ["LENETD"])
            wrapper.write_text(wrapper.read_text().replace('exec "$0"', f'exec 3<&{passed.fileno()}; '
                                                           'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0"'))
            self.rules.write_text("user bob submitter\nunix viewer\n")
            daemon = subprocess.Popen([wrapper, "--state-dir", self.folder / "state", "--data-dir", self.data_dir,
                                       "--metrics-listen", "off", "--access-file", self.rules, "--plugin-dir",
                                       os.environ["LENET_PLUGINS"], "--backend", "cpu"],
                                      pass_fds=[passed.fileno()], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        job = self.submit_as("bob")
        self.assertEqual(self.owner("ann", job), "unix:bob")
        self.assert_denied(self.as_("ann", "stop", job), "unix:ann", "viewer")

    def test_one_user_too_many_is_turned_away(self):
        self.serve("unix viewer\n")
        path = self.address.removeprefix("unix:")
        connections = []
        self.addCleanup(lambda: [connection.close() for connection in connections])

        def connect(uid):
            connection = socket.socket(socket.AF_UNIX)
            connections.append(connection)
            connection.settimeout(PATIENCE)
            os.seteuid(uid)
            try:
                connection.connect(path)
            finally:
                os.seteuid(0)
            return connection

        # A server of HTTP/2 says something first.
        for uid in range(5000, 5000 + MAX_USERS):
            self.assertTrue(connect(uid).recv(1), uid)
        self.assertEqual(connect(5000 + MAX_USERS).recv(1), b"")
        self.assertTrue(connect(5000).recv(1))
        wait_until(lambda: f"refusing connections: unix:{5000 + MAX_USERS} is one user too many: {MAX_USERS} others" in
                   self.log_text(), "the log names the bound")
        self.assertEqual(self.as_(5000, "info").code, SUCCESS)


if __name__ == "__main__":
    unittest.main()
