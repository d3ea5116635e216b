"""Each option of a search is declared once: everything else that has it is made from it or compared with it here."""

import asyncio
import importlib
import inspect
from typing import Any, get_type_hints

import pytest
from vlmsearch_mocks import MockReranker

from vlmsearch import AsyncPipeline, Index, Pipeline, RemotePipeline, connect
from vlmsearch.errors import ConfigError
from vlmsearch.index import SOURCES
from vlmsearch.integrations.mcp import create_mcp_server
from vlmsearch.schema import with_options
from vlmsearch.search.options import ManyKeywords, RankingKeywords, SearchKeywords, SearchOptions, search_options
from vlmsearch.server.forms import AskForm, ExplainForm, SearchForm, SearchManyForm, StrictForm

VERBS = [name for name in vars(Index) if not name.startswith("_")]
ELSEWHERE = {"search": {"offset"}, "explain": set(), "ask": set()}
"""What a command has under another name: `--page` is an offset."""


def test_keywords_have_the_types_of_the_options() -> None:
    assert get_type_hints(SearchKeywords) == {
        name: kind for name, kind in get_type_hints(SearchOptions).items() if name != "condition"
    }
    assert list(search_options(RankingKeywords)) < list(search_options(ManyKeywords)) < list(search_options())
    assert all(option.help for option in search_options().values())


@pytest.mark.parametrize(
    ("form", "keywords"),
    [
        (SearchForm, SearchKeywords),
        (SearchManyForm, ManyKeywords),
        (ExplainForm, RankingKeywords),
        (AskForm, RankingKeywords),
    ],
    ids=["search", "search_many", "explain", "ask"],
)
def test_a_form_of_the_service_has_every_option_with_its_default_and_bounds(
    form: type[StrictForm], keywords: type
) -> None:
    properties = form.model_json_schema()["properties"]
    for name, option in search_options(keywords).items():
        default = SOURCES if (form, name) == (AskForm, "limit") else option.default
        assert properties[name]["default"] == (list(default) if isinstance(default, tuple) else default), name
        assert properties[name]["description"].startswith(option.help.replace("``", "`")[:20]), name
        if option.maximum is not None:
            kinds = [properties[name], *properties[name].get("anyOf", [])]
            assert option.maximum in [kind.get("maximum") for kind in kinds], name


@pytest.mark.parametrize(
    ("command", "keywords"), [("search", SearchKeywords), ("explain", RankingKeywords), ("ask", RankingKeywords)]
)
def test_a_command_has_a_flag_for_every_option(command: str, keywords: type) -> None:
    module = importlib.import_module(f"vlmsearch.cli.{command}")
    command_ = getattr(module, command)
    flags = {parameter.name: parameter for parameter in command_.params}
    for name, option in search_options(keywords).items():
        if name not in ELSEWHERE[command]:
            default = flags[name].to_info_dict()["default"]
            expected = SOURCES if (command, name) == ("ask", "limit") else option.default
            assert (default or None) == (expected or None), name


def test_a_tool_for_assistants_has_every_option() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        listed = asyncio.run(create_mcp_server(pipeline).list_tools())
    tools = {tool.name: tool.input_schema["properties"] for tool in listed}
    assert tools["search"].keys() == {"query", "without", *search_options(ManyKeywords)}
    assert tools["ask"].keys() == {"question", *search_options(RankingKeywords)}
    assert tools["search"]["limit"]["maximum"] == 100
    assert tools["search"]["diversity"]["maximum"] == 1


def test_a_form_takes_the_options_of_its_verb() -> None:
    class Form(StrictForm):
        pass

    made: type[Any] = with_options(ManyKeywords)(Form)
    assert set(made.model_fields) == set(search_options(ManyKeywords))


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_the_same_wherever_the_index_is(verb: str) -> None:
    declared = inspect.signature(getattr(Index, verb)).parameters
    for cls in (Pipeline, RemotePipeline, AsyncPipeline):
        there = inspect.signature(getattr(cls, verb)).parameters
        assert list(there) == list(declared), cls
        for name, parameter in declared.items():
            assert (there[name].kind, there[name].default) == (parameter.kind, parameter.default), (cls, name)
    assert inspect.getdoc(getattr(Pipeline, verb)) == inspect.getdoc(getattr(RemotePipeline, verb))


def test_options_that_a_verb_does_not_take_are_named() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline, connect("http://127.0.0.1:1") as remote:
        for index in (pipeline, remote):
            with pytest.raises(TypeError, match="no option 'colour' here: the options are where, limit"):
                index.search("a dog", colour="red")  # type: ignore[call-arg]
            with pytest.raises(TypeError, match="no option 'cursor' here"):
                index.search_many(["a dog"], cursor="x")  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="a service has a re-ranker of its own"):
            remote.search("a dog", rerank="onnx:demo-reranker")
        with pytest.raises(ConfigError, match="this pipeline has no re-ranker"):
            pipeline.search("a dog", rerank=True)


def test_a_pipeline_asks_the_reranker_that_it_was_opened_with() -> None:
    with Pipeline.open(encoder="mock:", store="mock:", reranker="mock:") as pipeline:
        assert isinstance(pipeline.reranker, MockReranker)
        assert not pipeline.search("a dog", rerank=True)
