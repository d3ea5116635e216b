"""Chat templates without transformers, beside transformers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing

from tests.support.llm_servers import BUNDLE
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.generators.chat import find_chat_template
from vlmsearch.generators.text import open_tokenizer

END = "<|endoftext|>"
PROMPT = "  What is red?\nSources: {1} <b>&</b>  "
TURNS = "{% for m in messages %}"
TEMPLATES = {
    "one turn": TURNS + "<{{ m['role'] }}> {{ m['content'] | trim }}\n{% endfor %}",
    "the end": TURNS + "[{{ m.content }}]{% endfor %}{{ eos_token }}{% if add_generation_prompt %}>{% endif %}",
    "blocks on lines": "{%- for m in messages %}\n    {%- if loop.first %}\n  first\n    {% endif %}\n{{ m.content }}"
    "\n{% endfor %}\nlast\n",
    "no tools": "{% if tools is not none %}{{ tools | length }} tools{% endif %}{{ messages[0].content }}",
    "no documents": "{% if documents %}{{ documents[0].text }}{% endif %}{{ messages[0].content }}",
    "an unset token": "{% if unk_token is defined %}unknown: {{ unk_token }}{% endif %}{{ messages[-1].content }}",
    "the date": "{% if strftime_now is defined %}{{ strftime_now('%B %Y') }}{% endif %} {{ messages[0].content }}",
    "loop controls": TURNS + "{% if m.role != 'user' %}{% continue %}{% endif %}{{ m.content }}{% break %}{% endfor %}",
    "namespaces": "{% set ns = namespace(n=0) %}" + TURNS + "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }} turns",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a tokenizer's folder of its own."""
    return Path(shutil.copytree(BUNDLE, tmp_path / "chat"))


def template_of(folder: Path) -> Callable[[str], str] | None:
    return find_chat_template(folder, open_tokenizer(folder))


def change(folder: Path, **settings: object) -> None:
    """Set these of the tokenizer's settings; None takes one out."""
    file = folder / "tokenizer_config.json"
    changed = json.loads(file.read_text()) | settings
    file.write_text(json.dumps({name: value for name, value in changed.items() if value is not None}))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_is_filled_as_transformers_fills_it(folder: Path, template: str) -> None:
    from transformers import AutoTokenizer

    change(folder, chat_template=template, unk_token=None, bos_token=None)
    fill = template_of(folder)
    assert fill
    tokenizer = AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": PROMPT}]
    assert fill(PROMPT) == tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("adds", [False, True])
def test_every_text_begins_once_with_the_token_for_that(folder: Path, adds: bool) -> None:
    """Whether the tokenizer adds it, as that of Llama does, or the template alone has it."""
    from transformers import AutoTokenizer

    change(folder, chat_template="{{ bos_token }}{{ messages[0].content }}", bos_token=END)
    if adds:
        tokenizer = open_tokenizer(folder)
        begin = [(END, tokenizer.token_to_id(END))]
        tokenizer.post_processor = TemplateProcessing(single=f"{END} $A", special_tokens=begin)
        tokenizer.save(str(folder / "tokenizer.json"))
    fill = template_of(folder)
    assert fill
    assert fill("red?") == ("red?" if adds else f"{END}red?")
    expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [{"role": "user", "content": "red?"}], return_dict=False
    )
    assert open_tokenizer(folder).encode(fill("red?")).ids == expected


def test_a_template_beside_the_settings_is_taken_first(folder: Path) -> None:
    change(folder, chat_template="settings")
    (folder / "chat_template.jinja").write_text("file: {{ messages[0].content }}")
    fill = template_of(folder)
    assert fill
    assert fill("red?") == "file: red?"


def test_of_several_templates_the_default_is_taken(folder: Path) -> None:
    change(
        folder, chat_template=[{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]
    )
    fill = template_of(folder)
    assert fill
    assert fill("red?") == "default"


def test_without_a_template_there_is_none(folder: Path) -> None:
    assert template_of(folder) is None
    assert find_chat_template(folder.parent, open_tokenizer(folder)) is None


def test_a_template_that_refuses_the_prompt_is_named(folder: Path) -> None:
    change(folder, chat_template="{{ raise_exception('a system prompt is needed') }}")
    fill = template_of(folder)
    assert fill
    with pytest.raises(ConfigError, match="refuses the prompt: a system prompt is needed; add chat=false"):
        fill("red?")


@pytest.mark.parametrize(
    "template",
    [
        "{% for %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 1 + 'a' }}",
        "{{ 1 // 0 }}",
        "{{ range(999999) }}",
    ],
)
def test_a_template_that_cannot_be_used_is_named(folder: Path, template: str) -> None:
    change(folder, chat_template=template)
    with pytest.raises((ModelUnavailableError, ConfigError), match="the chat template of"):
        (template_of(folder) or str)("red?")


@pytest.mark.parametrize(
    "settings", ["{", "[]", '{"chat_template": 3}', '{"chat_template": [{"name": "default", "template": 3}]}']
)
def test_damaged_settings_are_named(folder: Path, settings: str) -> None:
    (folder / "tokenizer_config.json").write_text(settings)
    with pytest.raises(ModelUnavailableError, match=r"tokenizer_config\.json cannot be read"):
        template_of(folder)
