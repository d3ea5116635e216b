import ast
import contextlib
import importlib
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from vlmsearch import ConfigError, MissingDependencyError, registry
from vlmsearch._util.extras import install_command
from vlmsearch._util.options import without_none
from vlmsearch.cli import cli
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.registry import (
    ComponentKind,
    Url,
    back_ends,
    load,
    open_encoder,
    open_generator,
    open_reranker,
    open_store,
)

STORES = {
    "chroma": ("chroma", "mongodb_chroma", "sqlite"),  # whose message says how the index of an old folder is copied
    "mongodb": ("mongodb", "mongodb_chroma"),
    "postgresql": ("postgresql",),
}
"""The rooms of the stores that code may name."""


def code_strings(path: Path) -> str:
    """Return the strings of a module without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told]
    return " ".join(node.value for node in strings if isinstance(node.value, str))


@pytest.mark.parametrize("scheme", STORES)
def test_no_code_outside_its_room_names_a_store(scheme: str) -> None:
    package = Path(registry.__file__).parent
    rooms = [package / "stores" / room for room in STORES[scheme]]
    outside = [path for path in package.rglob("*.py") if not any(path.is_relative_to(room) for room in rooms)]
    assert len(outside) > 100
    assert [path for path in outside if re.search(rf"\b{scheme}\b", code_strings(path), re.IGNORECASE)] == []


def test_a_url_is_taken_apart() -> None:
    url = Url.parse("mongodb+chroma://db/photos?chroma=http://vec:8000&timeout=3", "store")
    assert (url.scheme, url.location) == ("mongodb+chroma", "//db/photos")
    assert url.options == (("chroma", "http://vec:8000"), ("timeout", "3"))


@pytest.mark.parametrize("text", ["", "demo", ":demo"])
def test_what_is_no_url_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ConfigError, match="onnx:"):
        open_encoder(text)


@pytest.mark.parametrize(("url", "meant"), [("postgres://h/db", "postgresql"), ("mongo://h/db", "mongodb")])
def test_a_scheme_that_others_use_suggests_the_store_that_is_meant(url: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{meant}:'"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("onyx:demo", r"no encoder 'onyx:'; did you mean 'onnx:'\? there are .*onnx:"),
        ("onnx:", "needs a location"),
        (
            "onnx:demo?precison=int8",
            r"no option 'precison'; did you mean 'precision'\? it has precision, threads, batch_size",
        ),
        ("onnx:demo?precision=int4", "precision of encoder onnx: is one of int8, fp32, fp16, not 'int4'"),
        ("onnx:demo?threads=two", "threads of encoder onnx: is a whole number, not 'two'"),
        ("onnx:demo?threads=0", "`threads` is from 1 to 1,024"),
        ("onnx:demo?threads=99999999999", "to 1,024, not 99999999999"),
        ("onnx:demo?threads", "not of the form name=value"),
        ("onnx:no-such-model", "no model 'no-such-model'; there are default, clip, demo"),
    ],
)
def test_a_wrong_encoder_url_says_what_is_possible(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_encoder(url)


ODD_VALUES = ("nan", "inf", "-1", "0", "-0.0", "1e308", "1" + "0" * 400, "9" * 5000, "0.0004", "", "x", "true", "3e6")
PLACES = {
    ("encoder", "mock"): "",
    ("encoder", "onnx"): "demo-minilm",
    ("encoder", "openai"): "http://host/v1",
    ("generator", "extractive"): "",
    ("generator", "mock"): "",
    ("generator", "openai"): "http://host/v1",
    ("reranker", "cohere"): "http://host/v1",
    ("reranker", "judge"): "openai:http://host/v1",
    ("reranker", "onnx"): "demo-reranker",
    ("store", "chroma"): "//host/name",
    ("store", "mongodb"): "//host/name",
    ("store", "mongodb+chroma"): "//host/name",
    ("store", "postgresql"): "//host/name",
    ("store", "sqlite"): "index",
}
NEEDED = {"openai": "&model=m", "cohere": "&model=m", "judge": "&model=m", "mongodb+chroma": "&chroma=http://host"}
OPENERS = {"encoder": open_encoder, "generator": open_generator, "reranker": open_reranker, "store": open_store}


@pytest.mark.parametrize(("kind", "scheme"), PLACES)
def test_any_value_of_any_option_is_within_bounds_or_refused(kind: ComponentKind, scheme: str) -> None:
    options = registry._options_of(load(kind, scheme))
    others = NEEDED.get(scheme, "")
    for name, (_, _, annotation) in options.items():
        for value in () if f"&{name}=" in others else ODD_VALUES:
            url = f"{scheme}:{PLACES[kind, scheme]}?{name}={value}{others}"
            with contextlib.suppress(ConfigError):
                OPENERS[kind](url).close()
                is_number = without_none(annotation) in (int, float)
                assert not is_number or value in ("0", "-0.0") or 0.0001 < float(value) <= 2**24, url


def test_back_ends_that_are_loaded_at_once_are_those_that_are_registered() -> None:
    for (kind, scheme), (module, name) in registry._OWN.items():
        assert back_ends(kind)[scheme].value == f"{module}:{name}"


def test_a_source_tree_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
    with pytest.raises(ConfigError, match="no encoder is registered: vlmsearch runs from its source here"):
        open_encoder("tensorrt:demo")


@pytest.mark.parametrize(
    "url",
    ["mongodb://user:hunter2@host/db?option", "postgresql://user:hunter2@host/db", "postgresql://a:hunter2@h/d?option"],
)
def test_no_message_repeats_a_secret_from_a_url(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


NO_ADDRESSES = ("[::1", "::1]", "[zz]:80", "[]:80", "[::1]x:80", "h:99999", "h:0", "h:-1", "h h:80", "a..b:80", "℀:80")


@pytest.mark.parametrize(
    ("opened", "url"),
    [
        (open_store, "chroma://{}/name"),
        (open_store, "mongodb://{}/db"),
        (open_store, "mongodb+chroma://{}/db?chroma=http://vec"),
        (open_store, "postgresql://{}/db"),
        (open_store, "postgresql://me@host,{}/db"),
        (open_store, "mongodb+chroma://host/db?chroma=http://{}"),
        (open_store, "mongodb+chroma://host/db?chroma=chroma://{}/name"),
        (open_encoder, "triton://{}/vlm"),
        (open_generator, "triton://{}/ensemble"),
        (open_generator, "openai:http://{}/v1"),
        (open_encoder, "openai:http://{}/v1?model=m"),
        (open_reranker, "cohere:http://{}/v1"),
        (open_reranker, "judge:openai:http://{}/v1"),
    ],
)
def test_an_address_that_is_none_is_refused_in_one_line(
    opened: Callable[[str], object], url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for address in NO_ADDRESSES:
        with pytest.raises(ConfigError) as caught:
            opened(url.format(address))
        assert "\n" not in str(caught.value), address
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["[::1]:8000", "[fe80::1%eth0]:80", "db-1.example.org.", "a_b:1", "h:65535"])
def test_addresses_of_all_forms_are_taken(address: str) -> None:
    urls = (
        f"mongodb://{address}/db",
        f"chroma://{address}/db",
        f"mongodb+chroma://host/db?chroma=http://{address}",
        f"postgresql://{address}/db",
        f"postgresql://me@host,{address}/db",
    )
    for url in urls:
        open_store(url).close()
    open_generator(f"openai:http://{address}/v1?model=m").close()
    open_encoder(f"openai:http://{address}/v1?model=m").close()
    open_reranker(f"cohere:http://{address}/v1?model=m").close()


def test_where_a_location_is_a_generator_other_options_are_the_generators() -> None:
    url = "judge:openai:http://host/v1?model=org/a%26b&image_size=9&timeout=3"
    with open_reranker(url) as judge:
        assert judge.name == "judge:openai:http://host/v1"
        generator = vars(judge)["_generator"]
        assert vars(generator)["_model"] == "org/a&b"
        assert vars(judge)["_image_size"] == 9


@pytest.mark.parametrize("url", ["chroma:a\nb", "mongodb+chroma://h/db?chroma=a%00b", "onnx:a\tb", "torch:\x00"])
def test_a_control_character_in_a_url_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ConfigError, match="has a line break or another control character in it") as caught:
        (open_encoder if url.startswith(("onnx", "torch")) else open_store)(url)
    assert str(caught.value).isprintable()


def test_a_scheme_without_location_takes_none() -> None:
    with pytest.raises(ConfigError, match="takes nothing after the colon"):
        open_generator("extractive:best")


def test_options_reach_the_back_end() -> None:
    assert open_generator("extractive:?quotes=1").generate("[1] a\n[2] b") == "“a” [1]"


def install(folder: Path, name: str, entry: str, source: str) -> None:
    """Put an installed distribution with one encoder ``far:`` into a folder."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vlmsearch.encoders]\nfar = {entry}\n")
    (folder / "far_plugin.py").write_text(source)


