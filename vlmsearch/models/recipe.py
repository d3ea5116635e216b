"""Recipes: which model to build, from what, how far, and how good it has to be."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vlmsearch._util.files import expand_home, is_path
from vlmsearch._util.json_table import PLAIN_NAME
from vlmsearch._util.tables import as_dataclass, read_table, suggest
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import (
    LANGUAGE,
    PROFILES,
    RERANKER,
    Bundle,
    Precision,
    TextInput,
    Tower,
    bundle_name,
    cache_folder,
    data_folder,
    padded_length,
    recipe_names,
)
from vlmsearch.models.locations import check_location, is_hub_name

Range = tuple[int, int, int]
"""Least, usual and greatest."""
RECIPE = "recipe.toml"


@dataclass(frozen=True)
class Shapes:
    """The sizes of batches and texts, in tokens, that a compiled engine is made for."""

    image_batch: Range = (1, 32, 128)
    text_batch: Range = (1, 32, 256)
    text_length: Range = (2, 32, 77)

    @property
    def columns(self) -> Range:
        """Return the lengths of texts once they are padded, as an engine gets them."""
        smallest, usual, largest = map(padded_length, self.text_length)
        return smallest, usual, largest

    def of(self, form: TextInput) -> Shapes:
        """Return the same for a model that takes texts as ``form`` says.

        Where they are padded to one length, that one.
        """
        return dataclasses.replace(self, text_length=(form.fill,) * 3) if form.fill else self


def read_batches(text: str) -> Range:
    """Return the least, usual and greatest batch, from numbers with commas between them."""
    try:
        smallest, usual, largest = (int(part) for part in text.split(","))
    except ValueError:
        smallest = usual = largest = 0
    if not 1 <= smallest <= usual <= largest:
        raise ConfigError(f"{text!r} is not the least, usual and greatest batch, as 1,32,256")
    return smallest, usual, largest


@dataclass(frozen=True)
class Calibration:
    """The data that INT8 ranges are taken from unless the user gives some.

    ``images`` and ``texts`` are how many; ``held_out`` is how many more of each are kept for measuring. ``texts_from``
    is the project's own English sentences or the captions of drawn scenes. ``trusted`` are the towers whose users'
    data is like that; only their ranges may be fixed without data from the user. ``smoothing`` is SmoothQuant's alpha.
    ``max_excluded`` is the largest share of layers that may stay in high precision. ``relevance_scenes`` is how many
    drawn scenes relevance is fitted on, beside the project's labelled passages; 0 fits none.
    """

    images: int = 128
    texts: int = 256
    held_out: int = 128
    texts_from: Literal["sentences", "scenes"] = "sentences"
    trusted: tuple[Tower, ...] = ("text",)
    smoothing: float = 0.5
    max_excluded: float = 0.5
    relevance_scenes: int = 300


@dataclass(frozen=True)
class TowerGate:
    """The limits of a lower precision beside float32: the mean cosine, and the share of the 10 nearest kept."""

    mean_cosine: float = 0.985
    overlap: float = 0.90


@dataclass(frozen=True)
class ScoreGate:
    """The limits of a cross-encoder's lower precision beside float32.

    ``difference`` is the greatest mean difference of its probabilities, ``order`` the least share of pairs of
    probabilities in the same order.
    """

    difference: float = 0.02
    order: float = 0.97


@dataclass(frozen=True)
class Gates:
    """The quality that a built model must reach.

    ``float32`` is the smallest cosine to transformers, ``jpeg`` that from encoded images to vectors. ``pixels`` is the
    greatest difference to its preprocessing, in levels of 255.
    """

    float32: float = 0.99999
    pixels: int = 1
    jpeg: float = 0.999
    image: TowerGate = TowerGate()
    text: TowerGate = TowerGate()

    def tower(self, tower: Tower) -> TowerGate:
        """Return the gate of one tower's lower precisions."""
        return self.image if tower == "image" else self.text


IMAGE_FAMILIES = frozenset({"clip", "siglip"})
"""The families whose models have an image tower."""
PoolingName = Literal["", "mean", "cls"]


