"""The fields of a job: the tables of the stores have exactly these, in their order."""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import NewType, get_type_hints

import pytest

from dueline.core.job import MOVED, NEW, Job
from dueline.core.lane import Lane
from dueline.core.store import Move

KINDS: Mapping[str, Mapping[str, type]] = {
    "sqlite": {"INTEGER": int, "TEXT": str, "BLOB": bytes},
    "postgres": {"bigint": int, "text": str, "bytea": bytes, "boolean": bool},
    "cassandra": {
        "bigint": int, "int": int, "smallint": int, "text": str, "blob": bytes, "boolean": bool,
    },
}  # fmt: skip


def columns_of(store: str) -> dict[str, type]:
    """Return the columns of the table of jobs, as the store's schema has them."""
    name = "schema.cql" if store == "cassandra" else "schema.sql"
    text = (files(f"dueline.stores.{store}") / name).read_text(encoding="utf-8")
    body = re.search(r"CREATE TABLE [^(]*\bjobs \((.*?)\n\)", text, re.DOTALL)
    assert body is not None
    kinds = "|".join(KINDS[store])
    return {
        column: KINDS[store][kind]
        for column, kind in re.findall(rf"(?:^|,)\s*(\w+) ({kinds})\b", body[1], re.MULTILINE)
    }


def plain(kind: object) -> object:
    """Return the type below a NewType; what is a number is an integer."""
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return kind


FIELDS = {name: plain(kind) for name, kind in get_type_hints(Job).items() if name != "lane"}


@pytest.mark.parametrize("store", KINDS)
def test_each_store_has_a_column_for_each_field(store: str) -> None:
    columns = columns_of(store)
    fields = dict(FIELDS)
    if store == "cassandra":  # `token` is a reserved word of CQL
        lane = {name: plain(kind) for name, kind in get_type_hints(Lane).items()}
        fields = lane | {{"token": "claim_token"}.get(name, name): fields[name] for name in fields}
        assert columns.pop("moved_to") is bytes
    else:
        assert columns.pop("lane") is int
    if store == "sqlite":
        fields["alone"] = int
    assert list(columns) == list(fields)
    assert columns == fields


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_defaults_of_columns_are_those_of_fields(store: str) -> None:
    text = (files(f"dueline.stores.{store}") / "schema.sql").read_text(encoding="utf-8")
    body = re.search(r"CREATE TABLE @?jobs \((.*?)\n\)", text, re.DOTALL)
    assert body is not None
    found = dict(re.findall(r"^ *(\w+) .*DEFAULT (\S+?),?$", body[1], re.MULTILINE))
    assert found.keys() == Job._field_defaults.keys()
    for name, default in Job._field_defaults.items():
        if name != "token":
            assert found[name].strip("x'").replace("false", "0") in ("", "0")
            assert not default


def test_a_move_writes_fields_of_a_job() -> None:
    assert set(MOVED) <= set(Job._fields)
    assert set(MOVED) <= set(Move._fields)
    assert (*NEW, *Job._field_defaults) == Job._fields
