"""What a shell completes: commands, options, URLs of back ends and files.

``_VLMSEARCH_COMPLETE=bash_source vlmsearch`` prints a script for bash; there are zsh and fish, too. Bash ends a word at
a colon, which URLs have, and zsh writes a space behind every completion. So the scripts for these two are not click's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import click
from click.shell_completion import BashComplete, CompletionItem, ZshComplete, add_completion_class, split_arg_string

from vlmsearch._util.files import expand_home
from vlmsearch.errors import ConfigError
from vlmsearch.registry import ComponentKind, back_ends

SHELLS = ("bash", "zsh", "fish")
_INSTRUCTION = re.compile(rf"({'|'.join(SHELLS)})_(source|complete)")
_BASH = r"""
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                [[ $value == *: ]] && compopt -o nospace
                printf -v value %%q "$value"
                COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_BREAKS="$COMP_WORDBREAKS" \
        %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH = r"""
#compdef %(prog_name)s
%(complete_func)s() {
    local -a response urls values described
    local type value help
    (( ! $+commands[%(prog_name)s] )) && return 1
    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
        %(complete_var)s=zsh_complete %(prog_name)s)}")
    for type value help in ${response}; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain)
                if [[ $help != _ ]]; then described+=("$value:$help")
                elif [[ $value == *: ]]; then urls+=("$value")
                else values+=("$value")
                fi ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described -U
    (( $#values )) && compadd -U -V unsorted -a values
    (( $#urls )) && compadd -S '' -U -V unsorted -a urls
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""


class _Bash(BashComplete):
    """Completion that undoes how bash splits words at colons and equals signs."""

    source_template = _BASH

    def source(self) -> str:
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        self._word = words.pop() if words and not line[-1].isspace() else ""
        return words, self._word

    def format_completion(self, item: CompletionItem) -> str:
        option, equals, word = self._word.partition("=") if self._word.startswith("--") else ("", "", self._word)
        breaks = [sign for sign in ":=" if sign in os.environ["COMP_BREAKS"]]
        start = max((word.rfind(sign) + 1 for sign in breaks), default=0)
        prefix = f"{option}=" if equals and "=" not in breaks else ""
        value = str(item.value)
        return f"{item.type},{prefix}{value[start:] if value.startswith(word) else value}"


class _Zsh(ZshComplete):
    """Completion that writes no space behind the scheme of a URL."""

    source_template = _ZSH


def prepare(instruction: str) -> None:
    """Make click answer a shell; ConfigError for one that it does not know."""
    if not _INSTRUCTION.fullmatch(instruction):
        known = ", ".join(f"{shell}_source" for shell in SHELLS)
        raise ConfigError(f"_VLMSEARCH_COMPLETE is one of {known}, not {instruction!r}")
    add_completion_class(_Bash)
    add_completion_class(_Zsh)


def complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the path of a file."""
    return [CompletionItem(incomplete, type="file")]


class BackEndUrl(click.types.StringParamType):
    """The URL of a back end. A shell completes its scheme, and the name of a model or a folder."""

    def __init__(self, kind: ComponentKind) -> None:
        self.kind: ComponentKind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the URLs that begin as the word does."""
        scheme, colon, location = incomplete.partition(":")
        if not colon:
            urls: Iterator[str] | list[str] = [f"{name}:" for name in sorted(back_ends(self.kind))]
        elif self.kind == "store":
            urls = (f"{scheme}:{folder}" for folder in _folders(location))
        else:
            urls = (f"{scheme}:{name}" for name in _models(self.kind, scheme))
        return [CompletionItem(url) for url in urls if url.startswith(incomplete)]


def _folders(location: str) -> list[str]:
    """Return the folders beside the one whose name is begun, as they would be written."""
    parent = location[: location.rfind("/") + 1]
    try:
        folders = [entry.name for entry in expand_home(parent or ".").iterdir() if entry.is_dir()]
    except OSError:
        return []
    return [f"{parent}{name}" for name in sorted(folders) if not name.startswith(".")]


def _models(kind: ComponentKind, scheme: str) -> list[str]:
    """Return the models that have names, where the scheme takes them."""
    from vlmsearch.models.bundle import PROFILES, RERANKER, built_folders, recipe_names
    from vlmsearch.models.generator import generator_names

    if scheme not in ("onnx", "tensorrt"):
        return []
    if kind == "generator":
        return generator_names() if scheme == "onnx" else []
    if kind == "reranker":
        return sorted({*recipe_names(RERANKER), *(name for name, _ in built_folders(RERANKER))})
    return [*PROFILES, *sorted({*recipe_names(), *(name for name, _ in built_folders())})]
