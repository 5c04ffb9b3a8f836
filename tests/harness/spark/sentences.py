"""What Spark says of an error of dueline."""

from dueline.core.errors import DuelineError

WRAPPED = 500
"""Characters that Spark's own words take at most before the sentence."""


def told(error: BaseException, kind: type[DuelineError], words: str) -> None:
    """Check what Spark says of an error."""
    from dueline.spark import refusal_in

    said = str(error)
    sentence = f"dueline.core.errors.{kind.__name__}: "
    assert sentence in said[:WRAPPED], said
    assert words in said.partition(sentence)[2].partition("\n")[0]
    assert "Traceback" not in said
    refusal = refusal_in(error)
    assert type(refusal) is kind
    assert words in str(refusal)
