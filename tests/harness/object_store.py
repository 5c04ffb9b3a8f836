"""An object store of the tests: moto's server, in a process of its own."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TRIES = 300
STEP_S = 0.2


@contextmanager
def object_store(folder: Path, bucket: str = "lake") -> Iterator[Mapping[str, str]]:
    """Start a server with a bucket; give the storage options.

    Args:
        folder: Where it logs.
        bucket: The name of the bucket.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    log = (folder / "moto.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            for _ in range(TRIES):
                try:
                    request = urllib.request.Request(f"{url}/{bucket}", method="PUT")  # noqa: S310
                    urllib.request.urlopen(request).close()  # noqa: S310
                    break
                except OSError:
                    time.sleep(STEP_S)
            else:
                raise AssertionError((folder / "moto.log").read_text())
            yield {
                "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "tests",
                "AWS_SECRET_ACCESS_KEY": "of-the-tests",
                "AWS_REGION": "us-east-1",
                "aws_conditional_put": "etag",
            }
        finally:
            server.terminate()
