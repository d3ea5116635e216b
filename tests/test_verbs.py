"""Each argument of a verb is declared once: everything else that has it is made from it or compared with it here."""

import asyncio
import importlib
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import click
import pytest
from mcp.types import CallToolResult
from vlmsearch_mocks import MockReranker

from vlmsearch import (
    AsyncPipeline,
    Document,
    GenerationOptions,
    Index,
    PictureOptions,
    Pipeline,
    RemotePipeline as Remote,
    SourceOptions,
    connect,
)
from vlmsearch._util.options import options_of
from vlmsearch.errors import ConfigError
from vlmsearch.integrations.mcp import create_mcp_server
from vlmsearch.search.options import (
    ManyKeywords,
    ManyOptions,
    RankingKeywords,
    RankingOptions,
    SearchKeywords,
    SearchOptions,
)
from vlmsearch.server.forms import (
    AskForm,
    CheckJob,
    DescribeJob,
    DuplicatesJob,
    EvalJob,
    ExplainForm,
    IndexJob,
    LabelJob,
    SearchForm,
    SearchManyForm,
)
from vlmsearch.verbs import (
    AskKeywords,
    AskRequest,
    CheckRequest,
    DescribeRequest,
    DuplicatesRequest,
    EvaluateRequest,
    ExplainRequest,
    IndexRequest,
    LabelRequest,
    SearchManyRequest,
    SearchRequest,
)

VERBS = [name for name in vars(Index) if not name.startswith("_")]
FORMS: dict[type[Any], type[Any]] = {
    SearchForm: SearchRequest,
    SearchManyForm: SearchManyRequest,
    ExplainForm: ExplainRequest,
    AskForm: AskRequest,
    LabelJob: LabelRequest,
    DescribeJob: DescribeRequest,
    DuplicatesJob: DuplicatesRequest,
    EvalJob: EvaluateRequest,
    CheckJob: CheckRequest,
    IndexJob: IndexRequest,
}
ELSEWHERE = {
    "offset",
    "image",
    "like",
    "without",
    "options",
    "pictures",
    "stream",
    "template",
    "templates",
    "parts",
    "seconds",
}
"""What a command has in another form: `--page` is an offset."""
COMMANDS = {
    "search": SearchRequest,
    "explain": ExplainRequest,
    "ask": AskRequest,
    "label": LabelRequest,
    "describe": DescribeRequest,
    "duplicates": DuplicatesRequest,
}


@pytest.mark.parametrize(
    ("keywords", "options"),
    [(RankingKeywords, RankingOptions), (ManyKeywords, ManyOptions), (SearchKeywords, SearchOptions)],
)
def test_keywords_have_the_types_of_the_options(keywords: type, options: type[Any]) -> None:
    assert get_type_hints(keywords) == {name: option.type for name, option in options_of(options).items()}


def test_the_keywords_of_a_question_are_its_arguments() -> None:
    assert get_type_hints(AskKeywords).keys() | {"question", "stream"} == options_of(AskRequest).keys()


@pytest.mark.parametrize("request_", [*FORMS.values(), SourceOptions, GenerationOptions, PictureOptions])
def test_every_argument_is_described(request_: type[Any]) -> None:
    assert [name for name, option in options_of(request_).items() if not option.help] == []


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_the_service_has_every_argument_with_its_default_and_bounds(form: type[Any]) -> None:
    schema = form.model_json_schema()
    properties = schema["properties"]
    for name, option in options_of(FORMS[form]).items():
        if option.is_local or (form, name) == (IndexJob, "options"):
            assert name not in properties
            continue
        kinds = properties[name].get("anyOf", [])
        assert ({"type": "null"} in kinds) == (name not in schema.get("required", ())), name
        assert option.maximum in [None, *(kind.get("maximum") for kind in kinds)], name
        if isinstance(option.default, (bool, int, float, str)):
            assert properties[name]["default"] == option.default, name


def test_the_pictures_of_a_question_have_the_same_bounds_everywhere() -> None:
    rules = AskForm.model_json_schema()["$defs"]["PictureForm"]["properties"]
    for name, option in options_of(PictureOptions).items():
        kind = rules[name]["anyOf"][0]
        assert (kind["minimum"], kind["maximum"]) == (option.minimum, option.maximum)
        with pytest.raises(ConfigError, match=f"`{name}` of pictures is from"):
            PictureOptions(**{name: int(option.maximum or 0) + 1})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_flag_for_every_argument(command: str) -> None:
    module = importlib.import_module(f"vlmsearch.cli.{command}")
    flags: dict[str, click.Parameter] = {parameter.name: parameter for parameter in getattr(module, command).params}
    for name, option in options_of(COMMANDS[command]).items():
        if not (option.is_local or name in ELSEWHERE or option.is_required):
            default = flags[name].to_info_dict()["default"]
            assert (default or None) == (option.default or None), name


