"""`vlmsearch eval` on an index of notes, each of which answers one query."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.cli import ok, run
from tests.support.small_store import SmallStore
from vlmsearch import Document, MissingDependencyError, Pipeline, Store
from vlmsearch._util.extras import install_command
from vlmsearch.cli import cli
from vlmsearch.stores.sqlite.store import SqliteStore

THINGS = ["dog", "car", "boat", "tree", "house", "river", "bread", "stone", "cloud", "lamp", "chair", "clock"]
ON = ("--store", "sqlite:./index", "--encoder", "mock:")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = [{"id": thing, "text": f"this note is of the {thing}"} for thing in THINGS]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    queries: list[dict[str, object]] = [{"query": f"the {thing}", "relevant": [thing]} for thing in THINGS]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    ok("index", "notes.jsonl", *ON, cwd=tmp_path)
    return tmp_path


def test_each_field_and_all_fused_are_measured(folder: Path) -> None:
    found = json.loads(ok("eval", "queries.jsonl", *ON, "--json", cwd=folder))
    assert (found["queries"], found["without_answer"], found["limit"]) == (12, 0, 10)
    assert list(found["fields"]) == ["clip/image", "minilm/text", "words", "fused"]
    for field in ("minilm/text", "words", "fused"):
        assert found["fields"][field]["measures"]["nDCG@10"] == {"value": 1, "low": 1, "high": 1}
        assert 0 < found["fields"][field]["p50"] <= found["fields"][field]["p95"]
    assert found["fields"]["clip/image"]["measures"]["nDCG@10"]["value"] == 0, "there are no images"
    lines = ok("eval", "queries.jsonl", *ON, "--limit", "1", cwd=folder).splitlines()
    assert "12 queries, 0 of them without an answer; the first 1 matches count" in lines[0]
    assert lines[1].split("\t") == ["", "clip/image", "minilm/text", "words", "fused"]
    assert lines[2].split("\t")[1:] == ["0.000 (0.00-0.00)", *["1.000 (1.00-1.00)"] * 3]
    assert [line.split("\t")[0] for line in lines[2:]] == [
        *("precision@1", "recall@1", "nDCG@1", "MRR@1", "F1 shown"),
        *(["precision of no match"] if "precision of no match" in "\n".join(lines) else []),
        *("queries", "p50", "p95"),
    ]


def test_a_report_holds_each_query_and_a_later_run_that_finds_less_fails(folder: Path) -> None:
    done = run("eval", "queries.jsonl", *ON, "--report", "first.json", cwd=folder)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "wrote first.json")
    report = json.loads((folder / "first.json").read_text())
    dog = report["by_query"]["fused"]["1"]
    assert (dog["query"], dog["relevant"], next(iter(dog["found"]))) == ("the dog", {"dog": 1}, "dog")
    assert dog["measures"]["nDCG@10"] == 1
    same = json.loads(ok("eval", "queries.jsonl", *ON, "--compare", "first.json", "--json", cwd=folder))
    assert {each["p"] for each in same["compared"]} == {1}
    assert same["dropped"] == []
    ok("delete", *THINGS[:8], "--store", "sqlite:./index", cwd=folder)
    worse = run("eval", "queries.jsonl", *ON, "--compare", "first.json", cwd=folder)
    assert worse.returncode == 1
    assert "Note: 8 of 12 relevant documents are not in the index and count as not found: 'dog'," in worse.stderr
    assert worse.stderr.splitlines()[-1].startswith("Significantly lower: ")
    assert "nDCG@10" in worse.stderr.splitlines()[-1]
    row = next(line.split("\t") for line in reversed(worse.stdout.splitlines()) if line.startswith("nDCG@10"))
    assert (row[1], row[2], row[3][:6]) == ("1.000", "0.333", "-0.667")
    assert float(row[4]) == pytest.approx(2 / 2**8, abs=0.003)
    other = run("eval", "queries.jsonl", *ON, "--compare", "first.json", "--limit", "5", cwd=folder)
    assert other.returncode == 1
    assert other.stderr.splitlines()[-1] == "Error: the report is of the first 10 matches: give --limit 10"


def test_another_setting_is_measured_and_compared_with(folder: Path) -> None:
    silent = ("--weight", "minilm/text=1", "--weight", "clip/image=0", "--weight", "words=0", "--min-score", "0")
    ok("eval", "queries.jsonl", *ON, *silent, "--report", "silent.json", cwd=folder)
    found = json.loads(ok("eval", "queries.jsonl", *ON, "--compare", "silent.json", "--json", cwd=folder))
    differences = {each["measure"]: each for each in found["compared"]}
    assert differences["nDCG@10"]["before"] == differences["nDCG@10"]["after"] == 1
    assert differences["F1 shown"]["before"] < 0.4, "one of ten or more that are shown is right"
    other = ("--store", "sqlite:./other", "--encoder", "mock:")
    ok("index", "notes.jsonl", *other, cwd=folder)
    ok("delete", *THINGS[:8], "--store", "sqlite:./other", cwd=folder)
    ok("eval", "queries.jsonl", *other, "--report", "other.json", cwd=folder)
    found = json.loads(ok("eval", "queries.jsonl", *ON, "--compare", "other.json", "--json", cwd=folder))
    differences = {each["measure"]: each for each in found["compared"]}
    assert (differences["nDCG@10"]["before"], differences["nDCG@10"]["after"]) == (pytest.approx(1 / 3), 1)
    assert found["dropped"] == []


def test_a_re_ranker_judges_what_all_fields_found(folder: Path) -> None:
    ok("eval", "queries.jsonl", *ON, "--report", "without.json", cwd=folder)
    arguments = ("eval", "queries.jsonl", *ON, "--rerank", "mock:", "--compare", "without.json")
    found = json.loads(ok(*arguments, "--report", "with.json", "--json", cwd=folder))
    assert found["rerank"] == "mock:"
    with_it, without = (json.loads((folder / f"{name}.json").read_text()) for name in ("with", "without"))
    assert without["rerank"] is None
    scores = [each["by_query"]["fused"]["1"]["found"] for each in (with_it, without)]
    assert scores[0]["dog"] != scores[1]["dog"]
    fields = [each["by_query"]["words"]["1"]["found"] for each in (with_it, without)]
    assert fields[0] == fields[1], "a field alone is as it is"
    before = {each["measure"]: each["before"] for each in found["compared"]}
    assert before["F1 shown"] == pytest.approx(without["fields"]["fused"]["measures"]["F1 shown"]["value"], abs=1e-6)


@pytest.mark.parametrize("report", ["away.json", "notes.jsonl"])
def test_a_report_that_cannot_be_read_is_wrong_usage(report: str, folder: Path) -> None:
    done = run("eval", "queries.jsonl", *ON, "--compare", report, cwd=folder)
    assert done.returncode == 2
    assert f"{report} is not a report of `vlmsearch eval --report`" in done.stderr


def test_ids_that_the_index_does_not_have_are_named(folder: Path) -> None:
    (folder / "wrong.jsonl").write_text('{"query": "a dog", "relevant": ["x"]}\n')
    done = run("eval", "wrong.jsonl", *ON, cwd=folder)
    assert done.returncode == 1
    assert "Error: none of the relevant documents ('x') is in the index, whose ids are such as '" in done.stderr


def test_files_are_named_by_paths_relative_to_the_queries_and_images_are_queries(folder: Path) -> None:
    (folder / "photos").mkdir()
    for colour in ("red", "blue"):
        Image.new("RGB", (32, 32), colour).save(folder / "photos" / f"{colour}.png")
    ok("index", "photos", *ON, cwd=folder)
    rows = [{"image": f"photos/{name}.png", "relevant": [f"photos/{name}.png"]} for name in ("red", "blue")]
    (folder / "images.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = json.loads(ok("eval", "images.jsonl", *ON, "--json", cwd=folder))
    assert list(found["fields"]) == ["clip/image", "clip/text", "fused"]
    assert found["fields"]["fused"]["measures"]["precision@1"]["value"] == 1


def test_beir_is_read(folder: Path) -> None:
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "queries.jsonl").write_text('{"_id": "1", "text": "the dog"}\n{"_id": "2", "text": "the car"}\n')
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tdog\t1\n2\tboat\t1\n")
    found = json.loads(ok("eval", "beir", *ON, "--json", cwd=folder))
    assert found["fields"]["words"]["measures"]["precision@1"]["value"] == 0.5


@pytest.mark.slow
def test_tuning_is_kept_in_the_index_and_used_by_the_next_run(folder: Path) -> None:
    rows: list[dict[str, Any]] = [{"query": f"the {thing}", "relevant": [thing]} for thing in THINGS]
    rows += [{"query": f"where is {place}", "relevant": []} for place in ("Rome", "Oslo", "Lima", "Cairo")]
    (folder / "some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with SqliteStore(str(folder / "index")) as store:
        store.tune({"min_score": 1e-9})  # all is shown
    found = json.loads(ok("eval", "some.jsonl", *ON, "--tune", "--json", cwd=folder))
    assert found["without_answer"] == 4
    assert found["tuning"]["shown"]["after"] > found["tuning"]["shown"]["before"]
    tuning = json.loads(ok("info", "--store", "sqlite:./index", "--json", cwd=folder))["tuning"]
    assert tuning == found["tuning"]["values"]
    assert 1e-4 < tuning["min_score"] < 1
    assert found["tuning"]["curves"]["threshold"] == tuning["min_score"]
    assert found["tuning"]["curves"]["at"]["f1"] >= found["curves"]["at"]["f1"]
    again = ok("eval", "some.jsonl", *ON, "--tune", cwd=folder).splitlines()
    assert again[0].endswith(f"and those from {tuning['min_score']} are shown")
    assert any(line.startswith("Tuned on 4 of 5 parts of the queries in turn") for line in again)
    assert again[-1].startswith(("Kept in the index: ", "Nothing is better than the present setting"))


def evaluate(store: Store, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr("vlmsearch.registry.open_store", lambda url: store)
    return CliRunner().invoke(cli, ["eval", *arguments, "--encoder", "mock:"])


def test_a_store_that_cannot_keep_what_is_tuned_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SmallStore()
    Pipeline(MockEncoder(), store).add(Document("dog", text="a dog"))
    done = evaluate(store, monkeypatch, str(folder / "queries.jsonl"), "--tune")
    assert done.exit_code == 1
    assert str(done.exception) == "small cannot keep what is tuned: leave out --tune"


def test_without_the_package_of_measures_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    done = evaluate(MemoryStore(), monkeypatch, str(folder / "queries.jsonl"))
    assert isinstance(done.exception, MissingDependencyError)
    assert install_command("eval") in str(done.exception)


def test_plots_are_written_beside_what_is_printed(folder: Path) -> None:
    done = run("eval", "queries.jsonl", *ON, "--plot", "plots.svg", "--json", cwd=folder)
    assert done.stderr.splitlines()[-1] == "wrote plots.svg"
    found = json.loads(done.stdout)
    assert found["curves"]["at"]["f1"] == found["fields"]["fused"]["measures"]["F1 shown"]["value"]
    text = (folder / "plots.svg").read_text()
    for title in ("Measures by threshold", "Scores of answers and of other documents", "Calibration"):
        assert f"<title>{title}</title>" in text
    assert text.count("shown from 0.3<") == 2
    ok("eval", "queries.jsonl", *ON, "--plot", "plots.html", cwd=folder)
    assert (folder / "plots.html").read_text().startswith("<!doctype html>")
    wrong = run("eval", "queries.jsonl", *ON, "--plot", "plots.png", cwd=folder)
    assert wrong.returncode == 2
    assert "plots.png ends in neither .svg nor .html" in wrong.stderr


def test_the_scores_of_an_index_are_drawn(folder: Path) -> None:
    done = run("info", *ON, "--scores", "scores.svg", cwd=folder)
    assert done.stderr == "wrote scores.svg: 0% of the queries show nothing\n"
    assert "documents   12\n" in done.stdout
    text = (folder / "scores.svg").read_text()
    assert "Scores of the texts of 12 documents as queries" in text
    assert "their own documents (12)" in text
    (folder / "typed.txt").write_text("the dog\n\nzebra quagga\n")
    done = run("info", *ON, "--scores", "scores.html", "--queries", "typed.txt", cwd=folder)
    assert done.stderr == "wrote scores.html: 50% of the queries show nothing\n"
    assert "best matches (2)" in (folder / "scores.html").read_text()


def test_queries_of_scores_are_text_and_need_a_plot(folder: Path) -> None:
    (folder / "odd.txt").write_bytes(b"\xff\xfe")
    done = run("info", *ON, "--scores", "a.svg", "--queries", "odd.txt", cwd=folder)
    assert (done.returncode, "odd.txt is not a text in UTF-8" in done.stderr) == (2, True)
    done = run("info", *ON, "--queries", "odd.txt", cwd=folder)
    assert (done.returncode, "--queries are for --scores" in done.stderr) == (2, True)
    done = run("info", "--server", "http://127.0.0.1:1", "--scores", "a.svg", cwd=folder)
    assert (done.returncode, "give --queries FILE with a query a line" in done.stderr) == (2, True)
