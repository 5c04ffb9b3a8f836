"""What a workflow has done is undone when a later part of it fails."""

from pathlib import Path

from dueline import pipeline
from tests.harness.workflow_stage import named, stage_of


def undone_if_it_fails(kind: str, folder: Path) -> None:
    """Let the last of three steps fail, then none: the two before it are undone, or are not."""
    steps = [named(name).undone_by(named(f"not {name}")) for name in "ab"]
    for failing, undone in (({"z"}, ["not b", "not a"]), (set[str](), list[str]())):
        stage = stage_of(kind, folder)
        stage.put(pipeline(*steps, named("z")))
        stage.failing_steps = failing
        stage.work()
        assert [name for name, _ in stage.ran] == ["a", "b", "z", *undone]
        assert stage.look().progress().left == 0
        stage.close()
