"""A language model on disk for ONNX Runtime: a checkpoint's folder with a graph beside it.

``generator.json`` has the sizes of the model and the SHA-256 of each file, ``model.onnx`` the graph, which reads the
checkpoint's ``model.safetensors``, and ``tokenizer.json`` the tokenizer. A model that sees pictures has
``vision.onnx``, too, and the table ``pictures`` in its description.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vlmsearch._util.files import expand_home, find_checkpoint
from vlmsearch._util.json_table import PLAIN_NAME, SHA256, JsonTable
from vlmsearch._util.tables import suggest
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.bundle import MAX_ID, cache_folder, data_folder, read_checked

FORMAT = 1
DESCRIPTION = "generator.json"
GRAPH = "model.onnx"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
VISION_GRAPH = "vision.onnx"
_MAX_PICTURES, _MAX_SIDE = 2**10, 2**14
_MAX_LAYERS, _MAX_SIZE, _MAX_CONTEXT = 2**12, 2**12, 2**24


@dataclass(frozen=True)
class PictureInput:
    """The pictures that a language model reads.

    Attributes:
        max_count: Maximum number of pictures in a prompt.
        side: Width and height in pixels to which each picture is brought.
        tokens: Number of tokens of a picture.
        token: Token that stands for each of them.
    """

    max_count: int
    side: int
    tokens: int
    token: int


@dataclass(frozen=True)
class GeneratorBundle:
    """An opened bundle, its files checked.

    ``size`` is that of one attention head, ``ends`` are the tokens that end texts. ``pictures`` is None for a model of
    texts alone.
    """

    folder: Path
    name: str
    layers: int
    heads: int
    size: int
    context: int
    ends: frozenset[int]
    pictures: PictureInput | None = None


def generator_names() -> list[str]:
    """Return the language models that come with the project."""
    return sorted(path.parents[1].name for path in data_folder("engines").glob(f"*/bundle/{DESCRIPTION}"))


def generator_folder(location: str) -> Path | None:
    """Return the folder of a language model, by its name on this machine or a path.

    None for one of the hub.

    ConfigError as `vlmsearch._util.files.find_checkpoint` raises it.
    """
    return _kept_folder(location) or find_checkpoint(location)


def _kept_folder(name: str) -> Path | None:
    if not PLAIN_NAME.fullmatch(name):
        return None
    places = [cache_folder() / "generators" / name, data_folder("engines") / name / "bundle"]
    return next((place for place in places if (place / "config.json").is_file()), None)


def sees_pictures(location: str) -> bool:
    """Return whether the description of a model's bundle says that it sees pictures.

    The bundle is given by its name or folder.
    """
    folder = expand_home(location) if "/" in location else _kept_folder(location)
    if folder is None or not (folder / DESCRIPTION).is_file():
        return False
    return "pictures" in JsonTable.read(folder / DESCRIPTION, format=FORMAT)


def open_generator_bundle(location: str) -> GeneratorBundle:
    """Return the bundle of a name or a folder.

    ConfigError for a name that there is not, ModelUnavailableError for a folder that is none or is damaged.
    """
    folder = expand_home(location) if "/" in location else _kept_folder(location)
    if folder is None or not folder.is_dir():
        known = generator_names()
        raise ConfigError(
            f"no language model {location!r} for ONNX Runtime; {suggest(location, known)}there is {', '.join(known)}, "
            "and folders (with a /)"
        )
    if not (folder / DESCRIPTION).is_file():
        raise ModelUnavailableError(
            f"{folder} is not a bundle: {DESCRIPTION} is missing; for a GPT-2 checkpoint, engines/gpt2_graph.py of "
            "vlmsearch's source repository writes it, and for a LLaVA checkpoint engines/llava_graph.py"
        )
    given = JsonTable.read(folder / DESCRIPTION, format=FORMAT)
    files = given.table("files", PLAIN_NAME)
    pictures = _read_pictures(given.table("pictures")) if "pictures" in given else None
    needed = (GRAPH, WEIGHTS, TOKENIZER, *((VISION_GRAPH,) if pictures else ()))
    for name in dict.fromkeys((*needed, *files)):
        read_checked(folder / name, files.string(name, SHA256))
    return GeneratorBundle(
        folder=folder,
        name=folder.name if "/" in location else location,
        layers=given.whole("layers", 1, _MAX_LAYERS),
        heads=given.whole("heads", 1, _MAX_SIZE),
        size=given.whole("size", 1, _MAX_SIZE),
        context=given.whole("context", 1, _MAX_CONTEXT),
        ends=frozenset(given.wholes("ends", 0, MAX_ID)),
        pictures=pictures,
    )


def _read_pictures(given: JsonTable) -> PictureInput:
    return PictureInput(
        max_count=given.whole("max_count", 1, _MAX_PICTURES),
        side=given.whole("side", 1, _MAX_SIDE),
        tokens=given.whole("tokens", 1, _MAX_CONTEXT),
        token=given.whole("token", 0, MAX_ID),
    )
