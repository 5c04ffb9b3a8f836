"""A standalone cluster: a master and workers, each a process of this machine."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKERS = 2
SMALL = {"SPARK_DAEMON_MEMORY": "192m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}
STEP_S = 0.2
TRIES = 3000
"""A process is given ten minutes to say that it is there."""


@contextmanager
def cluster(home: Path, folder: Path) -> Iterator[str]:
    """Start a master and its workers; give the master's address.

    Args: home: of Spark's. folder: where they write.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, kind: str, *words: str) -> Path:
        said = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
        env = {**os.environ, **SMALL, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        with said.open("wb") as file:
            started.append(subprocess.Popen(command, env=env, stdout=file, stderr=file))
        return said

    where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        master = _told(start("master", "master.Master", *where), r"master at (spark://\S+)")
        for number in range(WORKERS):
            own = ("--cores", "1", "--memory", "600m", "-d", str(folder / f"worker-{number}"))
            said = start(f"worker-{number}", "worker.Worker", *where, *own, master)
            _told(said, "(Successfully registered)")
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _told(said: Path, words: str) -> str:
    """Wait until a process says something."""
    for _ in range(TRIES):
        if match := re.search(words, said.read_text(encoding="utf-8", errors="replace")):
            return match[1]
        time.sleep(STEP_S)
    raise AssertionError(said.read_text(encoding="utf-8", errors="replace")[-2000:])
