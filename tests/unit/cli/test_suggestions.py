"""An unknown command names what was meant, and no command that destroys."""

import pytest

from dueline.cli import run


@pytest.mark.parametrize(
    ("words", "says", "never"),
    [
        (["retry"], "dueline jobs retry ID", "restore"),
        (["logs"], "dueline jobs logs ID", "flows"),
        (["pause", "mail"], "dueline queues pause NAME", "parse"),
        (["jbos"], "Did you mean 'jobs'?", "move"),
        (["restor"], "Did you mean 'restore'?", "move"),
        (["remove"], "No such command 'remove'.", "move"),
        (["jobs", "lst"], "Did you mean 'list'?", "retry"),
        (["dead", "purged"], "Did you mean 'purge'?", "retry"),
        (["dead", "purr"], "No such command 'purr'.", "mean"),
    ],
)
def test_an_unknown_command(
    words: list[str], says: str, never: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    _, why, _ = capsys.readouterr().err.splitlines()
    assert says in why
    assert never not in why.replace("remove", "")
