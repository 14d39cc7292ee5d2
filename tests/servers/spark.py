"""A real Spark cluster on this machine: a master and two workers, each a process, and a session on them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.machine import answers, end_with_parent, free_port, java, reap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 600  # a limit, for machines that are busy; the start itself is waited for
SMALL_HEAP = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"  # short lives: start quickly, stay small
LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass
class SparkCluster:
    """The processes of the cluster, and the session that uses it."""

    folder: Path
    master: str
    environment: Mapping[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    session: SparkSession | None = None

    def start_worker(self) -> None:
        """Add a worker of one core; the session waits for its executor when it has work for it."""
        number = len(self.daemons)
        log = self.folder / f"worker-{number}.log"
        size = ["--cores", "1", "--memory", "600M", "--work-dir", str(self.folder / f"work-{number}")]
        self.workers.append(self._daemon("org.apache.spark.deploy.worker.Worker", [*size, self.master], log))

    def start_master(self) -> None:
        """Start the master and wait until its port answers."""
        log, port = self.folder / "master.log", self.master.rpartition(":")[2]
        master = self._daemon("org.apache.spark.deploy.master.Master", ["--port", port], log)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and master.poll() is None:
            if answers(int(port)):
                return
            time.sleep(0.05)
        raise RuntimeError(f"Spark did not start: {log.read_text(errors='replace').strip()[-2000:]}")

    def kill_worker(self, number: int = 0) -> None:
        """Lose a worker and its executor as a power cut would; their process group dies with them."""
        worker = self.workers[number]
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def restore(self) -> None:
        """Put a new worker in the place of every lost one."""
        for lost in [worker for worker in self.workers if worker.poll() is not None]:
            self.workers.remove(lost)
            self.start_worker()
        until = time.monotonic() + START_SECONDS
        while self.executors() < len(self.workers) and time.monotonic() < until:
            time.sleep(0.1)

    def executors(self) -> int:
        """Return how many executors the session has."""
        assert self.session is not None
        # the driver counts itself
        return len(self.session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1

    def stop(self) -> None:
        """End the session and every process."""
        try:
            stop_session(self.session)
        finally:
            for daemon in self.daemons:
                end_group(daemon)
            end_children_of(self.folder)

    def _daemon(self, name: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Start one of Spark's own programs in a process group of its own."""
        program = Path(self.environment["SPARK_HOME"], "bin", "spark-class")
        address = ["--host", "127.0.0.1", "--webui-port", "0"]
        with log.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603
                [program, name, *address, *arguments],
                env=self.environment, cwd=self.folder, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509
            )  # fmt: skip
        self.daemons.append(process)
        return process


@contextmanager
def spark_cluster(workers: int = 2) -> Iterator[SparkCluster]:
    """Start a cluster and a session on it; stop both, whatever happens inside."""
    folder = Path(tempfile.mkdtemp(prefix="mqspark-"))
    (folder / "log4j2.properties").write_text(LOGGING)
    cluster = SparkCluster(folder, f"spark://127.0.0.1:{free_port()}", environment(folder))
    before = dict(os.environ)
    try:
        os.environ.update(cluster.environment)  # the driver's own Java process reads it from here
        cluster.start_master()
        for _ in range(workers):
            cluster.start_worker()
        cluster.session = start_session(cluster)
        yield cluster
    finally:
        try:
            cluster.stop()
        finally:
            os.environ.clear()
            os.environ.update(before)
            shutil.rmtree(folder, ignore_errors=True)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that keep Spark small, quiet, on loopback and on this Python."""
    import pyspark  # noqa: PLC0415

    program = java()
    if program is None:
        raise RuntimeError("Spark needs Java, and there is none: run scripts/install-servers.")
    return {
        "PATH": os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", "")]),
        "HOME": os.environ.get("HOME", str(folder)),
        "LANG": "C.UTF-8",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_MEMORY": "160m",
        "SPARK_DAEMON_JAVA_OPTS": f"{java_options(folder)} -Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }


def java_options(folder: Path) -> str:
    """Return what every Java process of the cluster is started with."""
    return f"{SMALL_HEAP} -Dlog4j2.configurationFile={folder}/log4j2.properties"


def start_session(cluster: SparkCluster) -> SparkSession:
    """Return a session with one small executor on each worker."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    options = java_options(cluster.folder)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # the first job waits for both executors
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_SECONDS}s",
        "spark.executor.extraJavaOptions": options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(cluster.folder / "warehouse"),
        "spark.checkpoint.dir": str(cluster.folder / "checkpoints"),
    }
    builder = SparkSession.builder.master(cluster.master).appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop_session(session: SparkSession | None) -> None:
    """Stop a session and the Java process behind it, which would otherwise live as long as this one."""
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway
    if session is not None:
        session.stop()
    if gateway is not None:
        gateway.shutdown()
        reap(gateway.proc)
        for stream in (gateway.proc.stdin, gateway.proc.stdout):
            if stream is not None:
                stream.close()
        SparkContext._gateway = SparkContext._jvm = None


def end_children_of(folder: Path) -> None:
    """End what else this process started for a cluster: a session's Java outlives an interrupted start."""
    for children in Path("/proc/self/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            with suppress(OSError):
                if f"SPARK_CONF_DIR={folder}\0".encode() in Path(f"/proc/{child}/environ").read_bytes():
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
