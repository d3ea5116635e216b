"""A model on disk: find it, check it, open it.

A bundle is a folder with a ``bundle.json``, ONNX files and a ``tokenizer.json``. Its files are checked against their
SHA-256 when they are opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from vlmsearch._util.files import expand_home, file_digest, is_path
from vlmsearch._util.json_table import ANY_TEXT, PLAIN_NAME, SHA256, JsonTable
from vlmsearch._util.strict_json import parse_json
from vlmsearch._util.tables import suggest
from vlmsearch.errors import ConfigError, ModelUnavailableError, VlmsearchError
from vlmsearch.media.preprocess import Interpolation, Preprocess
from vlmsearch.models.locations import ELSEWHERE, check_location, hub_bundle_name, is_hub_name, split_location
from vlmsearch.models.mapped import MappedModel, map_model
from vlmsearch.types import Manifest, Modality, RelevanceFit, Role, Space

Tower = Modality
Precision = Literal["fp32", "fp16", "int8", "qdq"]
"""Whose ONNX graphs a bundle holds: those written here from the weights, or those that the repository has."""

FORMAT = 3
MAX_DIM, MAX_TOKENS, MAX_SIDE = 2**16, 2**20, 2**12
"""Far beyond any model: the length of vectors, the tokens of a text and the width of an image."""
MAX_ID = 2**31 - 1
_MAX_FIT = 1e6
BundleKind = Literal["encoder", "llm", "reranker"]
LANGUAGE: Literal["llm"] = "llm"
"""The kind of the recipes of language models."""
RERANKER: Literal["reranker"] = "reranker"
"""The kind of the recipes and bundles of re-rankers."""
PROFILES: Mapping[str, tuple[str, ...]] = {
    "default": ("siglip2-base-patch32-256", "multilingual-e5-small"),
    "clip": ("clip-vit-base-patch32", "all-minilm-l6-v2"),
    "demo": ("demo-clip", "demo-minilm"),
}
"""Names that stand for several bundles together."""


B = TypeVar("B", bound="ModelBundle")


class DamagedBundleWarning(UserWarning):
    """A bundle in the cache cannot be opened."""


UNPADDED = 64
"""Tokens from which attention on a CPU is faster without a mask: such texts are not padded there."""
LENGTH_STEP = 8
"""Divisor of the lengths of texts in towers that are compiled or served: few shapes, and rows of whole words."""


def padded_length(length: int, step: int = LENGTH_STEP) -> int:
    """Return the least multiple of ``step`` that ``length`` tokens fit into.

    Every tower takes that of `LENGTH_STEP`.
    """
    return -(-length // step) * step


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle, as ``bundle.json`` lists it."""

    sha256: str
    size: int


@dataclass(frozen=True)
class TextPrompt:
    """The prompt before every text of a role.

    The two are tokenised together, so that the vector of a text that fits the model is the one that
    sentence-transformers computes. ``ids`` are the tokens that the prompt has before any text.
    """

    text: str = ""
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class TextInput:
    """The form of a tower's texts: up to ``max_tokens`` ids with ``prefix`` and ``suffix``, padded with ``pad``.

    Where ``fill`` is given, every text is padded to so many tokens, and the tower sees the padding like any token: the
    mask is all ones. ``query`` and ``document`` are the prompts of the two roles. ``lower`` says to lower-case texts
    before they are tokenised.
    """

    max_tokens: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad: int
    fill: int | None = None
    query: TextPrompt = TextPrompt()
    document: TextPrompt = TextPrompt()
    lower: bool = False

    def prompt(self, role: Role) -> TextPrompt:
        """Return the prompt of a role."""
        return self.query if role == "query" else self.document

    def room(self, role: Role) -> int:
        """Return how many tokens of a text of this role fit, beside its prompt."""
        return self.max_tokens - len(self.prefix) - len(self.suffix) - len(self.prompt(role).ids)

    @property
    def longest(self) -> int:
        """Return how many columns the longest texts have once they are padded."""
        return self.fill or padded_length(self.max_tokens)


