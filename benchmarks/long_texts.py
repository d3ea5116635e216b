"""Long texts: what a fact in the middle of one is worth to searches and answers, and what they cost.

A handbook is some 30 abstracts of CISI without their titles, with blank lines between them. It is asked for by such
titles, by rare words, and by questions of ``faq.jsonl`` whose answers are put into its middle.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import shake_128
from pathlib import Path

import click
import numpy as np

from benchmarks.common import print_figures
from benchmarks.labelled import OWN_QUESTIONS, cisi_entries
from vlmsearch._util.machine import proc_bytes
from vlmsearch.encoders.base import Encoder
from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.types import Document, ImageSource, Role, Space, Vectors, file_of_part

_SEED = 0
RARE = "zeppelin marmalade bagpipes tulips"
"""Words that no abstract has."""
BEFORE = (0, 100, 300, 1000)
"""Numbers of words before the rare ones."""
_OTHERS = 19
_BEGINNING = 40
"""Words of a reply that hold the answer."""
_PARAGRAPHS, _SENTENCES = 14, 5
"""Paragraphs of a text whose cost is measured, and sentences of a paragraph."""
_SENTENCE = re.compile(r"(?<=\. )[A-Z][^.]{30,190}\.(?= [A-Z])")
_DIM = 384


@dataclass(frozen=True)
class Handbooks:
    """Long texts.

    Attributes:
        paragraphs: Paragraphs of each text, by its id.
        queries: Titles of paragraphs, and the id of the text that has the paragraph.
    """

    paragraphs: Mapping[str, Sequence[str]]
    queries: Sequence[tuple[str, str]]

    @property
    def whole(self) -> list[Document]:
        """Return a document for each text."""
        return [Document(id, text="\n\n".join(paragraphs)) for id, paragraphs in self.paragraphs.items()]

    @property
    def by_hand(self) -> list[Document]:
        """Return a document for each paragraph."""
        return [page for id, paragraphs in self.paragraphs.items() for page in _pages(id, paragraphs)]


def _pages(id: str, paragraphs: Iterable[str]) -> list[Document]:
    """Return a document for each paragraph, as a page of its text."""
    return [Document(f"{id}#page={number}", text=text) for number, text in enumerate(paragraphs, 1)]


def read_handbooks(cisi: Path, *, count: int = 20, words: int = 3_500, queries: int = 60) -> Handbooks:
    """Draw texts of so many words, and titles, from a folder in CISI's format."""
    abstracts = _abstracts(cisi)
    rng = random.Random(_SEED)
    rng.shuffle(abstracts)
    rest = iter(abstracts)
    drawn: dict[str, list[tuple[str, str]]] = {f"handbook-{number:02}": [] for number in range(count)}
    for own in drawn.values():
        while sum(len(text.split()) for _, text in own) < words:
            own.append(next(rest))
    titles = [(title, id) for id, own in drawn.items() for title, _ in own]
    return Handbooks({id: [text for _, text in own] for id, own in drawn.items()}, rng.sample(titles, queries))


def _abstracts(cisi: Path) -> list[tuple[str, str]]:
    """Return the titles of abstracts and their texts, each in one line."""
    entries = (fields for _, fields in cisi_entries((cisi / "CISI.ALL").read_text("utf-8", "replace")))
    return [(" ".join(f["T"].split()), " ".join(f["W"].split())) for f in entries if f.get("T") and f.get("W")]


@click.command("long")
@click.option(
    "--cisi", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A folder in CISI's format."
)
@click.option("--squad", type=click.Path(path_type=Path), metavar="FILE",
              help="Questions with answers in SQuAD's format, such as xquad.en.json.")  # fmt: skip
