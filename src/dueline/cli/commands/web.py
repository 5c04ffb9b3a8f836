"""`dueline web`: serve the dashboard."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from dueline.api.application import Dueline
from dueline.api.connect import check_exists
from dueline.cli.errors import Exit
from dueline.cli.options import option
from dueline.cli.output import note
from dueline.cli.session import session_of
from dueline.core.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from dueline.web.security import Identity

TOKENS_VARIABLE = "DUELINE_WEB_TOKENS"
PORT = 8321


WebRole = Literal["reader", "operator", "admin", "producer", "worker"]


def web(
    context: typer.Context,
    *,
    host: Annotated[str, option("ADDRESS", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("N", "Port to listen on.", min=0, max=65535)] = PORT,
    role: Annotated[
        WebRole, typer.Option("--role", help="Role of visitors who need no token.")
    ] = "reader",
    operate: Annotated[bool, typer.Option("--operate", help="Short for --role operator.")] = False,
    host_name: Annotated[
        list[str] | None, option("NAME", "Name of the site; repeatable.", "--host-name")
    ] = None,
) -> int:
    """Serve the dashboard and the HTTP API.

    Only this machine has access, to read. To listen on other addresses, set DUELINE_WEB_TOKENS to
    ROLE:TOKEN or ROLE@NAME:TOKEN, or to several with commas between; roles are reader, operator,
    admin, producer and worker. The name is recorded with changes. The HTTP API is at /api/v1.

    Example: dueline web --operate
    """
    try:
        from dueline.web import dashboard  # noqa: PLC0415  (an extra)
        from dueline.web.server import bound, check_address, server_of  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"The dashboard needs {error.name}.", hint="Run `pip install 'dueline[web]'`."
        ) from error
    tokens = read_tokens(os.environ.get(TOKENS_VARIABLE, ""))
    check_address(host, needs_login=bool(tokens))
    session = session_of(context)
    check_exists(session.address)
    tasks = session.application() if session.has_application else None
    app = Dueline(session.address)  # without what an application declares, which would be stored
    listening = bound(host, port)
    number = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    note(f"The dashboard is at http://{shown}:{number}/ (press Ctrl-C to stop).")
    try:
        pages = dashboard(
            app,
            role="operator" if operate else role,
            tokens=tokens,
            hosts=tuple(host_name or ()),
            tasks=tasks,
        )
        server_of(pages).run(sockets=[listening])
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        with suppress(StoreUnavailable):  # the disk does not answer
            app.close()
            if tasks is not None:
                tasks.close()
    return Exit.TERMINATED


def read_tokens(text: str) -> "dict[str, WebRole | Identity]":
    """Read ROLE:TOKEN or ROLE@NAME:TOKEN, or several with commas between.

    Raises: ConfigError: a part has another form.
    """
    roles: tuple[WebRole, ...] = get_args(WebRole)
    from dueline.web.security import Identity  # noqa: PLC0415  (an extra)

    tokens: dict[str, WebRole | Identity] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, _, token = part.partition(":")
        word, at, name = word.partition("@")
        role = next((literal for literal in roles if literal == word), None)
        if role is None or not token or bool(at) != bool(name.strip()):
            raise ConfigError(
                f"{TOKENS_VARIABLE} has a part that is neither ROLE:TOKEN nor ROLE@NAME:TOKEN.",
                hint=f"Use operator:TOKEN; roles are {', '.join(roles)}.",
            )
        tokens[token] = Identity(name.strip(), role) if name else role
    return tokens