@dataclass(frozen=True)
class Quality:
    """A published figure of a model: the benchmark, its score in per cent, and where it is published."""

    benchmark: str
    score: float
    source: str


@dataclass(frozen=True)
class Prompts:
    """The prompts before every text of a role, as the model was trained: E5 has "query: " and "passage: "."""

    query: str = ""
    document: str = ""


NO_PROMPTS = Prompts()


@dataclass(frozen=True)
class RecordedProof:
    """A comparison of the writer of a model's graphs with transformers, on random weights: ``engines/prove.py``.

    ``configuration`` is what `vlmsearch.building.proof.configuration` gives. ``cosine`` is the least of an encoder's
    vectors, ``difference`` the greatest of a re-ranker's numbers.
    """

    configuration: str
    transformers: str
    cosine: float | None = None
    difference: float | None = None


@dataclass(frozen=True)
class Recipe:
    """One model: ``source`` and ``revision`` on the hub, or ``checkpoint``, a folder beside the recipe.

    ``space`` names the embedding space. ``precisions`` is what a bundle holds by default. ``scenes`` is the number of
    drawn scenes that retrieval is measured on, 0 for none. ``pickled`` says that weights may be read from PyTorch's
    own format if there is no other.

    ``pooling`` is for a repository that does not say it itself. ``prompts`` replaces those in the checkpoint's own
    files. ``max_tokens`` is the number of tokens of a text that are read at once, 0 for all that the model can. Longer
    documents become passages, and attention costs the square of their length. ``dims`` are the lengths beside the
    whole one that its vectors may be cut to, because the model was trained for it. See Kusupati et al., Matryoshka
    Representation Learning, 2022.

    ``domain`` names the inputs that the model is made for, where relevance is fitted on such inputs. The statistics of
    their vectors are then kept in the bundle; see `vlmsearch.models.domain`.

    To choose a model by: ``family`` is its ``model_type``, and ``languages`` are ISO 639-1 codes, or ``multilingual``
    if its authors list none. ``parameters`` is the number of its numbers, ``dim`` the length of a vector, and
    ``quality`` are published figures.
    """

    name: str
    licence: str
    space: str
    source: str = ""
    revision: str = ""
    checkpoint: str = ""
    family: str = ""
    languages: tuple[str, ...] = ()
    parameters: int = 0
    dim: int = 0
    pickled: bool = False
    pooling: PoolingName = ""
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    scenes: int = 0
    prompts: Prompts | None = None
    max_tokens: int = 0
    dims: tuple[int, ...] = ()
    domain: str = ""
    quality: tuple[Quality, ...] = ()
    shapes: Shapes = Shapes()
    calibration: Calibration = Calibration()
    gates: Gates = Gates()
    proof: RecordedProof | None = None
    folder: Path = field(default=Path(), metadata={"given": False})

    @property
    def encodes_images(self) -> bool:
        """Return whether the model has an image tower, as its family says."""
        return self.family in IMAGE_FAMILIES


@dataclass(frozen=True)
class PairCalibration:
    """The data that a re-ranker's probability is fitted to and measured on.

    ``pairs_from`` is the project's own passages or captions of drawn scenes. ``queries`` is the number that it is
    fitted to, ``held_out`` the number that it is measured on. ``candidates`` is the number of documents for each.
    """

    pairs_from: Literal["passages", "scenes"] = "passages"
    queries: int = 150
    held_out: int = 150
    candidates: int = 20


@dataclass(frozen=True)
class RerankerGates:
    """The quality that a built re-ranker must reach.

    ``float32`` is the greatest difference of its numbers to transformers', ``calibration_error`` the greatest expected
    calibration error of its probabilities on held-out queries.
    """

    float32: float = 1e-4
    calibration_error: float = 0.05
    int8: ScoreGate = ScoreGate()


