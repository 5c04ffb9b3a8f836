"""The core on systems that lack what Linux has.

It is not run on macOS or Windows: here the parts that they lack are switched off.
"""

import subprocess
import sys
from pathlib import Path

import pytest

NOT_ON_MACOS = """
import os, pathlib, sys
for name in ("memfd_create", "fdatasync", "sched_getaffinity", "posix_fallocate"):
    if hasattr(os, name):
        delattr(os, name)

import dueline.core.process_identity as identity
identity._PROC = pathlib.Path("/there is no proc")
"""

NOT_ON_WINDOWS = """
import os, select, signal, socket, sys
pair, family = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda: pair(family)
del socket.AF_UNIX
for module, names in (
    (os, "fork register_at_fork geteuid getuid getppid O_NOFOLLOW O_DIRECTORY memfd_create"
         " fdatasync set_blocking sched_getaffinity posix_fallocate wait4 setsid"),
    (select, "poll epoll"),
    (signal, "SIGHUP SIGKILL SIGCHLD pthread_sigmask sigwait"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ("termios", "fcntl", "resource", "pwd", "grp", "tty"):
    sys.modules[name] = None

import dueline.core.process_identity as identity, pathlib
identity._PROC = pathlib.Path("/there is no proc")
"""

BODY = """
from dueline import ConfigError, Context, Dueline, Retry
from dueline.stores.sqlite import file, wakeup
file.MOUNTS = wakeup._DESCRIPTORS = identity._PROC

app = Dueline("sqlite:///jobs.db")
app.semaphore("one", capacity=1)


@app.task(limits=["one"], retry=Retry.fixed(0, attempts=2))
def plain(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError
    return ctx.attempt


@app.task
async def coroutine() -> int:
    return 3


if __name__ == "__main__":
    assert identity.own().space == ""
    app.schedule("nightly", plain, cron="0 3 * * *")
    jobs = [plain.enqueue(), coroutine.enqueue(), *coroutine.enqueue_many([()] * 50)]
    with app.transaction() as tx:
        jobs.append(plain.using(tx=tx, unique="one").enqueue())
    with app.worker(concurrency=4):
        assert [job.result(timeout=60) for job in jobs] == [2, *[3] * 51, 2]
    later = plain.using(after=60).enqueue()
    assert later.cancel()
    assert str(later.explain())
    app.close()
    print("done")
"""

WITH_PROCESSES = """
    job = coroutine.enqueue()
    app.run_worker(processes=1, burst=True)
    assert job.result(timeout=60) == 3
"""

WITHOUT_PROCESSES = """
    try:
        app.run_worker(processes=1, burst=True)
    except ConfigError as error:
        assert "no child processes" in str(error)
    else:
        raise AssertionError
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("lacking", "more"),
    [
        pytest.param(NOT_ON_MACOS, WITH_PROCESSES, id="macos"),
        pytest.param(NOT_ON_WINDOWS, WITHOUT_PROCESSES, id="windows"),
    ],
)
def test_the_core_runs_without_what_other_systems_lack(
    lacking: str, more: str, tmp_path: Path
) -> None:
    # O11
    text = BODY.replace("    app.close()\n", f"{more}    app.close()\n")
    (tmp_path / "shop.py").write_text(lacking + text, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout == "done\n", ended.stderr
