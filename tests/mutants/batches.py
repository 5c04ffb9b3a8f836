"""Rules of batches, broken."""

from dataclasses import replace

import pytest

from dueline.api import batch_map
from dueline.batches import ends
from dueline.batches.records import Head, head_of
from dueline.core.batch_ids import BatchId
from dueline.core.store import Store
from dueline.jobs import batch_slices, decisions
from dueline.jobs.queue import Queues
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def a_slice_replaces_any_head(patch: Patch) -> None:
    change_source(patch, batch_slices, "_decision", 'expect or b""', "None")


def a_slice_that_was_left_stays_so(patch: Patch) -> None:
    def seems_whole(store: Store, batch: BatchId) -> Head:
        return replace(head_of(store, batch), rows=b"")

    patch.setattr(batch_slices, "head_of", seems_whole)


def keys_count_early(patch: Patch) -> None:
    change_source(patch, batch_map.Storing, "_read_keys", ">= self._head.items", "< 0")


def what_has_ended_is_inserted_again(patch: Patch) -> None:
    patch.setattr(batch_slices, "_missing", lambda _engine, _batch, rows: rows)


def ends_are_named_by_their_kind(patch: Patch) -> None:
    change_source(patch, ends, "_put", "kind.to_text() + digest.hexdigest()", "kind.to_text()")


def a_whole_record_is_deleted(patch: Patch) -> None:
    change_source(patch, ends, "join", "if record.key not in kept", "")


def ends_are_no_effects(patch: Patch) -> None:
    change_source(patch, decisions, "_follow", "*ends.commits_of(batched)", "")


def a_retry_is_not_noted(patch: Patch) -> None:
    patch.setattr(Queues, "_count_again", lambda *_: None)


def the_first_end_counts(patch: Patch) -> None:
    change_source(patch, ends, "_last_ends", "sorted(joined)", "sorted(joined, reverse=True)")