@click.option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL", help="Model of texts.")
@click.option("--texts", default=10_000, show_default=True, help="Long texts whose cost is measured; 0 for none.")
def main(cisi: Path, squad: Path | None, encoder: str, texts: int) -> None:
    """Measure what long texts give to searches and answers, and what they cost."""
    handbooks = read_handbooks(cisi)
    with open_encoder(encoder) as model:
        asked = f"of {len(handbooks.queries)} titles, right first / among 3"
        rows: dict[str, tuple[float, ...]] = {
            f"{asked}: whole texts": measure_first(handbooks.whole, handbooks.queries, model),
            f"{asked}: their paragraphs as pages": measure_first(handbooks.by_hand, handbooks.queries, model),
            f"{asked}: cosine of paragraphs": cosine_first(handbooks, model),
        }
        for words in BEFORE:
            rows[f"four rare words behind {words:,}: relevance / shown"] = measure_rare(handbooks, words, model)
        asked = "answers in the middle: questions / text shown / and in the prompt / text a source / and in the prompt"
        rows[asked] = measure_prompts(handbooks, model)
        if squad:
            asked = f"extractive: questions / answer in the first {_BEGINNING} words / mean words of a reply"
            rows[asked] = measure_extractive(squad, model)
    print_figures(
        "Long texts", ("what", "figures"), [(name, _joined(figures, " / ")) for name, figures in rows.items()]
    )
    if texts:
        whole, by_hand = (measure_apart(cisi, texts, is_whole) for is_whole in (True, False))
        costs = {"whole": whole, "as pages": by_hand, "ratio": [a / b for a, b in zip(whole, by_hand)]}
        names = ("", "rows", "indexing, CPU s", "files, MiB", "peak memory, MiB", "search, CPU ms")
        print_figures(f"{texts:,} texts", names, [(name, *map(_shown, figures)) for name, figures in costs.items()])


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if isinstance(figure, int) or figure >= 100 else f"{figure:.3g}"


def _joined(figures: Iterable[float], joint: str) -> str:
    return joint.join(map(_shown, figures))


@contextmanager
def _index(documents: Iterable[Document], encoder: Encoder, generator: Generator | None = None) -> Iterator[Pipeline]:
    """Give an index of documents, for as long as the block lasts; the encoder stays open."""
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder, open_store(f"sqlite:{folder}/index") as store:
        pipeline = Pipeline(encoder, store, generator=generator)
        pipeline.add(documents)
        yield pipeline


def measure_first(
    documents: Iterable[Document], queries: Sequence[tuple[str, str]], encoder: Encoder
) -> tuple[int, int]:
    """Return how often the right text is first, and how often among the first 3."""
    with _index(documents, encoder) as pipeline:
        matches = (pipeline.search(query, limit=3, min_score=0) for query, _ in queries)
        return _count_first(([file_of_part(match.document.id) for match in some] for some in matches), queries)


def cosine_first(handbooks: Handbooks, encoder: Encoder) -> tuple[int, int]:
    """Return the same for texts that are ranked by the cosine of their nearest paragraph."""
    pages = handbooks.by_hand
    space = next(space.name for space in encoder.spaces if "image" not in space.modalities)
    queries = encoder.encode_texts([query for query, _ in handbooks.queries], role="query")[space]
    cosine = queries @ encoder.encode_texts([page.text or "" for page in pages])[space].T
    ranked = ([file_of_part(pages[place].id) for place in row] for row in np.argsort(-cosine, axis=1))
    return _count_first(ranked, handbooks.queries)


def _count_first(ranked: Iterable[Sequence[str]], queries: Sequence[tuple[str, str]]) -> tuple[int, int]:
    places = [(list(dict.fromkeys(ids))[:3], right) for ids, (_, right) in zip(ranked, queries)]
    return sum(ids[:1] == [right] for ids, right in places), sum(right in ids for ids, right in places)


def measure_rare(handbooks: Handbooks, before: int, encoder: Encoder) -> tuple[float, bool]:
    """Return the relevance of a text that ends with rare words, and whether it is shown.

    ``before`` is the number of its other words. The other 19 documents are paragraphs.
    """
    (id, paragraphs), *_ = handbooks.paragraphs.items()
    text = " ".join([*" ".join(paragraphs).split()[:before], RARE])
    others = handbooks.by_hand[len(paragraphs) :][:_OTHERS]
    with _index([Document(id, text=text), *others], encoder) as pipeline:
        scores = {match.document.id: match.score for match in pipeline.search(RARE, min_score=0, limit=1 + _OTHERS)}
        return scores.get(id, 0.0), id in [match.document.id for match in pipeline.search(RARE)]