def test_a_missing_package_is_answered_with_the_extra_that_the_plug_in_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, "far-plugin", "far_plugin:Far [gpu-12]", "import no_such_driver\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = r"encoder far: needs no_such_driver, which is not installed: pip install 'far-plugin\[gpu-12\]'$"
    with pytest.raises(MissingDependencyError, match=message):
        open_encoder("far:host")
    listed = CliRunner().invoke(cli, ["backends"])
    assert re.search(r"^encoder +far: +missing +pip install 'far-plugin\[gpu-12\]'$", listed.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("entry", "source"),
    [("far_plugin:Far", "import no_such_driver\n"), ("far_plugin:Far [gpu]", "import far_plugin.lost\n")],
)
def test_no_extra_is_named_for_what_no_extra_brings(
    entry: str, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, "far-plugin", entry, source)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("far_plugin", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        open_encoder("far:host")
    assert not isinstance(caught.value, MissingDependencyError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "scheme", "package", "extra"),
    [
        ("encoder", "tensorrt", "cuda", "tensorrt"),
        ("encoder", "torch", "torch", "build"),
        ("encoder", "triton", "tritonclient", "triton"),
        ("generator", "transformers", "transformers", "build"),
        ("generator", "triton", "tritonclient", "triton"),
        ("reranker", "triton", "tritonclient", "triton"),
        ("store", "postgresql", "pgvector", "postgresql"),
    ],
)
def test_each_back_end_names_the_extra_that_it_needs(
    kind: ComponentKind, scheme: str, package: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from vlmsearch import MissingDependencyError\n"
        "from vlmsearch.registry import load\n"
        f"try: load({kind!r}, {scheme!r})\n"
        "except MissingDependencyError as exc: print(exc)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{kind} {scheme}: needs {package}")
    assert said.endswith(f"which is not installed: {install_command(*extra.split(','))}\n")


