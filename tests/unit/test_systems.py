"""The core on systems that lack what Linux has.

It is not run on macOS or Windows: here the parts that they lack are switched off.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.markdown import ROOT

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


POSIX_NAMES = {
    "os": """chown fchown fork forkpty getegid geteuid getgid getpgid getpriority getuid kill killpg
        lchown mkfifo nice openpty pread preadv pwrite sched_getaffinity sched_setaffinity sendfile
        setegid seteuid setgid setpgid setpriority setsid setuid sysconf uname wait wait3 wait4
        waitid waitpid O_DIRECTORY O_NOFOLLOW fdatasync memfd_create posix_fallocate
        register_at_fork""",
    "signal": """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1
        SIGUSR2 alarm pthread_kill pthread_sigmask setitimer sigpending sigtimedwait sigwait
        siginterrupt sigwaitinfo""",
    "socket": "AF_UNIX SCM_RIGHTS recv_fds send_fds",
    "select": "epoll kqueue poll",
}
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
ANY_NAME = re.compile(
    r"\b(" + "|".join([*" ".join(POSIX_NAMES.values()).split(), *POSIX_MODULES]) + r")\b"
)

GUARDED = {
    "api/service_manager.py": "systemd names its socket in the environment",
    "api/signals.py": "asks for pthread_sigmask first",
    "cli/process_one.py": "a process 1 is one of Linux",
    "cli/screen.py": "a terminal of another system is not one of termios",
    "cli/supervision.py": "a worker is supervised only where processes fork",
    "core/process_identity.py": "catches what `os.kill` raises",
    "core/process_signals.py": "asks for each name first",
    "core/system.py": "the module for what not every system has",
    "core/wakeup.py": "polls only above 1,024 descriptors, which Windows does not number so",
    "stores/postgres/trips.py": "not guarded: PostgreSQL needs it (operations/systems.md)",
    "stores/sqlite/file.py": "asked only where files have owners",
    "stores/sqlite/wakeup.py": "asks for AF_UNIX first; others poll",
    "worker/child_process.py": "the worker refuses child processes where it cannot fork",
}
"""Modules with names that only POSIX systems have, and what keeps other systems out of them."""


def posix_names(source: str) -> set[str]:
    """Return the names of POSIX systems that a module uses without asking whether they exist."""
    found: set[str] = set()
    if not ANY_NAME.search(source):  # most modules need not be parsed
        return found
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                name in POSIX_NAMES.get(module, "").split()
            ):
                found.add(f"{module}.{name}")
            case ast.Import(names=names):
                found |= {alias.name for alias in names if alias.name in POSIX_MODULES}
            case ast.ImportFrom(module=str(module), names=names):
                known = POSIX_NAMES.get(module, "").split()
                found |= {f"{module}.{alias.name}" for alias in names if alias.name in known}
                found |= {module} & POSIX_MODULES
            case _:
                pass
    return found


def test_names_of_posix_are_used_only_behind_a_guard() -> None:
    source = ROOT / "src" / "dueline"
    users = {
        path.relative_to(source).as_posix(): names
        for path in source.rglob("*.py")
        if (names := posix_names(path.read_text(encoding="utf-8")))
    }
    new = {path: names for path, names in users.items() if path not in GUARDED}
    assert new == {}, "Use dueline.core.system, or guard these and name the guard in GUARDED."
    assert sorted(GUARDED) == sorted(users)


@pytest.mark.parametrize(
    "line",
    ["import os\nos.fork()", "import fcntl", "from signal import SIGKILL", "from pty import fork"],
)
def test_a_planted_name_of_posix_is_found(line: str) -> None:
    assert posix_names(line)


def test_processes_are_started_without_the_default_way_to_start_them() -> None:
    """Forking is the default on Linux before Python 3.14, and absent on Windows."""
    for path in (ROOT / "src" / "dueline").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "multiprocessing.Process(" not in text, path
        assert "ProcessPoolExecutor(" not in text or "mp_context" in text, path


def test_text_files_are_read_as_utf_8() -> None:
    """Windows has other defaults."""
    for path in (ROOT / "src" / "dueline").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "read_text" in text else "")):
            match node:
                case ast.Call(func=ast.Attribute(attr="read_text", value=file), args=[]):
                    named = "encoding" in {word.arg for word in node.keywords}
                    assert named or "_PROC" in ast.unparse(file), f"{path}:{node.lineno}"
                case _:
                    pass
