"""Rules of operators at a distance, broken."""

from collections.abc import Callable

import pytest

from dueline.core.engine import Engine
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import StreamSettings
from dueline.streams import resharding
from dueline.streams.shard_order import ShardOrder

Patch = pytest.MonkeyPatch


def idle_workers_are_only_woken(patch: Patch) -> None:
    patch.setattr(Catalog, "touch", lambda *_: None)


def members_read_pauses_with_their_heartbeats(patch: Patch) -> None:
    patch.setattr(ShardOrder, "_checked", lambda order: order._settings)


def resharding_ends_all_pauses(patch: Patch) -> None:
    change = resharding.change

    def forgetful(
        engine: Engine, name: str, how: Callable[[StreamSettings], StreamSettings]
    ) -> StreamSettings:
        def plain(old: StreamSettings) -> StreamSettings:
            new = how(old)
            return (
                new
                if new.paused != old.paused
                else StreamSettings(new.shards, new.keep_us, new.first, new.before)
            )

        return change(engine, name, plain)

    patch.setattr(resharding, "change", forgetful)
