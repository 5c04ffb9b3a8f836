"""A child process that only exists in a test."""

import threading
from queue import SimpleQueue

from dueline.worker.child_protocol import Leave, Message, dump, load

WAIT_S = 60.0


class FakeProcess:
    """A process that ends when it is told to."""

    pid = 1

    def __init__(self, code: int = 0) -> None:
        self.ended = threading.Event()
        self._code = code

    def kill(self) -> None:
        self.ended.set()

    def wait(self) -> int:
        assert self.ended.wait(WAIT_S)
        return self._code


class FakePipe:
    """What the child says, and what it was sent."""

    def __init__(self, process: FakeProcess) -> None:
        self._process = process
        self._said: SimpleQueue[bytes | None] = SimpleQueue()
        self.sent: list[Message] = []

    def say(self, message: Message) -> None:
        self._said.put(dump(message))

    def send_bytes(self, data: bytes, /) -> None:
        self.sent.append(load(data))
        if isinstance(self.sent[-1], Leave):
            self._process.ended.set()
            self._said.put(None)

    def recv_bytes(self) -> bytes:
        data = self._said.get(timeout=WAIT_S)
        if data is None:
            raise EOFError
        return data

    def close(self) -> None:
        pass

    def end(self) -> None:
        self._process.ended.set()
        self._said.put(None)
