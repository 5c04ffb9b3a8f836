"""A server that answers the first bytes of each connection with one reply, then closes it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

Reply = Callable[[bytes], bytes]


@contextmanager
def fake_server(reply: Reply, host: str = "127.0.0.1") -> Iterator[int]:
    """Run a server; its port. reply: of the first bytes; empty bytes keep the connection open."""
    kept: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        with suppress(OSError):
            while text := connection.recv(4096):
                if said := reply(text):
                    connection.sendall(said)
                    if len(said) > 1:
                        connection.close()

    def serve() -> None:
        with suppress(OSError):  # the test is over
            while True:
                connection, _ = server.accept()
                kept.append(connection)
                Thread(target=answer, args=[connection], daemon=True).start()

    with socket.create_server((host, 0)) as server:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()
