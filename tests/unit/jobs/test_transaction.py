"""What the worker is told of a transaction that its caller ends."""

from pathlib import Path
from typing import Any, cast

import pytest

from dueline.core.errors import StoreUnavailable
from dueline.core.store_capabilities import Joined
from dueline.core.wakeup import NoWakeups
from dueline.jobs.transaction import CallersTransaction
from tests.harness.world import world_on


@pytest.mark.parametrize("is_committed", [True, False, None])
def test_the_outcome_of_a_callers_transaction_is_read_once(*, is_committed: bool | None) -> None:
    """Later the store may have removed what it knew of the transaction."""
    queues, asked = world_on("memory", Path()).queues, list[str]()

    class Asked:
        def is_committed(self, transaction: str) -> bool:
            asked.append(transaction)
            if is_committed is None:
                raise StoreUnavailable("It does not answer.")
            return is_committed if len(asked) == 1 else not is_committed

    inside = Joined(queues.engine.store, NoWakeups())
    tx = CallersTransaction(None, queues, {}, inside, cast("Any", Asked()))
    assert (tx.is_committed, asked) == (False, [])
    tx._id = "7"
    assert [tx.is_committed, tx.is_committed] == [bool(is_committed)] * 2
    assert asked == ["7"]