def test_a_third_party_class_of_the_wrong_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(kind: ComponentKind) -> dict[str, EntryPoint]:
        return {"odd": EntryPoint("odd", "vlmsearch.generators.extractive:ExtractiveGenerator", kind)}

    monkeypatch.setattr(registry, "back_ends", wrong)
    with pytest.raises(ConfigError, match="not a subclass of Store"):
        open_store("odd:")


class Plain(ExtractiveGenerator):
    """A back end with the constructor of another."""


class Placed(ExtractiveGenerator):
    """A back end whose location is positional only."""

    def __init__(self, location: str, /, *, quotes: int = 3) -> None:
        super().__init__(quotes=quotes)
        self.name = f"placed:{location}"


@pytest.mark.parametrize(
    ("cls", "url", "name"), [(Plain, "odd:?quotes=1", "extractive"), (Placed, "odd:here?quotes=1", "placed:here")]
)
def test_a_third_party_class_may_inherit_its_constructor_or_take_its_location_by_position_only(
    cls: type, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("odd", f"{__name__}:{cls.__name__}", "vlmsearch.generators")
    monkeypatch.setattr(registry, "back_ends", lambda _: {"odd": point})
    opened = open_generator(url)
    assert opened.name == name
    assert opened.generate("[1] a\n[2] b") == "“a” [1]"


@dataclass(frozen=True)
class Shape:
    size: int = 1
    is_round: bool = False

    def __post_init__(self) -> None:
        if self.is_round and self.size < 2:
            raise ConfigError("what is round has a size of at least 2")


class Shaped(ExtractiveGenerator):
    """A back end with options in dataclasses."""

    def __init__(self, *, quotes: int = 3, options: Shape = Shape(), lid: Shape = Shape(7)) -> None:
        super().__init__(quotes=quotes)
        self.name = repr((quotes, options, lid))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", (3, Shape(), Shape(7))),
        ("?is_round=yes&size=4", (3, Shape(4, is_round=True), Shape(7))),
        ("?lid_is_round=yes&quotes=2", (2, Shape(), Shape(7, is_round=True))),
        ("?lid_is_round=yes&lid_size=5&size=6", (3, Shape(6), Shape(5, is_round=True))),
    ],
)
def test_fields_of_dataclasses_are_options_too(
    query: str, expected: tuple[int, Shape, Shape], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("odd", f"{__name__}:Shaped", "vlmsearch.generators")
    monkeypatch.setattr(registry, "back_ends", lambda _: {"odd": point})
    assert open_generator(f"odd:{query}").name == repr(expected)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("is_round=yes", "a size of at least 2"),
        ("lid_size=large", "option lid_size of generator odd: is a whole number, not 'large'"),
        ("options=4", "no option 'options'; it has quotes, size, is_round, lid_size, lid_is_round"),
    ],
)
def test_a_wrong_field_of_a_dataclass_is_refused(query: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("odd", f"{__name__}:Shaped", "vlmsearch.generators")
    monkeypatch.setattr(registry, "back_ends", lambda _: {"odd": point})
    with pytest.raises(ConfigError, match=message):
        open_generator(f"odd:?{query}")


def test_the_stores_over_mongodb_share_their_options() -> None:
    query = "timeout=5&retries=1&index=photos&tls=true&replica_set=rs&auth_source=admin"
    for url in (f"mongodb://h/db?{query}&cache=4", f"mongodb+chroma://h/db?{query}&chroma=http://h:8000"):
        with open_store(url) as store:
            assert store.name.split(" with ")[0].endswith("h/db/photos")
    for url in ("mongodb://h/db?tsl=true", "mongodb+chroma://h/db?chroma=http://h&tsl=true"):
        with pytest.raises(
            ConfigError, match=r"no option 'tsl'; did you mean 'tls'\? it has .*timeout, retries, srv, .*auth_mechanism"
        ):
            open_store(url)


def test_an_option_that_is_left_out_and_needed_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^store mongodb\+chroma: needs the option chroma$"):
        open_store("mongodb+chroma://h/db")


@pytest.mark.parametrize("place", ["no_such_driver:Encoder", "json:NoSuchClass"])
def test_a_third_party_class_that_cannot_be_loaded_hides_no_other(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = EntryPoint("odd", place, "vlmsearch.generators")
    known = back_ends("generator") | {"odd": odd}
    for module in (registry, importlib.import_module("vlmsearch.cli.backends")):
        monkeypatch.setattr(module, "back_ends", lambda kind: known if kind == "generator" else {})
    listed = CliRunner().invoke(cli, ["backends"])
    assert listed.exit_code == 0, listed.output
    assert re.search(r"^generator +extractive: +ok ", listed.output, re.MULTILINE)
    assert re.search(r"^generator +odd: +missing +\S", listed.output, re.MULTILINE)


def test_every_registered_back_end_that_is_installed_has_a_docstring() -> None:
    kinds: tuple[ComponentKind, ...] = ("encoder", "store", "generator", "reranker")
    for kind in kinds:
        for scheme in back_ends(kind):
            with contextlib.suppress(MissingDependencyError):
                assert (load(kind, scheme).__doc__ or "").strip(), f"{kind} {scheme}"
    assert load("generator", "extractive") is ExtractiveGenerator
