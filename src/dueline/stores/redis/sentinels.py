"""Asks sentinels which server is the primary."""

from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from dueline.core.errors import ConfigError, StoreUnavailable
from dueline.stores.redis.address import Address

TIMEOUT_S: Final = 1.0
"""Maximum duration of a question to a sentinel, in seconds."""

FAILED: Final = (redis.RedisError, OSError)


def primary_of(address: Address) -> tuple[str, int]:
    """Return the host and port of the primary, from the first sentinel that knows it.

    Raises:
      ConfigError: The sentinels that answer do not know the service.
      StoreUnavailable: None answers.
    """
    failures, has_answered = [], False
    for host, port in address.sentinels:
        try:
            answer = _ask(address, host, port)
        except FAILED as error:
            failures.append(f"{host}:{port}: {error}")
            continue
        if answer:
            return answer[0].decode(), int(answer[1])
        has_answered = True
    if has_answered:
        raise ConfigError(
            f"The sentinels of {address} do not know the service {address.service!r}.",
            hint="Use the name of `sentinel monitor` in their settings.",
        )
    raise StoreUnavailable(
        f"No sentinel of {address} answers ({'; '.join(failures)}).",
        hint="Check that they are running and reachable.",
    )


def _ask(address: Address, host: str, port: int) -> Any:  # noqa: ANN401
    """Return what a sentinel says; it is given the password of the URL only if it wants one."""
    kind: Any = redis.SSLConnection if address.is_tls else redis.Connection
    login = {name: address.settings[name] for name in ("username", "password")}
    trust = {name: how for name, how in address.settings.items() if name.startswith("ssl_")}
    for used in ({}, login):
        driver = kind(
            host=host, port=port, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0), protocol=2, **trust, **used,
        )  # fmt: skip
        try:
            driver.connect()
            driver.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
            return driver.read_response(disable_decoding=True)
        except (redis.AuthenticationError, ResponseError):
            if used or not login["password"]:
                raise
        finally:
            driver.disconnect()
    raise AssertionError("unreachable")