@dataclass(frozen=True)
class RerankerRecipe:
    """One re-ranker: a cross-encoder from ``source`` at ``revision``, or ``checkpoint``, a folder beside the recipe.

    ``scenes`` is the number of drawn scenes that re-ranking is measured on (0: not at all).
    """

    name: str
    licence: str
    kind: Literal["reranker"]
    source: str = ""
    revision: str = ""
    checkpoint: str = ""
    precisions: tuple[Literal["fp32", "int8"], ...] = ("fp32", "int8")
    scenes: int = 0
    calibration: PairCalibration = PairCalibration()
    gates: RerankerGates = RerankerGates()
    proof: RecordedProof | None = None
    folder: Path = field(default=Path(), metadata={"given": False})


def find_any_recipe(location: str) -> Recipe | RerankerRecipe | None:
    """Return the recipe of an encoder or a re-ranker, by its name, file or folder.

    ConfigError as `find_recipe` raises it.

    None for a model of the hub that has none yet, shipped or written when it was built.
    """
    if location in recipe_names(RERANKER):
        return _read_reranker(data_folder("engines") / location / RECIPE)
    if _is_file(location):
        path = _recipe_file(location)
        if read_table(path).get("kind") == RERANKER:
            return _read_reranker(path)
    if is_hub_name(location):
        return _of_hub(location)
    return find_recipe(location)


def _of_hub(location: str) -> Recipe | RerankerRecipe | None:
    """Return the recipe of a model of the hub.

    It ships, or was written when the model was built.
    """
    check_location(location)
    known = bundle_name(location)
    if known in recipe_names():
        return find_any_recipe(known)
    judge = bundle_name(location, kind=RERANKER)
    if judge in recipe_names(RERANKER):
        return find_any_recipe(judge)
    written = cache_folder() / "bundles" / bundle_name(location) / RECIPE
    if not written.is_file():
        return None
    if read_table(written).get("kind") == RERANKER:
        return dataclasses.replace(_read_reranker(written), folder=Path())
    return dataclasses.replace(read_recipe(written), folder=Path())


def built_by(bundle: Bundle) -> Recipe | None:
    """Return the recipe that a bundle was built by: the one that ships, or that lies in its folder.

    None without either.
    """
    if bundle.name in recipe_names():
        return find_recipe(bundle.name)
    written = bundle.folder / RECIPE
    return dataclasses.replace(read_recipe(written), folder=Path()) if written.is_file() else None


def recorded_proofs() -> frozenset[str]:
    """Return the configurations that the writers of graphs were compared with transformers on."""
    tables = (read_table(path).get("proof") for path in data_folder("engines").glob(f"*/{RECIPE}"))
    return frozenset(str(table.get("configuration")) for table in tables if isinstance(table, dict))


def _read_reranker(path: Path) -> RerankerRecipe:
    recipe = dataclasses.replace(as_dataclass(RerankerRecipe, read_table(path), str(path)), folder=path.parent)
    _check_source(recipe, str(path))
    data = recipe.calibration
    if min(data.queries, data.held_out) < 16 or data.candidates < 2:
        raise ConfigError(f"{path}: calibration: at least 16 of queries and held_out, and 2 candidates")
    return recipe


def _is_file(location: str) -> bool:
    return is_path(location) or location.endswith(".toml")


def _recipe_file(location: str) -> Path:
    path = expand_home(location)
    return path / RECIPE if path.is_dir() else path