class RecordingGenerator(Generator):
    """A generator that keeps its last prompt and says nothing."""

    name = "recording"
    prompt = ""

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Keep the prompt."""
        self.prompt = " ".join(prompt.split())
        return iter(())


def measure_prompts(handbooks: Handbooks, encoder: Encoder) -> tuple[int, ...]:
    """Ask questions whose answers are put into the middle of texts.

    Returns:
        The number of questions; of those for which a search shows the text, and the prompt then has the answer; of
        those for which the text is a source of `ask`, and the prompt then has the answer.
    """
    lines = [json.loads(line) for line in OWN_QUESTIONS.read_bytes().splitlines()]
    rows = random.Random(_SEED).sample([row for row in lines if "? " in row["text"]], len(handbooks.paragraphs))
    texts = {}
    for (id, paragraphs), row in zip(handbooks.paragraphs.items(), rows):
        middle = len(paragraphs) // 2
        texts[id] = [*paragraphs[:middle], f"{paragraphs[middle]} {row['text']}", *paragraphs[middle + 1 :]]
    seen = []
    generator = RecordingGenerator()
    with _index(replace(handbooks, paragraphs=texts).whole, encoder, generator) as pipeline:
        for id, query, answer in (
            (id, query, row["text"].partition("? ")[2]) for id, row in zip(texts, rows) for query in row["queries"]
        ):
            generator.prompt = ""
            listed = (pipeline.search(query, limit=5), pipeline.ask(query).matches)
            shown, read = (id in [match.document.id for match in matches] for matches in listed)
            quoted = answer in generator.prompt
            seen.append((True, shown, shown and quoted, read, read and quoted))
    return tuple(map(sum, zip(*seen)))


def measure_extractive(squad: Path, encoder: Encoder, *, count: int = 50) -> tuple[int, int, float]:
    """Return the number of questions, how many replies begin with an answer, and their mean words.

    ``squad`` is a file in the format of SQuAD 1.1 (Rajpurkar et al., EMNLP 2016), which XQuAD has, too.
    """
    articles = json.loads(squad.read_bytes())["data"]
    rows = [row for article in articles for row in article["paragraphs"]]
    questions = [question for row in rows for question in row["qas"] if question["answers"]]
    documents = [Document(f"paragraph-{number}", text=row["context"]) for number, row in enumerate(rows)]
    with _index(documents, encoder, ExtractiveGenerator()) as pipeline:
        asked = random.Random(_SEED).sample(questions, min(count, len(questions)))
        replies = [pipeline.ask(question["question"]).text.split() for question in asked]
    beginnings = [" ".join(words[:_BEGINNING]) for words in replies]
    right = [
        any(" ".join(answer["text"].split()) in beginning for answer in question["answers"])
        for question, beginning in zip(asked, beginnings)
    ]
    return len(asked), sum(right), statistics.mean(map(len, replies))


class DrawnVectors(Encoder):
    """Vectors that are drawn for each text, so that no model is measured."""

    fingerprint = "drawn:1"
    spaces = (Space("drawn", _DIM, frozenset({"text"})),)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Draw the vectors."""
        rows = [np.frombuffer(shake_128(text.encode()).digest(_DIM), np.int8) for text in texts]
        drawn = np.array(rows, np.float32).reshape(len(texts), _DIM) + 0.5
        return {"drawn": drawn / np.linalg.norm(drawn, axis=1, keepdims=True)}

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Return nothing, since there is no space for images."""
        return {}


def draw_texts(cisi: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield ids of long texts and their paragraphs, made of sentences of abstracts."""
    sentences = _SENTENCE.findall(" ".join(text for _, text in _abstracts(cisi)))
    rng = random.Random(_SEED)
    for number in range(count):
        yield f"text-{number:05}", [" ".join(rng.choices(sentences, k=_SENTENCES)) for _ in range(_PARAGRAPHS)]


def measure_apart(cisi: Path, count: int, is_whole: bool) -> tuple[float, ...]:
    """Call `measure_cost` in a process of its own, for its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure_cost, (cisi, count, is_whole))


def measure_cost(cisi: Path, count: int, is_whole: bool) -> tuple[float, ...]:
    """Index drawn texts as they are or their paragraphs as pages, and search.

    Returns:
        Rows with vectors, CPU seconds of indexing, MiB of files, MiB of memory, and CPU milliseconds of a search.
    """
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:
        store = open_store(f"sqlite:{folder}/index")
        with Pipeline(DrawnVectors(), store) as pipeline:
            texts = draw_texts(cisi, count)
            started = time.process_time()
            if is_whole:
                pipeline.add(Document(id, text="\n\n".join(paragraphs)) for id, paragraphs in texts)
            else:
                pipeline.add(page for id, paragraphs in texts for page in _pages(id, paragraphs))
            seconds = time.process_time() - started
            queries = [" ".join(paragraphs[3].split()[:6]) for _, paragraphs in draw_texts(cisi, 26)]
            pipeline.search(queries.pop())
            started = time.process_time()
            for query in queries:
                pipeline.search(query, min_score=0)
            search = (time.process_time() - started) / len(queries)
            rows = store.count_passages() if is_whole else len(store)
        files = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    memory = proc_bytes("self/status", "VmHWM") or 0
    return rows, seconds, files / 2**20, memory / 2**20, search * 1000


if __name__ == "__main__":
    main()
