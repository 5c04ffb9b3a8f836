"""The application whose events are appended in transactions of its producers, on PostgreSQL.

`python -m tests.kills.clicks producer` appends, `python -m tests.kills.clicks consumer` reads.
"""

import os
import random
import sys
import threading
import time
import uuid
from contextlib import suppress

import psycopg

from dueline import Batch, Dueline
from dueline.core.errors import DuelineError

STORE_VARIABLE = "DUELINE_CLICKS_STORE"
URL = os.environ.get(STORE_VARIABLE, "")
SHARDS, KEYS = 3, 6
GROUPS = ("first", "second")
THREADS = 3
PRODUCER = "clicks producer"
"""What the server calls the sessions with events."""

LEASE_S = 2
OPEN_S_MAX = 0.1
"""Maximum time between two statements of a transaction: transactions overlap all the time."""

app = Dueline(URL)
clicks = app.stream("clicks", shards=SHARDS)


def append_on() -> None:
    """Append events in transactions, each with a row that tells how many they are."""
    choice = random.Random()
    while True:
        with (
            suppress(psycopg.Error, DuelineError),
            psycopg.connect(URL, application_name=PRODUCER) as connection,
        ):
            if choice.random() < 0.3:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            while True:
                with connection.transaction():
                    append(connection, choice)


def append(connection: "psycopg.Connection", choice: random.Random) -> None:
    """Append one to three events; one transaction in five changes its mind."""
    name, number = uuid.uuid4().hex, choice.randint(1, 3)
    connection.execute("INSERT INTO appended VALUES (%s, %s)", (name, number))
    key = str(choice.randrange(KEYS))
    for place in range(number):
        time.sleep(choice.random() * OPEN_S_MAX)
        clicks.append([name, place], key=key, tx=connection)
    if choice.random() < 0.2:
        raise psycopg.Rollback


def consume(group: str) -> None:
    """Register a group that stores what it reads, exactly once."""

    @clicks.consumer(group, batch=50, lease=LEASE_S)
    def store(batch: Batch) -> None:
        with app.transaction() as tx:
            for event in batch.events:
                name, place = event.value
                tx.execute(
                    "INSERT INTO seen (consumer, name, place, shard, at_us, id) VALUES"
                    " (%s, %s, %s, %s, %s, %s)",
                    (group, name, place, batch.shard, event.position.at_us, event.position.id),
                )
            batch.commit(tx)


if __name__ == "__main__":
    if sys.argv[1] == "producer":
        for _ in range(THREADS):
            threading.Thread(target=append_on).start()
    else:
        for one in GROUPS:
            consume(one)
        app.consume()
