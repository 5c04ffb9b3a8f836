"""Types of an application that are arguments and results: `dueline.register_type`."""

from typing import Any

import pytest

from dueline import BadInput, Dueline, JobFailed, register_type


class Money:
    """An amount."""

    def __init__(self, text: str) -> None:
        self.cents = round(float(text) * 100)

    def __str__(self) -> str:
        return f"{self.cents / 100:.2f}"


register_type(Money, encode=str, decode=Money)


def test_values_of_a_registered_type_are_arguments_and_results() -> None:
    app = Dueline("memory://")

    @app.task(name="double")
    def double(price: Money, all_: list[Money]) -> Money:
        return Money(str(2 * (price.cents + sum(each.cents for each in all_)) / 100))

    job = double.enqueue(Money("1.25"), [Money("1")])
    app.run_worker(burst=True)
    result = job.result(timeout=0)
    assert isinstance(result, Money)
    assert str(result) == "4.50"


def test_a_type_that_is_not_named_by_an_annotation_or_not_registered_is_an_error() -> None:
    app = Dueline("memory://")

    @app.task(name="loose")
    def loose(value): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    @app.task(name="other")
    def other() -> Any:  # noqa: ANN401
        return pytest

    with pytest.raises(BadInput, match="Annotate it: `value: Money`"):
        loose.enqueue(Money("1"))
    with pytest.raises(BadInput, match="register_type"):
        loose.enqueue(object())
    job = other.enqueue()
    app.run_worker(burst=True)
    with pytest.raises(JobFailed, match=r"register_type.*The work is done"):
        job.result(timeout=0)


def test_what_is_no_type_or_function_is_refused() -> None:
    wrong: list[tuple[Any, Any, Any]] = [("Money", str, Money), (Money, None, Money)]
    for kind, encode, decode in wrong:
        with pytest.raises(BadInput):
            register_type(kind, encode=encode, decode=decode)
