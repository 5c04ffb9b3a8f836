"""Shell completion: the scripts for each shell, and the words that they offer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, get_args

import typer

from dueline.cli.options import argument
from dueline.cli.session import Format

VARIABLE: Final = "_DUELINE_COMPLETE"
"""If it is set, the program prints the words that may stand where the last argument is."""

_BASH: Final = """\
_dueline_complete() {
    local IFS=$'\\n'
    COMPREPLY=($(_DUELINE_COMPLETE=1 dueline "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _dueline_complete dueline
"""

_ZSH: Final = """\
#compdef dueline
_dueline_complete() {
    local -a found
    found=("${(@f)$(_DUELINE_COMPLETE=1 dueline "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _dueline_complete dueline
"""

_FISH: Final = """\
function __dueline_complete
    set -l given (commandline -opc)
    set -e given[1]
    env _DUELINE_COMPLETE=1 dueline $given "$(commandline -ct)" 2>/dev/null
end
complete -c dueline -a '(__dueline_complete)'
"""


Shell = Literal["bash", "zsh", "fish"]
_SCRIPTS: Final[Mapping[Shell, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(shell: Annotated[Shell, argument("SHELL", "bash, zsh or fish.")]) -> None:
    """Print a script that completes commands and options.

    For bash and zsh, add `eval "$(dueline completion bash)"` to ~/.bashrc or ~/.zshrc. For fish,
    write the script to ~/.config/fish/completions/dueline.fish.

    Example: dueline completion bash
    """
    typer.echo(_SCRIPTS[shell], nl=False)


def words_for(
    root: Any,  # noqa: ANN401  (a group of Click, wherever Typer has it from)
    before: Sequence[str],
    last: str,
    anywhere: Sequence[str],
) -> list[str]:
    """Return the words that may stand where `last` is.

    Args:
        root: The group of all commands.
        before: The words before it, without the options that may stand anywhere.
        last: What is typed of the word.
        anywhere: The options that may stand anywhere.
    """
    command = root
    for word in before:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    options = {
        name: param for param in command.params for name in (*param.opts, *param.secondary_opts)
    }
    before_it = options.get(before[-1]) if before else None
    if before_it is not None and not getattr(before_it, "is_flag", False):
        return _starting(getattr(before_it.type, "choices", ()), last)
    if last.startswith("-"):
        names = {name for name in options if name.startswith("-")}
        return _starting({*names, *anywhere, "--help"}, last)
    if hasattr(command, "commands"):
        return _starting(command.commands, last)
    choices = [
        getattr(param.type, "choices", ()) for param in command.params if not _is_option(param)
    ]
    return _starting((word for words in choices for word in words), last)


def words_for_value(option: str, last: str) -> list[str]:
    """Return the values of an option that may stand anywhere."""
    return _starting(get_args(Format), last) if option in ("-o", "--output") else []


def _is_option(parameter: Any) -> bool:  # noqa: ANN401  (see above)
    return any(name.startswith("-") for name in parameter.opts)


def _starting(words: Iterable[str], last: str) -> list[str]:
    return sorted({word for word in words if word.startswith(last)})
