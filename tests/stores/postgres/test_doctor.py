"""What `doctor` finds out about a server."""

import asyncio
from collections.abc import Iterator

import pytest

from dueline import Dueline
from dueline.admin.health import examine
from dueline.api.connect import open_store
from dueline.core.check import Check
from dueline.core.clock import SystemClock
from dueline.core.errors import ConfigError
from dueline.store_tests.calls import new_job
from tests.harness.postgres import Schemas, database, expect_server, statement
from tests.harness.queues import queues_on

expect_server()

import psycopg  # noqa: E402

pytestmark = pytest.mark.postgres

ROLES = """
GRANT USAGE ON SCHEMA {schema} TO {worker}, {reader};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {worker};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader};
"""
"""As docs/operations/postgres.md has them."""


def checks_of(url: str) -> dict[str, Check]:
    store = open_store(url)
    try:
        return {
            check.name: check for check in examine(queues_on(store, SystemClock()).engine).checks
        }
    finally:
        store.close()


def test_a_healthy_server_has_no_warning(url: str) -> None:
    checks = checks_of(url)
    for name in ("server", "schema", "autovacuum", "connections", "dead rows"):
        assert checks[name].verdict == "good", checks[name]


@pytest.fixture
def own_url() -> Iterator[str]:
    """Make a store in a database in which no other test has a transaction."""
    with database() as plain:
        yield Schemas(plain).fresh()


def test_a_transaction_that_holds_watermarks_is_named(own_url: str) -> None:
    app = Dueline(own_url)

    @app.task(name="shop.send")
    def send(to: str) -> None: ...

    plain = own_url.partition("?")[0]
    with psycopg.connect(plain, application_name="slow import") as connection:
        send.using(tx=connection).enqueue("one")
        finding = checks_of(own_url)["oldest transaction"].finding
        connection.rollback()
    app.close()
    assert "slow import, idle in transaction, holds watermarks" in finding


@pytest.fixture
def roles(url: str) -> Iterator[dict[str, str]]:
    """Make a worker and a reader; answer the URL of each."""
    schema = url.partition("schema=")[2]
    names = {kind: f"{schema}_{kind}" for kind in ("worker", "reader")}
    for name in names.values():
        statement(url, f"CREATE ROLE {name} LOGIN PASSWORD 'apart'")
    for line in ROLES.strip().splitlines():
        statement(url, line.format(schema=schema, **names))
    head, _, place = url.rpartition("@")
    yield {kind: f"{head.partition('//')[0]}//{name}:apart@{place}" for kind, name in names.items()}
    for name in names.values():
        statement(url, f"DROP OWNED BY {name}")
        statement(url, f"DROP ROLE {name}")


def test_the_rights_of_the_documentation_are_enough(roles: dict[str, str]) -> None:
    app = Dueline(roles["worker"])

    @app.task(name="shop.count")
    def count(items: list[int]) -> int:
        return len(items)

    job = count.enqueue([1, 2])

    async def work() -> None:
        async with app.worker():
            assert await asyncio.to_thread(job.result, timeout=30) == 2

    asyncio.run(work())
    app.close()
    reading = Dueline(roles["reader"])
    assert reading.job(job.id).result(timeout=30) == 2
    with pytest.raises(ConfigError, match="permission denied"):
        reading.store.add([new_job(1)])
    reading.close()
    assert checks_of(roles["reader"])["rights"].finding == "this user may only read"


def test_a_missing_right_is_named(url: str, roles: dict[str, str]) -> None:
    schema = url.partition("schema=")[2]
    statement(url, f"REVOKE DELETE ON {schema}.jobs FROM {schema}_worker")
    check = checks_of(roles["worker"])["rights"]
    assert check.verdict == "bad"
    assert check.advice == f"GRANT DELETE ON ALL TABLES IN SCHEMA {schema} TO the user."