def find_recipe(location: str) -> Recipe:
    """Return the recipe of a name, or of a file or folder (``./NAME``, ``.toml``).

    ConfigError says which there are.
    """
    if _is_file(location):
        return read_recipe(_recipe_file(location))
    check_location(location)
    known = recipe_names()
    if location in recipe_names(LANGUAGE):
        others = ", ".join(known)
        raise ConfigError(f"{location} is a language model: `vlmsearch llm plan {location}`; here are {others}")
    if location not in known:
        hint = suggest(location, [*known, *PROFILES])
        raise ConfigError(f"no recipe {location!r}; {hint}there are {', '.join(known)}, and files (FILE.toml)")
    return read_recipe(data_folder("engines") / location / RECIPE)


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file; ConfigError says what is wrong with it."""
    table = read_table(path)
    if table.get("kind") == LANGUAGE:
        raise ConfigError(f"{path} is the recipe of a language model: `vlmsearch llm plan` reads it")
    if table.get("kind") == RERANKER:
        raise ConfigError(f"{path} is the recipe of a re-ranker, which encodes nothing")
    recipe = dataclasses.replace(as_dataclass(Recipe, table, str(path)), folder=path.parent)
    _check(recipe, str(path))
    return recipe


def _check_source(recipe: Recipe | RerankerRecipe, where: str) -> None:
    if bool(recipe.source) == bool(recipe.checkpoint):
        raise ConfigError(f"{where}: give either source (on the hub) or checkpoint (a folder beside the recipe)")
    if recipe.source and not recipe.revision:
        raise ConfigError(f"{where}: revision must be given, so that everyone builds the same model")
    if not PLAIN_NAME.fullmatch(recipe.name) or recipe.name in PROFILES:
        raise ConfigError(f"{where}: name cannot be {recipe.name!r}: it has letters, digits, ., _ and -")
    if "fp32" not in recipe.precisions:
        raise ConfigError(f"{where}: precisions must hold fp32, which the others are measured against")


def _check(recipe: Recipe, where: str) -> None:
    _check_source(recipe, where)
    if not PLAIN_NAME.fullmatch(recipe.space):
        raise ConfigError(f"{where}: space cannot be {recipe.space!r}: it has letters, digits, ., _ and -")
    if any(dim < 1 for dim in recipe.dims):
        raise ConfigError(f"{where}: dims are lengths of vectors, not {list(recipe.dims)}")
    if recipe.parameters < 0 or recipe.dim < 0:
        raise ConfigError(f"{where}: parameters and dim are counts, not {recipe.parameters} and {recipe.dim}")
    for figure in recipe.quality:
        if not 0 <= figure.score <= 100 or not figure.source:
            raise ConfigError(f"{where}: quality: {figure.benchmark} needs a score from 0 to 100 and a source")
    for name, (smallest, usual, largest) in dataclasses.asdict(recipe.shapes).items():
        if not 1 <= smallest <= usual <= largest:
            raise ConfigError(f"{where}: shapes: {name} is least, usual and greatest, not {[smallest, usual, largest]}")
    data = recipe.calibration
    if min(data.images, data.texts) < 1 or data.held_out < 16:
        raise ConfigError(f"{where}: calibration: at least 1 of images and texts, and 16 of held_out")
    if recipe.domain and not data.relevance_scenes:
        raise ConfigError(f"{where}: domain is measured on what relevance is fitted on, and relevance_scenes is 0")
    shares = {"smoothing": data.smoothing, "max_excluded": data.max_excluded}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ConfigError(f"{where}: calibration: {name} is from 0 to 1, not {share}")


def to_toml(recipe: Recipe | RerankerRecipe) -> str:
    """Return a recipe as a file holds it, without what has its default.

    >>> print(to_toml(Recipe("mine", "MIT", "clip", source="me/mine", revision="0" * 7)), end="")
    name = "mine"
    licence = "MIT"
    space = "clip"
    source = "me/mine"
    revision = "0000000"
    """
    plain, tables = _entries(recipe)
    return "".join(plain) + "".join(tables)


def _entries(table: object, path: str = "") -> tuple[list[str], list[str]]:
    """Return the plain keys of a dataclass, and its tables, which come after them."""
    plain, tables = [], []
    for entry in dataclasses.fields(table):  # type: ignore[arg-type]
        value = getattr(table, entry.name)
        if not entry.metadata.get("given", True) or value == entry.default:
            continue
        if dataclasses.is_dataclass(value):
            inner, more = _entries(value, f"{path}{entry.name}.")
            tables += [f"\n[{path}{entry.name}]\n", *inner] if inner else []
            tables += more
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for row in value:
                tables += [f"\n[[{path}{entry.name}]]\n", *_entries(row)[0]]
        else:
            plain.append(f"{entry.name} = {_toml(value)}\n")
    return plain, tables


def _toml(value: object) -> str:
    """Return a string, number, truth or list of them in TOML.

    TOML takes JSON's strings, but for one control character.
    """
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
