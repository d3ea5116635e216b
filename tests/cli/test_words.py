"""What commands show of the ranking of words."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import Document, Pipeline
from vlmsearch.cli import cli
from vlmsearch.cli.contact_sheet import Section, write_sheet


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What commands open."""
    store = MemoryStore("words", language="none")
    Pipeline(MockEncoder(), store).add([Document("a", text="code AB-4711"), Document("b", text="a blue heart")])
    monkeypatch.setattr("vlmsearch.registry.open_store", lambda url: store)
    return store


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(cli, [*arguments, "--store", "mock:"])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_info_says_how_words_are_compared(store: MemoryStore) -> None:
    assert "words       none\n" in shown("info")
    assert json.loads(shown("info", "--json"))["words"] == "none"


def test_info_says_how_the_index_is_tuned(store: MemoryStore) -> None:
    assert "tuning" not in shown("info")
    assert json.loads(shown("info", "--json"))["tuning"] == {}
    store.tune({"words": 0.5, "min_score": 0.25})
    assert "\ntuning      words 0.5, min_score 0.25\n" in shown("info")
    assert json.loads(shown("info", "--json"))["tuning"] == {"words": 0.5, "min_score": 0.25}


def test_the_page_shows_words(store: MemoryStore, tmp_path: Path) -> None:
    matches = Pipeline(MockEncoder(), store).search("4711")
    write_sheet(tmp_path / "page.html", [Section("4711", matches)])
    assert f"words #1 ({matches[0].fields['words'].score:.2f})" in (tmp_path / "page.html").read_text()
