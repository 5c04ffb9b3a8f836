"""The layouts that a process remembers."""

from dueline.core.job import JobId
from dueline.stores.memory.store import MemoryStore
from dueline.workflows import records
from dueline.workflows.graph import Layout, Node
from dueline.workflows.records import Layouts
from tests.harness.clocks import HandClock


def test_as_many_layouts_are_remembered_as_have_so_many_steps() -> None:
    store = MemoryStore(HandClock())
    flows = [JobId(bytes([number]) * 16) for number in range(4)]
    for flow, steps in zip(flows, (3, 3, 3, 100), strict=True):
        layout = Layout("", (Node("add"),) * steps, 0)
        for commit in records.put_layout(flow, layout, version=flow):
            store.commit(commit.partition, commit.writes)
    layouts = Layouts(most=8)
    first, second = layouts.get(store, flows[0]), layouts.get(store, flows[1])
    assert layouts.get(store, flows[1]) is second
    assert layouts.get(store, flows[0]) is first
    third = layouts.get(store, flows[2])  # in the place of the first
    assert layouts.get(store, flows[1]) is second
    assert layouts.get(store, flows[2]) is third
    assert layouts.get(store, flows[0]) is not first
    large = layouts.get(store, flows[3])  # in the place of all, though it is too large
    assert layouts.get(store, flows[3]) is large
    assert layouts.get(store, flows[2]) is not third
    assert layouts.get(store, JobId(bytes(16)[:-1] + b"x")) is None


def test_what_is_known_to_have_ended_is_let_go_with_its_layout() -> None:
    store = MemoryStore(HandClock())
    flows = [JobId(bytes([number]) * 16) for number in range(2)]
    for flow in flows:
        for commit in records.put_layout(flow, Layout("", (Node("add"),) * 3, 0), version=flow):
            store.commit(commit.partition, commit.writes)
    layouts = Layouts(most=4)
    layouts.ended(flows[0])[0].add(1)  # before it is kept: nothing
    layouts.get(store, flows[0])
    assert layouts.ended(flows[0]) == {}
    layouts.ended(flows[0])[0].add(2)
    assert layouts.ended(flows[0]) == {0: {2}}
    layouts.get(store, flows[1])
    assert layouts.ended(flows[0]) == {}
