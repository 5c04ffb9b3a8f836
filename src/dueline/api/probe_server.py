"""A small HTTP server that clients without a request cannot keep from answering.

One thread reads the heads of requests and writes the answers, without waiting for any client. Only
a complete request gets a thread. If there are too many connections, the oldest one that waits for
its client is closed: it has sent no complete head, or does not read its answer.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Final

CONNECTIONS_MAX: Final = 64
"""Maximum number of connections that wait for their clients, and of those that are answered."""

ANSWERS_MAX: Final = 8
"""Maximum number of requests that are answered at the same time, each in a thread."""

HEAD_S_MAX: Final = 2.0
"""Maximum duration in which the head of a request arrives, in seconds."""

HEAD_BYTES_MAX: Final = 16 * 1024
WRITE_S_MAX: Final = 5.0
"""Maximum duration in which a client reads its answer, in seconds."""

LINGER_S_MAX: Final = 0.5
"""Maximum duration for which a client may go on sending after its answer, in seconds."""

_log = logging.getLogger("dueline.http")


class ProbeServer:
    """Answers each connection once, then closes it.

    Args:
      answer: Returns the response to the head of a request; called in a thread.
      is_quick: Whether the answer to a head needs no store: it is made without a thread.
      late: The response to a request that is not answered in time.
      answer_s_max: Maximum duration of an answer, in seconds.
    """

    def __init__(
        self,
        answer: Callable[[bytes], bytes],
        *,
        is_quick: Callable[[bytes], bool],
        late: bytes,
        answer_s_max: float,
    ) -> None:
        self._answer = answer
        self._is_quick = is_quick
        self._late = late
        self._answer_s_max = answer_s_max
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._answering: set[asyncio.StreamWriter] = set()
        self._running: dict[bytes, asyncio.Future[bytes]] = {}

    @contextmanager
    def serving(self, listening: socket.socket) -> Iterator[None]:
        """Answer requests while the block runs."""
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()
        main = self._serve(listening, stop)
        thread = threading.Thread(target=_run, args=(loop, main), name="dueline-http", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stop.set)
            thread.join()

    async def _serve(self, listening: socket.socket, stop: asyncio.Event) -> None:
        self._threads = asyncio.Semaphore(ANSWERS_MAX)
        server = await asyncio.start_server(
            self._connected, sock=listening, limit=HEAD_BYTES_MAX, backlog=2 * CONNECTIONS_MAX
        )
        await stop.wait()
        server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self._make_room()
        self._open[writer] = None
        try:
            async with asyncio.timeout(HEAD_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            self._answering.add(writer)
            try:
                answer = await self._answered(head)
            finally:
                self._answering.discard(writer)
            await self._write(reader, writer, answer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            _log.debug("a request failed", exc_info=True)
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    def _make_room(self) -> None:
        """Close a connection if there are too many."""
        waiting = (writer for writer in self._open if writer not in self._answering)
        if len(self._open) - len(self._answering) >= CONNECTIONS_MAX:
            oldest = next(waiting)
        elif len(self._answering) >= CONNECTIONS_MAX:
            oldest = next(writer for writer in self._open if writer in self._answering)
        else:
            return
        del self._open[oldest]
        self._answering.discard(oldest)
        oldest.transport.abort()

    async def _answered(self, head: bytes) -> bytes:
        """Return the answer to a request; requests that are the same share one."""
        if self._is_quick(head):
            return self._answer(head)
        if head not in self._running:
            running = asyncio.ensure_future(self._in_a_thread(head))
            running.add_done_callback(lambda _: self._running.pop(head, None))
            self._running[head] = running
        done, _ = await asyncio.wait([self._running[head]], timeout=self._answer_s_max)
        return next(iter(done)).result() if done else self._late

    async def _in_a_thread(self, head: bytes) -> bytes:
        async with self._threads:
            loop = asyncio.get_running_loop()
            made: asyncio.Future[bytes] = loop.create_future()

            def keep(answer: bytes) -> None:
                if not made.done():
                    made.set_result(answer)

            def work() -> None:
                answer = self._late
                try:
                    answer = self._answer(head)
                except Exception:  # noqa: BLE001  (the client learns that it has no answer)
                    _log.exception("a request failed")
                with suppress(RuntimeError):  # the server was stopped
                    loop.call_soon_threadsafe(keep, answer)

            threading.Thread(target=work, name="dueline-http-answer", daemon=True).start()
            return await made

    async def _write(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes
    ) -> None:
        async with asyncio.timeout(WRITE_S_MAX):
            writer.transport.set_write_buffer_limits(0)
            writer.write(answer)
            await writer.drain()
            writer.write_eof()
        # Closed with unread bytes, the connection would be reset and the answer lost.
        async with asyncio.timeout(LINGER_S_MAX):
            while await reader.read(HEAD_BYTES_MAX):
                pass


def _run(loop: asyncio.AbstractEventLoop, main: Coroutine[object, object, None]) -> None:
    try:
        loop.run_until_complete(main)
        loop.run_until_complete(_end_all())
    finally:
        loop.close()


async def _end_all() -> None:
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop
