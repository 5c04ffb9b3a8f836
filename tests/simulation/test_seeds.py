"""Which seeds are runs of which kind."""

from simulation.lives import (
    DEPLOYING,
    FLOWING,
    LIMITED,
    ORDERED,
    RECURRING,
    SUSPENDING,
    TRIPPING,
    seeds_from,
)


def test_each_kind_has_its_place_among_sixteen_seeds() -> None:
    assert seeds_from(1000, 16) == [
        1000,
        DEPLOYING + 1001,
        1002,
        LIMITED + 1002,  # its last bit, which selects the kind of store, changes by turns
        1004,
        SUSPENDING + 1005,
        1006,
        -1007,
        1008,
        ORDERED + 1009,
        1010,
        RECURRING + 1011,
        1012,
        FLOWING + 1013,
        TRIPPING + 1015,
        -1015,
    ]


def test_kinds_whose_place_is_odd_see_each_kind_of_store() -> None:
    later = seeds_from(1016, 16)
    assert later[3] == LIMITED + 1019
    assert later[11] == RECURRING + 1026


def test_all_runs_can_be_of_one_kind() -> None:
    assert seeds_from(1000, 2, "durable") == [SUSPENDING + 1000, SUSPENDING + 1001]
    assert seeds_from(1000, 2, "streams") == [-1000, -1001]
    assert seeds_from(1015, 2, "schedules") == [RECURRING + 1015, RECURRING + 1017]
    assert seeds_from(1000, 2, "plain") == [1000, 1001]
