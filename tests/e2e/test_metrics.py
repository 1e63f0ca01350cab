"""What Prometheus gets of a daemon: the values of a scrape, and that alerts and dashboard use nothing else.

LENET_SHORT_JOBS: how many jobs come and go without leaving a series.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.request

from harness import ERROR, PATIENCE, ROOT, TestCase, wait_until

SHORT_JOBS = int(os.environ.get("LENET_SHORT_JOBS", "300"))
DEPLOY = ROOT / "deploy"
LENETD_LISTEN = 4
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# They come from the driver: no series without a GPU.
GPU_METRICS = re.compile(r"lenet_gpu_")


def parse(text):
    """{name: {labels as a frozenset of pairs: value}} of an exposition; no series may stand twice."""
    series = collections.defaultdict(dict)
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.match(line)
        if not match:
            raise AssertionError(f"no sample: {line!r}")
        labels = frozenset(LABEL.findall(match[2] or ""))
        if labels in series[match[1]]:
            raise AssertionError(f"twice: {line!r}")
        series[match[1]][labels] = float(match[3])
    return series


def names_in(expression):
    """The metrics that a PromQL expression names, but for `up`, which is Prometheus' own."""
    return set(re.findall(r"\b(?:lenet|grpc_server|process)_[a-z0-9_]+", expression))