def test_a_tool_for_assistants_has_every_option() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        listed = asyncio.run(create_mcp_server(pipeline).list_tools())
    tools = {tool.name: tool.input_schema["properties"] for tool in listed}
    assert tools["search"].keys() == {"query", "without", *options_of(ManyOptions)}
    assert tools["ask"].keys() == {"question", "source_chars", *options_of(RankingOptions)}
    assert tools["search"]["limit"]["anyOf"][0]["maximum"] == 100
    assert tools["ask"]["limit"]["anyOf"][0]["maximum"] == 20


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_the_same_wherever_the_index_is(verb: str) -> None:
    declared = inspect.signature(getattr(Index, verb)).parameters
    for cls in (Pipeline, Remote, AsyncPipeline):
        there = inspect.signature(getattr(cls, verb)).parameters
        assert list(there) == list(declared), cls
        for name, parameter in declared.items():
            assert (there[name].kind, there[name].default) == (parameter.kind, parameter.default), (cls, name)
    assert inspect.getdoc(getattr(Pipeline, verb)) == inspect.getdoc(getattr(Remote, verb))


def test_options_that_a_verb_does_not_take_are_named() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline, connect("http://127.0.0.1:1") as remote:
        for index in (pipeline, remote):
            with pytest.raises(TypeError, match="no option 'colour' here: the options are text, image"):
                index.search("a dog", colour="red")  # type: ignore[call-arg]
            with pytest.raises(TypeError, match="no option 'cursor' here"):
                index.search_many(["a dog"], cursor="x")  # type: ignore[call-arg]
            with pytest.raises(TypeError, match="missing a required argument: 'labels'"):
                index.label()  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="a service has a re-ranker of its own"):
            remote.search("a dog", rerank="onnx:demo-reranker")
        with pytest.raises(ConfigError, match="this pipeline has no re-ranker"):
            pipeline.search("a dog", rerank=True)


def test_a_pipeline_asks_the_reranker_that_it_was_opened_with() -> None:
    with Pipeline.open(encoder="mock:", store="mock:", reranker="mock:") as pipeline:
        assert isinstance(pipeline.reranker, MockReranker)
        assert not pipeline.search("a dog", rerank=True)


# ------------------------------------------------------------------------------- None, {} and "" stand for "left out"

GIVEN: dict[str, dict[str, Any]] = {
    "search": {"text": "a dog"},
    "search_many": {"queries": ["a dog"]},
    "explain": {"text": "a dog", "id": "a"},
    "ask": {"question": "Which dog?"},
    "label": {"labels": ["dog"]},
    "duplicates": {},
    "check": {},
    "thumbnail": {"id": "a"},
}


def outcome(call: Callable[[], Any]) -> object:
    """What a verb gives, or its error."""
    try:
        result = call()
        return list(result) if inspect.isgenerator(result) else result
    except ConfigError as exc:
        return str(exc)


@pytest.mark.parametrize("verb", GIVEN)
def test_an_explicit_none_is_left_out(verb: str) -> None:
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
        call, given = getattr(pipeline, verb), GIVEN[verb]
        plain = outcome(lambda: call(**given))
        parameters = inspect.signature(call).parameters.values()
        nulls = {parameter.name: None for parameter in parameters if parameter.name not in given}
        assert outcome(lambda: call(**given, **nulls)) == plain
        empty = {name: {} if name == "where" else "" for name in ("where", "without") if name in nulls}
        assert outcome(lambda: call(**given, **empty)) == plain


def test_an_assistant_may_send_nulls() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add([Document("a", text="a dog"), Document("b", text="a car")])
        server = create_mcp_server(pipeline, allow_write=True)

        def call(name: str, given: dict[str, Any]) -> object:
            result = asyncio.run(server.call_tool(name, given))
            assert isinstance(result, CallToolResult)
            return result.structured_content

        for tool in asyncio.run(server.list_tools()):
            needed = {"query": "a dog", "ids": ["a"], "question": "Which dog?", "labels": ["dog"], "id": "a"}
            properties = tool.input_schema["properties"]
            given = {name: needed[name] for name in tool.input_schema.get("required", ()) if name in needed}
            nulls = {name: None for name in properties if name not in given}
            if tool.name != "look":
                assert call(tool.name, {**given, **nulls}) == call(tool.name, given), tool.name
                where: dict[str, Any] = {"where": {}} if "where" in properties else {}
                assert call(tool.name, {**given, **where}) == call(tool.name, given), tool.name
