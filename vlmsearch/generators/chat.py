"""Chat templates, as tokenizers of the Hugging Face hub have them, without transformers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError, ModelUnavailableError, one_line

_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def find_chat_template(folder: Path, tokenizer: Tokenizer) -> Callable[[str], str] | None:
    """Return a function that puts a prompt into the chat template of a tokenizer's folder.

    None where it has none. The template is rendered in a sandbox, with the names that transformers'
    ``apply_chat_template`` has. The text does not begin with the token that begins every text where the tokenizer adds
    it.
    """
    try:
        settings = parse_json((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        source = _source(folder, settings)
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError) as exc:
        raise ModelUnavailableError(f"{folder / 'tokenizer_config.json'} cannot be read: {one_line(exc)}") from exc
    if not source:
        return None
    tokens = {name: _text(settings[name]) for name in _TOKENS if settings.get(name)}
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    try:
        template = environment.from_string(source)
    except TemplateError as exc:
        raise ModelUnavailableError(f"the chat template of {folder} cannot be read: {exc}") from exc

    begin = tokens.get("bos_token", "")
    added = begin if tokenizer.encode("").ids[:1] == [tokenizer.token_to_id(begin)] else ""

    def fill(prompt: str) -> str:
        turns = [{"role": "user", "content": prompt}]
        try:
            text = template.render(messages=turns, tools=None, documents=None, add_generation_prompt=True, **tokens)
        except Exception as exc:  # a template is a program, which can fail in any way
            raise ConfigError(
                f"the chat template of {folder} refuses the prompt: {one_line(exc)}; add chat=false"
            ) from exc
        return text.removeprefix(added)

    return fill


def _source(folder: Path, settings: object) -> str:
    """Return the template of a file of its own, or the default one of the settings."""
    if not isinstance(settings, dict):
        raise TypeError("it holds no table")
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = settings.get("chat_template")
    if isinstance(source, list):
        named = {template.get("name"): template.get("template") for template in source if isinstance(template, dict)}
        source = named.get("default")
    if source and not isinstance(source, str):
        raise TypeError("its chat_template is not a string")
    return source or ""


def _text(token: object) -> str:
    """Return a special token, which older tokenizers describe with a table."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _refuse(message: str) -> None:
    raise TemplateError(message)
