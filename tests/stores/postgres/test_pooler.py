"""A real PgBouncer between dueline and the server, in transaction mode (O1)."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from dueline import Dueline
from dueline.store_tests.calls import claim, lane_of, new_jobs
from tests.harness.postgres import expect_server, port_of_own, schemas, server_url
from tests.harness.servers import absent

expect_server()

import psycopg  # noqa: E402

from dueline.api.connect import open_store  # noqa: E402
from dueline.stores.postgres.store import PostgresStore  # noqa: E402

pytestmark = pytest.mark.postgres

WAIT_S = 30.0
START_S_MAX = 20.0


@pytest.fixture(scope="module")
def pooler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a pooler with two connections to the server; answer its address."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        absent("postgres", "PgBouncer is not installed: apt-get install pgbouncer")
    folder = tmp_path_factory.mktemp("pooler")
    folder.chmod(0o777)
    for parent in folder.parents[:2]:
        parent.chmod(0o755)
    place = urlsplit(server_url())
    port = port_of_own(7_000)
    users, settings = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"{place.username}" "{place.password}"\n')
    settings.write_text(
        f"[databases]\n* = host={place.hostname} port={place.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = scram-sha-256\nauth_file = {users}\npool_mode = transaction\n"
        f"default_pool_size = 4\n"
    )
    command = [program, str(settings)]
    if os.geteuid() == 0:
        command[1:1] = ["-u", "postgres"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        give_up_s = time.monotonic() + START_S_MAX
        while True:
            try:
                psycopg.connect(
                    f"{place._replace(netloc=_at(place.netloc, port)).geturl()}"
                ).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < give_up_s, "the pooler does not answer"
                time.sleep(0.05)
        yield _at(place.netloc, port)
    finally:
        process.terminate()
        process.communicate()


def _at(netloc: str, port: int) -> str:
    return f"{netloc.rpartition(':')[0]}:{port}"


@pytest.fixture
def url(pooler: str) -> Iterator[str]:
    with schemas() as made:
        yield urlsplit(made.fresh())._replace(netloc=pooler).geturl()


def test_calls_work_and_settings_stay_inside_their_transactions(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    with closing(store):
        store.add(new_jobs(20))
        assert len(claim(store, lane_of(), limit=20).jobs) == 20
        with psycopg.connect(url.partition("?")[0]) as other:
            assert other.execute("SHOW enable_seqscan").fetchone() == ("on",)


def test_jobs_run_and_those_of_late_commits_too(url: str) -> None:
    app = Dueline(url)

    @app.task(name="tests.echo")
    def echo(text: str) -> str:
        return text

    async def work() -> None:
        async with app.worker():
            await asyncio.to_thread(run)

    def run() -> None:
        assert echo.enqueue("one").result(timeout=WAIT_S) == "one"
        with psycopg.connect(url.partition("?")[0]) as connection:
            late = echo.using(tx=connection).enqueue("late")
            assert echo.enqueue("two").result(timeout=WAIT_S) == "two"
            connection.commit()
        assert late.result(timeout=WAIT_S) == "late"

    asyncio.run(work())
    app.close()