def described(text):
    """The names that a scrape's HELP lines have, with those that a histogram's samples get."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {name + suffix for suffix in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return names


class ScrapingTest(TestCase):

    def start_with_metrics(self, *arguments):
        log = self.folder / f"log-{len(list(self.folder.iterdir()))}"
        with log.open("w") as stderr:
            self.start_daemon(*arguments, metrics="127.0.0.1:0", stderr=stderr)
        self.url = re.search(r"metrics: (http://\S+)", log.read_text())[1]

    def text(self):
        with urllib.request.urlopen(self.url, timeout=PATIENCE) as answer:
            self.assertEqual(answer.status, 200)
            return answer.read().decode()

    def scrape(self):
        return parse(self.text())

    def value(self, name, scrape=None, **labels):
        """Of one series; 0 if there is none."""
        return (scrape or self.scrape())[name].get(frozenset(labels.items()), 0)

    def handled(self, method, code="OK"):
        return self.value("grpc_server_handled_total", grpc_service="lenet.v1.TrainingService", grpc_method=method,
                          grpc_code=code)

    def per_device(self, name):
        return sum(self.scrape()[name].values())


class MetricsTest(ScrapingTest):

    def test_counts_what_jobs_and_clients_do(self):
        self.start_with_metrics()
        before = self.scrape()
        self.assertEqual(before["lenet_jobs"][frozenset({("state", "SUCCEEDED")})], 0)
        self.assertNotIn("lenet_job_loss", before)
        for _ in range(2):
            self.must("submit", "--ranks", 2, "--max-steps", 20, "--batch-size", 16)
        self.assertEqual(self.lenetctl("show", "0" * 16).code, ERROR)

        after = self.scrape()
        self.assertEqual(self.value("lenet_jobs", after, state="SUCCEEDED"), 2)
        self.assertEqual(self.value("lenet_jobs_accepted_total", after), 2)
        self.assertEqual(self.value("lenet_jobs_ended_total", after, state="SUCCEEDED"), 2)
        self.assertEqual(self.value("lenet_jobs_ended_total", after, state="FAILED"), 0)
        self.assertEqual(self.per_device("lenet_device_steps_total"), 2 * 2 * 20)
        self.assertEqual(self.per_device("lenet_device_images_total"), 2 * 2 * 20 * 16)
        self.assertEqual(self.value("lenet_step_duration_seconds_count", after), 2 * 2 * 20)
        self.assertGreater(self.value("lenet_step_duration_seconds_sum", after), 0)
        self.assertEqual(self.value("lenet_job_queue_wait_seconds_count", after), 2)
        self.assertEqual(self.handled("Start"), 2)
        self.assertEqual(self.handled("StreamMetrics"), 2)
        self.assertEqual(self.handled("GetJob", "NOT_FOUND"), 1)
        self.assertEqual(self.value("grpc_server_handling_seconds_count", after, grpc_method="Start",
                                    grpc_service="lenet.v1.TrainingService"), 2)
        self.assertGreater(self.value("lenet_stream_sent_bytes_total", after), 0)
        self.assertEqual(self.value("lenet_store_write_duration_seconds_count", after, operation="create"), 2)
        self.assertEqual(sum(after["lenet_store_failures_total"].values()), 0)
        memory = self.daemon.proc_status()[0]
        self.assertLess(abs(self.value("process_resident_memory_bytes", after) - memory), memory / 2)
        buckets = {dict(labels)["le"]: count for labels, count in after["lenet_step_duration_seconds_bucket"].items()}
        self.assertEqual(buckets["+Inf"], 2 * 2 * 20)

    def test_a_jobs_loss_is_there_while_it_runs_and_gone_after(self):
        self.start_with_metrics()
        job = self.endless_job("--ranks", 2)
        waiting = self.submit_detached("--ranks", 2)
        live = self.scrape()
        losses = live["lenet_job_loss"]
        self.assertEqual(set(losses), {frozenset({("job_id", job), ("rank", str(rank))}) for rank in range(2)})
        for loss in losses.values():
            self.assertTrue(0 < loss < 100, loss)
        self.assertGreater(self.value("lenet_job_step", live, job_id=job), 0)
        self.assertEqual(self.value("lenet_jobs", live, state="RUNNING"), 1)
        self.assertEqual(self.value("lenet_jobs", live, state="QUEUED"), 1)
        self.assertGreater(sum(live["lenet_device_busy"].values()), 0)
        watcher = self.follow("watch", job, "--json")
        wait_until(lambda: self.value("lenet_stream_subscribers") == 1, "the stream is counted")
        self.assertEqual(self.value("lenet_rpcs_in_flight", grpc_service="lenet.v1.TrainingService",
                                    grpc_method="StreamMetrics"), 1)
        self.must("stop", waiting, "--wait")
        self.must("stop", job, "--wait")
        watcher.finish()
        wait_until(lambda: "lenet_job_loss" not in self.scrape(), "the job's series are gone")
        text = self.text()
        self.assertNotIn(job, text)
        self.assertNotIn(waiting, text)
        self.assertEqual(self.value("lenet_jobs_ended_total", state="STOPPED"), 2)
        wait_until(lambda: self.value("lenet_stream_subscribers") == 0, "the stream is gone")

    def test_jobs_leave_no_series(self):
        self.start_with_metrics()

        def run(jobs):
            ids = [self.submit_detached("--max-steps", 2, "--evaluate-every", 0) for _ in range(jobs)]
            wait_until(lambda: self.value("lenet_jobs", state="SUCCEEDED") == run.total + jobs, "the jobs end")
            run.total += jobs
            wait_until(lambda: "lenet_job_step" not in self.scrape(), "their series are gone")
            self.assertEqual(len(set(ids)), jobs)

        run.total = 0

        def series():
            return {(name, labels) for name, samples in self.scrape().items() for labels in samples}

        run(3)
        few = series()
        run(SHORT_JOBS)
        self.assertEqual(series(), few)
        self.assertEqual(self.value("lenet_jobs_ended_total", state="SUCCEEDED"), SHORT_JOBS + 3)
        self.assertEqual(self.value("lenet_jobs", state="SUCCEEDED"), SHORT_JOBS + 3)

    def test_jobs_by_state_outlive_the_daemon(self):
        self.start_with_metrics()
        self.must("submit", "--max-steps", 2)
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(), 0)
        self.start_with_metrics()
        self.assertEqual(self.value("lenet_jobs", state="SUCCEEDED"), 1)
        self.assertEqual(self.value("lenet_jobs_ended_total", state="SUCCEEDED"), 0)

    def test_an_address_that_is_taken_fails_the_start(self):
        self.start_with_metrics()
        address = re.search(r"//([^/]+)/", self.url)[1]
        done = subprocess.run([os.environ["LENETD"], "--listen", "127.0.0.1:0", "--state-dir", self.folder / "second",
                               "--data-dir", self.data_dir, "--backend", "cpu", "--plugin-dir",
                               os.environ["LENET_PLUGINS"], "--metrics-listen", address],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, LENETD_LISTEN)
        self.assertIn("--metrics-listen", done.stderr)
        self.assertIn(address, done.stderr)
        self.assertIn("Address already in use", done.stderr)
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(self.url.replace("/metrics", "/"), timeout=PATIENCE)

    def test_alerts_and_dashboard_name_what_there_is(self):
        self.start_with_metrics()
        job = self.submit_detached("--epochs", 10**6)
        wait_until(lambda: "lenet_job_accuracy_ratio" in self.scrape(), "the job is evaluated")
        known = described(self.text())
        self.must("stop", job, "--wait")
        alerts = (DEPLOY / "prometheus-alerts.yml").read_text()
        dashboard = json.loads((DEPLOY / "grafana" / "lenet.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(expressions), 20)
        for what, text in (("alerts", alerts), ("dashboard", "\n".join(expressions))):
            named = names_in(text)
            self.assertGreater(len(named), 8, what)
            missing = {name for name in named - known if not GPU_METRICS.match(name)}
            self.assertEqual(missing, set(), what)
        # Those of GPUs stand where they are made, and every name in the table of server/README.md.
        source = (ROOT / "server" / "monitoring" / "collector.cc").read_text()
        table = (ROOT / "server" / "README.md").read_text()
        made = set(re.findall(r'"((?:lenet|grpc_server|process)_[a-z0-9_]+)"', source))
        self.assertEqual({name for name in names_in(alerts + "\n".join(expressions)) if GPU_METRICS.match(name)} - made,
                         set())
        self.assertEqual({name for name in made if f"`{name}`" not in table}, set())


@unittest.skipUnless(shutil.which("promtool"), "needs promtool, of the package prometheus")
class PromtoolTest(ScrapingTest):

    def promtool(self, *arguments, **options):
        done = subprocess.run(["promtool", "check", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                              **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_configuration_and_the_rules_are_sound(self):
        self.assertIn("SUCCESS", self.promtool("config", DEPLOY / "prometheus.yml"))
        rules = pathlib.Path(DEPLOY / "prometheus-alerts.yml")
        count = rules.read_text().count("- alert:")
        self.assertIn(f"{count} rules found", self.promtool("rules", rules))

    def test_a_scrape_is_sound(self):
        self.start_with_metrics()
        job = self.endless_job("--ranks", 2)
        text = self.text()
        self.assertIn(f'job_id="{job}"', text)
        self.assertEqual(self.promtool("metrics", input=text), "")
        self.must("stop", job, "--wait")


if __name__ == "__main__":
    unittest.main()
