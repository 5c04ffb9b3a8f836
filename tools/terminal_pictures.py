"""Take pictures of real commands: `python -m tools.terminal_pictures` writes docs/images/*.svg.

Each is what a command printed while a small shop was at work, drawn by rich.
"""

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
COLUMNS: Final = 104
WORK_S: Final = 12
FORMAT: Final = re.sub(
    r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
).replace("Fira Code", "DejaVu Sans Mono")
"""No font is fetched: a picture looks the same without a network."""

SHOP: Final = """
import random, time
from dueline import Dueline, Retry, group, pipeline

app = Dueline("sqlite:///shop.db")

@app.task(queue="mail", retry=Retry(attempts=3, base=1))
def send(to: str) -> None:
    time.sleep(random.uniform(0.01, 0.06))
    if random.random() < 0.02:
        raise ConnectionError("the mail server did not answer")

@app.task(queue="images")
def resize(name: str) -> int:
    time.sleep(random.uniform(0.05, 0.2))
    return len(name)

@app.task(queue="reports")
def load(day: int) -> int:
    time.sleep(60 if day > 3 else 0.2)
    return day

@app.task(queue="reports")
def rates(currency: str) -> int:
    return len(currency)

@app.task(queue="reports")
def total(days: list[int]) -> int:
    return sum(days)

@app.task(queue="reports")
def publish(value: int, to: str) -> str:
    return f"{value} to {to}"

if __name__ == "__main__":
    send.enqueue_many([(f"user{n}@example.org",) for n in range(2000)])
    send.using(after=600).enqueue_many([(f"later{n}@example.org",) for n in range(250)])
    resize.enqueue_many([(f"photo{n}.jpg",) for n in range(400)])
    days = group(rates.step("EUR"), *[load.step(day) for day in range(1, 6)])
    print(app.start(pipeline(days, total.step(), publish.step(to="boss")), name="weekly report").id)
"""


def run(command: Sequence[str], folder: Path, **more: str) -> str:
    """Return what a command prints, with its colours."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**more),
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return done.stdout


def environment(**more: str) -> dict[str, str]:
    """Return the environment of commands: a colourful terminal of fixed width."""
    kept = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    return kept | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"} | more


def run_on_terminal(command: Sequence[str], folder: Path) -> str:
    """Return what a command prints on a terminal, where it uses colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(
        command, cwd=folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while block := os.read(ours, 65_536):
                printed += block
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def save(name: str, command: str, printed: str) -> None:
    """Draw what a command printed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(printed.rstrip()), "\n", sep="")  # room below the last line
    svg = console.export_svg(title="dueline", code_format=FORMAT, unique_id=f"dueline-{name}")
    lines = (line.rstrip() for line in svg.splitlines())
    (IMAGES / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(IMAGES / f"{name}.svg")


def shop() -> None:
    """Take pictures of `top` and of a workflow while a worker is at work."""
    program = str(Path(sys.executable).with_name("dueline"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        flow = run([sys.executable, "shop.py"], folder, FORCE_COLOR="").split()[-1]
        worker = subprocess.Popen(
            [program, "worker", "shop:app", "-q", "mail:4", "-q", "images:8", "-q", "reports:4"],
            cwd=folder,
            env=environment(),
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(WORK_S / 4)
            tree = run_on_terminal([program, "--app", "shop:app", "flows", "show", flow], folder)
            time.sleep(WORK_S)
            seen = run([program, "--app", "shop:app", "top"], folder)
        finally:
            worker.kill()
            worker.wait()
    save("workflow", "dueline flows show ID", tree)
    save("top", "dueline top", seen)


def demo() -> None:
    """Take a picture of the demo."""
    printed = run([sys.executable, "-m", "examples.demo.run"], ROOT, FILES="2000")
    save("demo", "make demo", printed)


if __name__ == "__main__":
    for take in {"shop": [shop], "demo": [demo]}.get("".join(sys.argv[1:]), [shop, demo]):
        take()