@dataclass(frozen=True)
class Logits:
    """The logits that a model of two towers was trained to make of a cosine: ``scale * cosine + bias``.

    With a bias they are the log-odds that a text and an image of a training batch belong together. See Zhai et al.,
    Sigmoid Loss for Language Image Pre-Training, 2023. Without one, only differences between one text's logits mean
    anything (Radford et al., 2021).
    """

    scale: float
    bias: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModelBundle:
    """An opened bundle of any kind; its models are still on disk.

    ``quantisation``: per file of lower precision, how it was made. ``forced``: the gates it missed and was built in
    spite of. ``measured``: every figure of the build, and what it was measured on.
    """

    folder: Path
    name: str
    source: str
    revision: str
    licence: str
    fingerprint: str
    files: Mapping[str, BundleFile]
    quantisation: Mapping[str, Mapping[str, object]]
    forced: tuple[str, ...]
    measured: Mapping[str, object]

    def read(self, name: str) -> bytes:
        """Return one file, checked against its SHA-256."""
        return read_checked(self.folder / name, self.files[name].sha256)

    def read_model(self, name: str, precision: str, precisions: Sequence[str]) -> bytes:
        """Return one ONNX model, checked; ConfigError names the precisions that there are."""
        self._check_precision(name, precision, precisions)
        return self.read(name)

    def map_model(self, name: str, precision: str, precisions: Sequence[str]) -> MappedModel:
        """Return one ONNX model, checked, with its large tensors left on the disk."""
        self._check_precision(name, precision, precisions)
        path = self.folder / name
        try:
            digest = file_digest(path)
        except OSError as exc:
            raise _unreadable(path, exc) from exc
        if digest != self.files[name].sha256:
            raise _damaged(path)
        return map_model(path)

    def _check_precision(self, name: str, precision: str, precisions: Sequence[str]) -> None:
        if name not in self.files:
            raise ConfigError(f"{self.name} has no precision {precision!r}; it has {', '.join(precisions)}")


def read_checked(path: Path, sha256: str) -> bytes:
    """Return a file; ModelUnavailableError unless it has this SHA-256."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    if hashlib.sha256(data).hexdigest() != sha256:
        raise _damaged(path)
    return data


def _unreadable(path: Path, exc: OSError) -> ModelUnavailableError:
    return ModelUnavailableError(f"{path} cannot be read: {exc.strerror}; build it again")


def _damaged(path: Path) -> ModelUnavailableError:
    return ModelUnavailableError(f"{path} is damaged (its SHA-256 differs); build it again")


@dataclass(frozen=True, kw_only=True)
class Bundle(ModelBundle):
    """An opened bundle of an encoder.

    ``dims``: the lengths that its vectors may be cut to, the whole length aside; see `shortened`.
    ``relevance``: per modality of a document, what its cosine with a text says of their relevance, if it was fitted.
    ``logits``: what the model itself makes of a text's cosine with an image, if it says so.
    ``domain``: the inputs that the model is made for, such as "drawn scenes"; "" if it is not recorded.
    """

    space: Space
    dims: tuple[int, ...]
    preprocess: Preprocess | None
    text: TextInput
    relevance: Mapping[Modality, RelevanceFit]
    logits: Logits | None = None
    domain: str = ""

    @property
    def towers(self) -> tuple[Tower, ...]:
        """Return the towers it has, image first."""
        return ("image", "text") if self.preprocess else ("text",)

    @property
    def precisions(self) -> list[Precision]:
        """Return the precisions that every tower is there in."""
        known: tuple[Precision, ...] = ("fp32", "fp16", "int8", "qdq")
        return [p for p in known if all(model_file(tower, p) in self.files for tower in self.towers)]

    def model(self, tower: Tower, precision: Precision) -> bytes:
        """Return the ONNX model of one tower, checked; ConfigError names the precisions that there are."""
        return self.read_model(model_file(tower, precision), precision, self.precisions)

    def mapped(self, tower: Tower, precision: Precision) -> MappedModel:
        """Return the same with its large tensors left on the disk.

        It is for ONNX Runtime on a CPU.
        """
        return self.map_model(model_file(tower, precision), precision, self.precisions)


@dataclass(frozen=True)
class ShortenedSpaces:
    """The spaces and the fingerprint of an encoder whose vectors are cut.

    ``names`` are the spaces that are cut.
    """

    spaces: tuple[Space, ...]
    fingerprint: str
    names: frozenset[str]


def shortened(models: Sequence[tuple[Space, str, Collection[int]]], dim: int | None) -> ShortenedSpaces:
    """Cut the vectors of the models that were trained for it to ``dim`` numbers.

    Args:
        models: The space, the fingerprint and the lengths beside the whole one of each model.
        dim: The length; None for all of each vector.

    Returns:
        The spaces and the fingerprint, which has the length behind a slash where vectors are cut.

    Raises:
        ConfigError: No model has vectors of that length; the message says which lengths there are.

    Example:
        >>> clip, e5 = (Space("clip", 512, frozenset({"image", "text"})), Space("e5", 768, frozenset({"text"})))
        >>> shortened([(clip, "a:1", ()), (e5, "b:2", (256,))], 256).fingerprint
        'a:1+b:2/256'
    """
    names = frozenset(space.name for space, _, dims in models if dim in dims)
    if dim is not None and not names and all(space.dim != dim for space, _, _ in models):
        have = "; ".join(f"{space.name} {', '.join(map(str, (space.dim, *dims)))}" for space, _, dims in models)
        raise ConfigError(f"dim={dim} is a length that no model was trained for; there are: {have}")
    return ShortenedSpaces(
        tuple(replace(space, dim=dim) if dim and space.name in names else space for space, _, _ in models),
        "+".join(f"{whole}/{dim}" if space.name in names else whole for space, whole, _ in models),
        names,
    )


def model_file(tower: Tower, precision: Precision) -> str:
    """Return the file name of one tower in one precision."""
    return f"{tower}.onnx" if precision == "fp32" else f"{tower}.{precision}.onnx"


def data_folder(name: Literal["engines", "model_repository"]) -> Path:
    """Return where the project's data lies: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).parents[1]
    packed = package / "_data" / name
    return packed if packed.is_dir() else package.parent / name


