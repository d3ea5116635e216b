"""The plots of evaluations and scores: what they show is what was measured."""

from pathlib import Path

import pytest

from tests.support.markup import SVG, parse, points_of, text_of
from vlmsearch import ConfigError, Document, Evaluation, JudgedQuery, Pipeline
from vlmsearch.notebook.files import write_evaluation, write_scores
from vlmsearch.notebook.plots import evaluation_charts
from vlmsearch.search.curves import WIDEST
from vlmsearch.search.relevance import to_log_odds
from vlmsearch.search.scores import index_scores

THINGS = ["dog", "car", "boat", "tree", "house", "river"]


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add(Document(thing, text=f"this note is of the {thing}") for thing in THINGS)
        queries = [JudgedQuery(thing, {thing: 1}, f"the {thing}") for thing in THINGS]
        return pipeline.evaluate([*queries, JudgedQuery("none", {}, "zebra quagga")])


def test_lines_are_the_curves_and_the_threshold_is_marked(evaluation: Evaluation) -> None:
    curve = evaluation["curves"]["curve"]
    chart = evaluation_charts(evaluation)[0]
    tree = parse(chart.svg())
    lines = {text_of(path): points_of(path.attrib["d"]) for path in tree.iter(f"{SVG}path")}
    names = {"precision": "precision", "recall": "recall", "F1": "f1", "nothing shown": "abstention"}
    assert list(lines) == list(names)
    for shown, name in names.items():
        values = [(x, y) for x, y in zip(curve["threshold"], curve[name]) if y is not None]
        drawn = [point for stretch in lines[shown] for point in stretch]
        assert len(drawn) == len(values) > 10
        for point, (threshold, value) in zip(drawn, values):
            place = (to_log_odds(threshold) + WIDEST) / (2 * WIDEST)
            assert point == pytest.approx(chart.place((place, value)), abs=0.02)
    marked = chart.place(((to_log_odds(0.3) + WIDEST) / (2 * WIDEST), 0))[0]
    ends = [(line.attrib["x1"], line.attrib["x2"]) for line in tree.iter(f"{SVG}line")]
    assert (f"{marked:.2f}", f"{marked:.2f}") in ends
    assert "shown from 0.3" in text_of(tree)
    at = evaluation["curves"]["at"]
    assert f"recall {at['recall']:.3f}" in (tree[1].text or "")
    assert at["f1"] == pytest.approx(evaluation["fields"]["fused"]["measures"]["F1 shown"]["value"], abs=1e-6)


def test_points_are_the_calibration_and_counts_are_written(evaluation: Evaluation) -> None:
    tenths = evaluation["curves"]["calibration"]
    chart = evaluation_charts(evaluation)[2]
    tree = parse(chart.svg())
    points = list(tree.iter(f"{SVG}circle"))
    circles = [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in points[:-1]]  # the last is the legend's
    expected = [chart.place((tenth["score"], tenth["answers"])) for tenth in tenths]
    assert circles == [pytest.approx(place, abs=0.01) for place in expected]
    written = {each.text for each in tree.iter(f"{SVG}text")}
    assert {f"{tenth['documents']:,}" for tenth in tenths} <= written
    found = sum(sum(counts) for counts in evaluation["curves"]["histogram"]["counts"].values())
    assert sum(tenth["documents"] for tenth in tenths) == found > len(THINGS)


def test_bars_are_the_histogram(evaluation: Evaluation) -> None:
    tree = parse(evaluation_charts(evaluation)[1].svg())
    titles = [text_of(each) for each in tree.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    histogram = evaluation["curves"]["histogram"]
    edges = histogram["edges"]
    for name, shown in (("answers", "answers"), ("others", "other documents")):
        for low, high, count in zip(edges, edges[1:], histogram["counts"][name]):
            title = f"{count:,} {shown} from {low:.3g} to {high:.3g}"
            assert (title in titles) == (count > 0)


def test_after_tuning_the_plots_are_of_what_the_index_has_now(evaluation: Evaluation) -> None:
    gain = {"measure": "F1 <shown>", "before": 0.5, "after": 0.75, "low": 0.1, "high": 0.4, "p": 0.01}
    curves = evaluation["curves"] | {"threshold": 0.9}
    tuning = {"values": {"min_score": 0.9}, "order": None, "shown": gain, "curves": curves}
    said = text_of(parse(Evaluation({**evaluation, "tuning": tuning})._repr_html_()))
    assert "shown from 0.9" in said
    assert "shown from 0.3" not in said
    assert "F1 <shown> 0.500 0.750 0.0100" in said
    assert "Kept in the index: min_score 0.9." in said


def test_a_report_of_an_earlier_server_has_no_plots(evaluation: Evaluation, tmp_path: Path) -> None:
    earlier = Evaluation({name: value for name, value in evaluation.items() if name != "curves"})
    assert evaluation_charts(earlier) == []
    assert "<svg" not in earlier._repr_html_()
    with pytest.raises(ConfigError, match="there are no curves to plot"):
        write_evaluation(tmp_path / "a.svg", earlier)


def test_files_are_whole_and_take_nothing_from_elsewhere(evaluation: Evaluation, tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a.svg", evaluation | {"store": "<script>"})
    write_evaluation(tmp_path / "a.html", evaluation | {"store": "<script>"})
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.add(Document(thing, text=thing) for thing in THINGS)
        write_scores(tmp_path / "b.svg", index_scores(pipeline))
    for name, charts in (("a.svg", 3), ("b.svg", 1), ("a.html", 3)):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.count("<svg xmlns") + text.count("<svg y=") >= charts
        assert "<script" not in text
        assert text.replace("http://www.w3.org/2000/svg", "").find("http") in (-1, text.find("http-equiv"))
    assert "default-src 'none'" in (tmp_path / "a.html").read_text(encoding="utf-8")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ConfigError, match="cannot write"):
        write_evaluation(tmp_path / "folder.svg", evaluation)
