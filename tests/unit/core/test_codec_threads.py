"""Threads that read values of a type for the first time at once."""

import subprocess
import sys

import pytest

READ_AT_ONCE = """
import sys, threading
from dataclasses import make_dataclass
from dueline.core.codec import decode

sys.setswitchinterval(1e-6)
body = b'{"a":{"x":1},"b":{"x":1},"c":{"x":1},"d":{"x":1}}'
for number in range(200):
    inner = [(name, make_dataclass(f"I{number}{name}", [("x", int)])) for name in "abcd"]
    kind = make_dataclass(f"K{number}", inner)
    gate = threading.Barrier(4)
    def read():
        gate.wait()
        for _ in range(3):
            decode(body, kind)
    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads: one.start()
    for one in threads: one.join()
"""


@pytest.mark.slow
def test_threads_that_read_a_type_for_the_first_time_at_once_do_not_crash() -> None:
    subprocess.run([sys.executable, "-c", READ_AT_ONCE], check=True, timeout=60)
