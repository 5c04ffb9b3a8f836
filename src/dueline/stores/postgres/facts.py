"""Facts about the server and its tables, for operators."""

from collections.abc import Mapping
from typing import Any, Final

from dueline.core.durations import span_text
from dueline.stores.postgres.address import Address
from dueline.stores.postgres.database import Database

_SERVER: Final = """
SELECT current_setting('server_version'), current_setting('synchronous_commit'),
  current_setting('fsync'), current_setting('autovacuum'), pg_is_in_recovery(),
  current_setting('max_connections')::bigint, (SELECT count(*) FROM pg_stat_activity),
  (SELECT value FROM @about WHERE name = 'schema')
"""
_TABLES: Final = """
SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint,
  coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
FROM pg_stat_user_tables WHERE schemaname = %s AND relname = 'jobs'
"""
_OLDEST: Final = """
SELECT (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint, pid,
  coalesce(nullif(application_name, ''), usename, '?'), coalesce(state, '?'),
  EXISTS (SELECT 1 FROM pg_locks WHERE pg_locks.pid = activity.pid
    AND (mode = 'RowShareLock' AND relation IN (to_regclass(%s), to_regclass(%s))
      OR mode = 'RowExclusiveLock' AND relation = to_regclass(%s)))
FROM pg_stat_activity AS activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
ORDER BY xact_start LIMIT 1
"""
_REPLICAS: Final = """
SELECT coalesce(nullif(application_name, ''), '?'), coalesce(sync_state, '?'),
  (extract(epoch FROM coalesce(replay_lag, interval '0')) * 1000000)::bigint
FROM pg_stat_replication ORDER BY 3 DESC
"""
_RIGHTS: Final = """
SELECT kind FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS kind
WHERE EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace(%s)
  AND relkind = 'r' AND NOT has_table_privilege(oid, kind))
"""


def facts_of(database: Database, address: Address) -> Mapping[str, str]:
    """Return facts and guarantees of a server, and of one schema."""
    schema = address.schema
    server = database.first(_SERVER)
    assert server is not None
    version, synchronous, fsync, autovacuum, is_replica, connections_max, connections, tables = (
        server
    )
    power = "nothing is lost, if the disk honours flushes"
    if fsync == "off":
        power = "the whole database may be damaged (fsync is off)"
    elif synchronous == "off":
        power = "the last commits may be lost (synchronous_commit is off)"
    facts = {
        "store": "postgresql",
        "address": str(address),
        "server": version,
        "schema": tables,
        "survives a process crash": "nothing is lost",
        "survives loss of power": power,
        "survives loss of the machine": "as far as the server's replicas do",
        "autovacuum": autovacuum,
        "connections": f"{connections} of {connections_max}",
    }
    if is_replica:
        facts["read-only"] = "the server is a replica"
    missing = [kind for (kind,) in database.fetch(_RIGHTS, (schema,))]
    if missing:
        facts["missing rights"] = ", ".join(missing)
    live, dead, size = database.fetch(_TABLES, (schema,))[0]
    facts["dead rows"] = f"{dead} beside {live}, in {size >> 20} MiB"
    marks = (f"{schema}.marks", f"{schema}.stream_marks", f"{schema}.rows")
    if oldest := database.first(_OLDEST, marks):
        facts["oldest transaction"] = _transaction(*oldest)
    if replicas := database.fetch(_REPLICAS):
        facts["replication lag"] = ", ".join(
            f"{name} ({kind}): {span_text(lag_us)} behind" for name, kind, lag_us in replicas
        )
    return facts


def _transaction(age_us: int, pid: int, name: str, state: str, is_holding: Any) -> str:  # noqa: ANN401
    held = ", holds watermarks" if is_holding else ""
    return f"{span_text(max(age_us, 0))} (process {pid}, {name}, {state}{held})"
