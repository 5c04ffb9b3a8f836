"""The codec that encrypts arguments (C13)."""

from typing import cast

import pytest

from dueline import BadInput, Dueline, JobFailed, Retry
from dueline.contrib.crypto import Cipher, WrongKey

OLD, NEW = bytes(range(32)), b"\x11" * 16


def test_arguments_are_read_again_and_the_store_never_sees_them() -> None:
    app = Dueline("memory://")
    Cipher({"2026-11": OLD}).install(app)

    @app.task(name="remember")
    def remember(secret: str) -> str:
        return secret.upper()

    job = remember.enqueue("swordfish")
    row = app.queues.find(job._id).row
    assert row is not None
    assert b"swordfish" not in row.body
    assert row.codec == 64
    app.run_worker(burst=True)
    assert job.result(timeout=5) == "SWORDFISH"
    app.close()


def test_jobs_of_both_keys_are_read_while_a_key_is_replaced() -> None:
    old, both = Cipher({"a": OLD}), Cipher({"a": OLD, "b": NEW.hex()})
    only_new, waiting = Cipher({"b": NEW}), old.seal(b"one", "t")
    assert both.open(waiting, "t") == b"one"
    assert only_new.open(both.seal(b"two", "t"), "t") == b"two"
    # First all processes read with the new key, then they write with it.
    assert old.open(Cipher({"a": OLD, "b": NEW}, write="a").seal(b"three", "t"), "t") == b"three"
    with pytest.raises(WrongKey, match=r"encrypted with the key 'a', which .*\(it has b\)"):
        only_new.open(waiting, "t")


def test_no_two_writes_are_equal_and_empty_arguments_are_sealed_too() -> None:
    cipher = Cipher({"a": OLD})
    assert cipher.seal(b"", "t") != cipher.seal(b"", "t")
    assert cipher.open(cipher.seal(b"", "t"), "t") == b""


def test_a_wrong_key_another_task_and_every_changed_byte_are_refused() -> None:
    cipher = Cipher({"a": OLD})
    sealed = cipher.seal(b"[1]", "refund")
    for opener, body, task in [
        (Cipher({"a": NEW}), sealed, "refund"),
        (cipher, sealed, "charge"),
        *((cipher, _flipped(sealed, place), "refund") for place in range(len(sealed))),
        *((cipher, sealed[:size], "refund") for size in range(len(sealed))),
    ]:
        with pytest.raises((WrongKey, BadInput), match=f"The arguments of {task}"):
            opener.open(body, task)


def test_a_job_waits_for_its_key_and_then_says_which_one() -> None:
    app = Dueline("memory://")
    Cipher({"a": OLD}).install(app, default=False)
    calls = []

    @app.task(name="remember", codec="sealed", retry=Retry(delays=[0, 3600]))
    def remember(secret: str) -> None:
        calls.append(secret)

    job = remember.enqueue("x")
    app.payloads._own[64] = app.payloads._own[64]._replace(decode=Cipher({"b": NEW}).open)
    app.run_worker(burst=True)
    assert job.status == "retrying"  # no worker with another key loses it
    app.payloads._own[64] = app.payloads._own[64]._replace(decode=Cipher({"a": NEW}).open)
    job.retry()
    app.run_worker(burst=True)
    with pytest.raises(JobFailed, match="do not fit the key 'a' of this process"):
        job.result(timeout=0)
    assert calls == []
    app.close()


@pytest.mark.parametrize(
    ("keys", "write", "said"),
    [
        ({}, None, "no key"),
        ({"a": OLD}, "b", "no key 'b'"),
        ({"a": b"short"}, None, "not a key of 16, 24 or 32 bytes"),
        ({"a": "zz"}, None, "not a key of 16"),
        ({"a": 7}, None, "not a key of 16"),
        ({"": OLD}, None, "not a valid id"),
        ({"x" * 65: OLD}, None, "not a valid id"),
        ({7: OLD}, None, "not a valid id"),
        ("short", None, r"`keys` must be a dict .*got a str"),
        ([("a", OLD)], None, r"`keys` must be a dict .*got a list"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(keys: object, write: str | None, said: str) -> None:
    with pytest.raises(BadInput, match=said) as raised:
        Cipher(cast("dict[str, bytes]", keys), write=write)
    assert "short" not in str(raised.value)


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_results_are_encrypted_and_read_with_any_key_that_is_kept() -> None:
    old, both = Cipher({"a": OLD}), Cipher({"a": OLD, "b": NEW})
    app = Dueline("memory://")

    @app.task(name="diagnose")
    def diagnose(patient: str) -> str:
        return old.encrypt({"finding": "all is well", "days": [1, 2]}, patient)

    job = diagnose.enqueue("ann")
    app.run_worker(burst=True)
    text = job.result(timeout=5)
    assert "well" not in text
    assert both.decrypt(text, about="ann") == {"finding": "all is well", "days": [1, 2]}
    assert both.decrypt(both.encrypt((1, 2)), tuple[int, int]) == (1, 2)
    with pytest.raises(WrongKey):
        both.decrypt(text, about="ben")
    with pytest.raises(WrongKey, match="with the key 'a'"):
        Cipher({"b": NEW}).decrypt(text, about="ann")
    for wrong in ("", "no", "bm8=", "\xff"):
        with pytest.raises(BadInput):
            both.decrypt(wrong)
    with pytest.raises(BadInput, match="cannot be written as JSON"):
        both.encrypt(object())
    app.close()
