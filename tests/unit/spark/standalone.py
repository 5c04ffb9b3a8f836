"""A standalone cluster: a master and workers, each a process of this machine."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

WORKERS = 2
MEMORY = "192m"
STEP_S = 0.2
TRIES = 3000
"""A process is given ten minutes to say that it is there."""


class Cluster(NamedTuple):
    """What runs.

    Attributes:
        master: Its address.
        home: Spark's.
        folder: Where its processes write.
    """

    master: str
    home: Path
    folder: Path

    def parts(self) -> set[Path]:
        """Return a folder for each application that a worker ran some of."""
        return {*self.folder.glob("worker-*/app-*")}


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """Start a master and its workers, which write into a folder."""
    import pyspark

    home = folder / "home"  # Spark's workers write beside what is there
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, kind: str, *words: str) -> Path:
        said = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
        own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        env = {**os.environ, **own, "SPARK_DAEMON_MEMORY": MEMORY}
        with said.open("wb") as file:
            processes.append(subprocess.Popen(command, env=env, stdout=file, stderr=file))
        return said

    where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        master = _told(start("master", "master.Master", *where), r"master at (spark://\S+)")
        for number in range(WORKERS):
            own = ("--cores", "1", "--memory", "600m", "-d", str(folder / f"worker-{number}"))
            said = start(f"worker-{number}", "worker.Worker", *where, *own, master)
            _told(said, "(Successfully registered)")
        yield Cluster(master, home, folder)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def _told(said: Path, words: str) -> str:
    """Wait until a process says something."""
    for _ in range(TRIES):
        if match := re.search(words, said.read_text(encoding="utf-8", errors="replace")):
            return match[1]
        time.sleep(STEP_S)
    raise AssertionError(said.read_text(encoding="utf-8", errors="replace")[-2000:])
