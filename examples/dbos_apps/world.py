"""The world outside both sides: effects in a file, and the database of a shop.

Every function that has an effect writes a line before and after it, so that a test can count them.
"""

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FOLDER: Final = Path(os.environ.get("PORTS_FOLDER", "."))
URL: Final = os.environ.get("PORTS_STORE", f"sqlite:///{FOLDER}/store.db")
"""Where functions are recorded."""

STOCK: Final = 4
"""Widgets in stock at the beginning."""

TICKS: Final = 3
"""Parts of the way of an order that is dispatched."""

PAGES: Final = 4
"""Pages of a document."""

SCHEMA: Final = """
create table if not exists orders (
  id integer primary key, key text unique, customer text, status text not null default 'pending',
  remaining integer not null);
create table if not exists reserved (key text primary key);
create table if not exists ticks (key text primary key);
create table if not exists products (inventory integer not null);
insert into products select 4 where not exists (select * from products);
"""


def act(record: str, step: str) -> int:
    """Have an effect that takes some time; return what nobody can foresee."""
    value = random.randrange(1_000_000)
    _note("begins", record, step, value)
    time.sleep(random.choice((0, 0.002, 0.02)))
    _note("ends", record, step, value)
    return value


def _note(*words: object) -> None:
    line = " ".join(map(str, (*words, os.getpid()))) + "\n"
    file = os.open(FOLDER / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode())
    os.close(file)


def title(url: str) -> str:
    """Return the name of a document, which is that of a record."""
    return url.rpartition("/")[2]


# --- the database of the shop, for applications whose steps do not share its commits ------------


@contextmanager
def shop() -> Iterator[sqlite3.Connection]:
    """Open the database of the shop in a transaction."""
    connection = sqlite3.connect(FOLDER / "shop.db", timeout=60, isolation_level=None)
    connection.execute("begin immediate")
    try:
        yield connection
        connection.execute("commit")
    finally:
        connection.close()


def create_tables() -> None:
    """Create the tables of the shop, with widgets in stock."""
    connection = sqlite3.connect(FOLDER / "shop.db")
    connection.executescript(SCHEMA)
    connection.close()


def create_order(customer: str, key: str) -> int:
    """Insert an order, once for each key."""
    act(customer, "create")
    with shop() as db:
        insert = "insert into orders (key, customer, remaining) values (?, ?, ?)"
        db.execute(insert + " on conflict do nothing", (key, customer, TICKS))
        return int(db.execute("select id from orders where key = ?", (key,)).fetchone()[0])


def reserve(customer: str, key: str) -> bool:
    """Take a widget out of the stock, once for each key; return whether there was one."""
    act(customer, "reserve")
    with shop() as db:
        if db.execute("select * from reserved where key = ?", (key,)).fetchone():
            return True
        if not db.execute("select * from products where inventory > 0").fetchone():
            return False
        db.execute("insert into reserved values (?)", (key,))
        db.execute("update products set inventory = inventory - 1")
        return True


def release(customer: str, key: str) -> None:
    """Put a reserved widget back, once."""
    act(customer, "release")
    with shop() as db:
        if db.execute("delete from reserved where key = ?", (key,)).rowcount:
            db.execute("update products set inventory = inventory + 1")


def set_status(customer: str, order: int, status: str) -> None:
    """Set the status of an order."""
    act(customer, status)
    with shop() as db:
        db.execute("update orders set status = ? where id = ?", (status, order))


def move_on(customer: str, order: int, part: int, key: str) -> None:
    """Move an order on by one part of its way, once for each key."""
    act(customer, f"part-{part}")
    with shop() as db:
        if db.execute("insert into ticks values (?) on conflict do nothing", (key,)).rowcount:
            db.execute("update orders set remaining = remaining - 1 where id = ?", (order,))
            arrived = "update orders set status = 'dispatched' where id = ? and remaining = 0"
            db.execute(arrived, (order,))


# --- models and services ------------------------------------------------------------------------


def price_of(order: str) -> int:
    """Return the price of a purchase."""
    act(order, "look-up")
    return 2000 if _number(order) % 2 else 20


def rounds_of(topic: str) -> int:
    """Return after how many rounds of research a model says that it is enough."""
    return 1 + _number(topic) % 3


def stories_of(topic: str) -> int:
    """Return how many stories a search finds."""
    return 1 + _number(topic) % 2


def _number(record: str) -> int:
    return int(record.rpartition("-")[2])