def cache_folder() -> Path:
    """Return where built bundles are kept.

    ``$VLMSEARCH_CACHE``, else the user's cache folder (XDG base directories).
    """
    chosen = os.environ.get("VLMSEARCH_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vlmsearch"


def recipe_names(kind: BundleKind = "encoder") -> list[str]:
    """Return the models of a kind that have recipes.

    A recipe of anything but an encoder says its ``kind``.
    """
    paths = data_folder("engines").glob("*/recipe.toml")
    return sorted(path.parent.name for path in paths if _recipe_kind(path) == kind)


def _recipe_kind(recipe: Path) -> str:
    return _recipe_string(recipe, "kind") or "encoder"


def _recipe_string(recipe: Path, key: str) -> str | None:
    """Return a string of a recipe's first table, read without a parser: all recipes are asked for every name."""
    first = recipe.read_text(encoding="utf-8").partition("\n[")[0]
    match = re.search(rf'^{key}\s*=\s*"([^"]+)"', first, re.MULTILINE)
    return match[1] if match else None


def recipe_of_source(source: str, kind: BundleKind = "encoder") -> str | None:
    """Return the name of the recipe that builds a model of the hub.

    None where it has none.
    """
    for path in sorted(data_folder("engines").glob("*/recipe.toml")):
        if _recipe_string(path, "source") == source and _recipe_kind(path) == kind:
            return path.parent.name
    return None


def bundle_names(location: str) -> tuple[str, ...]:
    """Return the models that a location names: those of a profile, those that a ``+`` joins, or ``location`` itself."""
    return tuple(name for part in split_location(location) for name in PROFILES.get(part, (part,)))


def bundle_name(location: str, kind: BundleKind = "encoder") -> str:
    """Return the name of a model's bundle.

    It is the model's own, or that of the hub, unless a recipe has another.
    """
    if is_hub_name(location):
        return recipe_of_source(location, kind) or hub_bundle_name(location)
    return location


def find_bundles(location: str, calibrate: Sequence[Path] = ()) -> list[Bundle]:
    """Return the bundles of a location: a profile, a name, a model of the hub or a folder.

    Several have a ``+`` between them.

    A model with a recipe or of the hub that is not here yet is built once, into the user's cache. Progress is on
    standard error. ``calibrate`` names images and texts like those that it will see, if there are some already.
    ModelUnavailableError says what to run if that cannot be done, MissingDependencyError which extra building needs.
    """
    if not location:
        raise ConfigError(f"name a model: {', '.join(PROFILES)}, a bundle, one of the hub (ORG/NAME) or a folder")
    return [find_model(name, "encoder", open_bundle, calibrate) for name in bundle_names(location)]


def is_known(name: str) -> bool:
    """Return whether ``name`` is that of a recipe or of a bundle in the user's cache.

    A path is neither.
    """
    return PLAIN_NAME.fullmatch(name) is not None and (name in recipe_names() or built_folder(name) is not None)


def encoder_url(manifest: Manifest) -> str | None:
    """Return the embedded encoder with the models that built an index.

    None where some have no name of their own.

    Whoever made the index wrote it, so it is never taken for a path or for options.
    """
    parts = [part.partition(":") for part in manifest.fingerprint.split("+")]
    names = tuple(name for name, _, _ in parts)
    dims = {dim for _, _, digest in parts if (dim := digest.partition("/")[2])}
    options = f"?dim={min(dims)}" if len(dims) == 1 and min(dims).isdecimal() else ""
    if dims and not options:
        return None
    known = {bundles: profile for profile, bundles in PROFILES.items()}
    if names in known:
        return f"onnx:{known[names]}{options}"
    return f"onnx:{'+'.join(names)}{options}" if all(map(is_known, names)) else None


def built_bundles() -> list[Bundle]:
    """Return every encoder that is built, by name: those in the user's cache, and those that come with the project.

    One that cannot be opened is left out, with a DamagedBundleWarning.
    """
    return built_models("encoder", open_bundle)


def built_models(kind: BundleKind, open: Callable[[Path], B]) -> list[B]:
    """Return every bundle of a kind that is built, by name.

    ``open`` opens the one in a folder.

    One that cannot be opened is left out, with a DamagedBundleWarning.
    """
    bundles: dict[str, B] = {}
    for name, folder in built_folders(kind):
        try:
            bundles[name] = _open_named(open, folder, name)
        except VlmsearchError as exc:
            warnings.warn(str(exc), DamagedBundleWarning, stacklevel=3)
    return [bundles[name] for name in sorted(bundles)]


def built_folders(kind: BundleKind = "encoder") -> Iterator[tuple[str, Path]]:
    """Yield the names and folders of the bundles of a kind that are built.

    What the user built comes last.
    """
    for place in (data_folder("engines").glob("*/bundle"), (cache_folder() / "bundles").glob("[!.]*")):
        for folder in place:
            if (folder / "bundle.json").is_file() and _bundle_kind(folder) == kind:
                yield folder.parent.name if folder.name == "bundle" else folder.name, folder


def _bundle_kind(folder: Path) -> str:
    """Return what a bundle says it is.

    One that cannot be read counts as an encoder, and opening it reports the damage.
    """
    try:
        data = parse_json((folder / "bundle.json").read_text(encoding="utf-8"), with_nan=True)
    except (OSError, ValueError):
        return "encoder"
    return str(data.get("kind", "encoder")) if isinstance(data, dict) else "encoder"


def find_model(location: str, kind: BundleKind, open: Callable[[Path], B], calibrate: Sequence[Path] = ()) -> B:
    """Return the bundle of a folder, or of a name.

    A recipe or a model of the hub is built if it is not here yet.
    """
    if is_path(location):
        return open(expand_home(location))
    name = bundle_name(location, kind)
    folder = built_folder(name) if PLAIN_NAME.fullmatch(name) else None
    if folder is not None:
        return _open_named(open, folder, name)
    check_location(location)
    known = recipe_names(kind)
    if not is_hub_name(location) and location not in known:
        what, names = ("re-ranker", known) if kind == RERANKER else ("model", [*PROFILES, *known])
        raise ConfigError(
            f"no {what} {location!r}; {suggest(location, names)}there are {', '.join(names)}, {ELSEWHERE}"
        )
    return cast("B", build_named(location, kind, calibrate))


def built_folder(name: str) -> Path | None:
    """Return the folder of a bundle that is built, by its name."""
    places = [cache_folder() / "bundles" / name, data_folder("engines") / name / "bundle"]
    return next((place for place in places if (place / "bundle.json").is_file()), None)


def _open_named(open: Callable[[Path], B], folder: Path, name: str) -> B:
    """Return the bundle in a folder that is kept under ``name``.

    ConfigError where it has another name: none passes for another.
    """
    bundle = open(folder)
    if bundle.name != name:
        raise ConfigError(f"{folder} holds a bundle called {bundle.name}, which {name} is not: remove that folder")
    return bundle


def build_named(name: str, kind: BundleKind, calibrate: Sequence[Path] = ()) -> object:
    """Return the bundle of a recipe or of a model of the hub, built now."""
    return find_builder("bundle")(name, kind=kind, calibrate=calibrate, is_first_use=True)


def open_bundle(folder: Path) -> Bundle:
    """Read ``bundle.json`` and check all of it.

    ModelUnavailableError where there is none, ConfigError where it is of another format or anything in it is not as
    `vlmsearch build` writes it.
    """
    given = JsonTable.read(folder / "bundle.json", format=FORMAT)
    if "kind" in given:
        raise ConfigError(f"{folder} holds a {given.string('kind')}, not an encoder")
    preprocess = _preprocess(given.table("image")) if given.value("image") is not None else None
    towers: tuple[Tower, ...] = ("image", "text") if preprocess else ("text",)
    space = Space(given.string("space", PLAIN_NAME), given.whole("dim", 1, MAX_DIM), frozenset(towers))
    fits = given.table("relevance")
    if not set(fits) <= set(towers):
        raise given.wrong(f"relevance is for {' and '.join(towers)}, not {sorted(fits)}")
    return Bundle(
        **common_fields(given, folder),
        space=space,
        dims=given.wholes("dims", 1, space.dim - 1),
        preprocess=preprocess,
        text=_text_input(given.table("text")),
        relevance={tower: _fit(fits.table(tower), folder) for tower in towers if tower in fits},
        logits=_logits(given.table("logits")) if given.value("logits") is not None else None,
        domain=given.string("domain") if "domain" in given else "",
    )


def common_fields(given: JsonTable, folder: Path) -> dict[str, Any]:
    """Return the fields of `ModelBundle` from a ``bundle.json``."""
    name = given.string("name", PLAIN_NAME)
    files, stories = given.table("files", PLAIN_NAME), given.table("quantisation")
    entries = {file: files.table(file) for file in files}
    return {
        "folder": folder,
        "name": name,
        **{key: given.string(key) for key in ("source", "revision", "licence")},
        "fingerprint": given.string("fingerprint", re.compile(rf"{re.escape(name)}:[0-9a-f]+")),
        "files": {
            file: BundleFile(entry.string("sha256", SHA256), entry.whole("size", 0, 2**63 - 1))
            for file, entry in entries.items()
        },
        "quantisation": {file: stories.table(file).plain() for file in stories},
        "forced": given.strings("forced"),
        "measured": given.table("measured").plain(),
    }


def _preprocess(image: JsonTable) -> Preprocess:
    ways: tuple[Interpolation, ...] = get_args(Interpolation)
    way = image.choice("interpolation", ways)
    return Preprocess(image.whole("size", 1, MAX_SIDE), image.flag("crop"), ways[ways.index(way)])


def _text_input(text: JsonTable) -> TextInput:
    prefix, suffix = (text.wholes(key, 0, MAX_ID) for key in ("prefix", "suffix"))
    max_tokens = text.whole("max_tokens", 1, MAX_TOKENS)
    form = TextInput(
        max_tokens,
        prefix,
        suffix,
        text.whole("pad", 0, MAX_ID),
        None if text.value("fill") is None else text.whole("fill", max_tokens, MAX_TOKENS),
        _prompt(text.table("query")),
        _prompt(text.table("document")),
        text.flag("lower"),
    )
    for role in get_args(Role):
        if form.room(role) < 1:
            before = len(prefix) + len(form.prompt(role).ids)
            raise text.wrong(f"{max_tokens} tokens are taken by {before} before and {len(suffix)} after a {role}")
    return form


def _prompt(given: JsonTable) -> TextPrompt:
    return TextPrompt(given.string("text", ANY_TEXT), given.wholes("ids", 0, MAX_ID))


def _logits(given: JsonTable) -> Logits:
    bias = None if given.value("bias") is None else given.number("bias", -_MAX_FIT, _MAX_FIT)
    return Logits(given.number("scale", 0, _MAX_FIT), bias)


def _fit(entry: JsonTable, folder: Path) -> RelevanceFit:
    if "near" not in entry:
        raise ConfigError(
            f"the relevance of {folder} was fitted by an earlier version: renew it with "
            f"`vlmsearch build --refit {shlex.quote(str(folder))}`"
        )
    return RelevanceFit(*(entry.number(field.name, -_MAX_FIT, _MAX_FIT) for field in fields(RelevanceFit)))


def find_builder(product: Literal["bundle", "engine"]) -> Callable[..., object]:
    """Return what builds bundles or engines: reading a model depends on nothing that builds one.

    A builder is an entry point of the group ``vlmsearch.builders``, looked up when something is missing.

    Raises:
        ImportError: a package that building needs is not installed.
        ConfigError: vlmsearch runs from its source and is not installed, so that it has no entry points.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group="vlmsearch.builders", name=product):
        builder: Callable[..., object] = point.load()
        return builder
    raise ConfigError(
        f"no builder of {product}s is registered: vlmsearch runs from its source here and is not installed; "
        "pip install it"
    )
