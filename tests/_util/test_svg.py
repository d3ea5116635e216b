"""Charts: their numbers are where they belong, their colours are seen, and a reader of text is told."""

from itertools import pairwise

import pytest

from tests.support.markup import SVG, parse, points_of, text_of
from vlmsearch._util.svg import COLOURS, DASHES, Axis, Chart, standalone

AXIS = Axis("x & y", [(0.0, "0"), (1.0, "<1>")])


def new_chart() -> Chart:
    return Chart("A <title>", "A 'description'.", AXIS, AXIS)


def contrast(first: str, second: str) -> float:
    """As WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("page", ["#ffffff", "#111111", "#161513", "#1e1e1e"])
def test_colours_are_seen_on_light_and_dark_pages(colour: str, page: str) -> None:
    assert contrast(colour, page) > 3.5


def test_a_line_goes_through_its_points_and_has_gaps() -> None:
    chart = new_chart()
    chart.line("a", [(0.0, 0.0), (0.5, 1.0), None, (0.75, 0.25), (1.0, 0.5)], number=1)
    [path] = list(parse(chart.svg()).iter(f"{SVG}path"))
    expected = [[(0.0, 0.0), (0.5, 1.0)], [(0.75, 0.25), (1.0, 0.5)]]
    assert points_of(path.attrib["d"]) == [[pytest.approx(chart.place(point)) for point in line] for line in expected]
    assert (path.attrib["stroke"], path.attrib["stroke-dasharray"]) == (COLOURS[1], DASHES[1])
    (left, bottom), (right, top) = chart.place((0, 0)), chart.place((1, 1))
    assert 0 < left < right < 640
    assert 0 < top < bottom < chart.height


def test_bars_have_their_heights_and_small_ones_are_seen() -> None:
    chart = new_chart()
    chart.bars("a", [(0.0, 0.1, 0.5, "5 & 5"), (0.1, 0.2, 0.0001, "few")], number=0)
    bars = [each for each in parse(chart.svg()).iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights == [pytest.approx(chart.place((0, 0))[1] - chart.place((0, 0.5))[1]), 1.0]
    assert [text_of(bar) for bar in bars] == ["5 & 5", "few"]


def test_a_chart_is_told_to_those_who_do_not_see_it() -> None:
    chart = new_chart()
    chart.mark(0.9, "<here>")
    chart.row("n", [(0.5, "12")])
    chart.diagonal("even")
    chart.points("p", [((0.5, 0.5), 0.25, 0.75, "point")], number=0)
    tree = parse(chart.svg())
    assert [each.tag for each in tree[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert (tree[0].text, tree[1].text, tree.attrib["role"]) == ("A <title>", "A 'description'.", "img")
    assert {"<here>", "12", "even", "x & y", "<1>"} <= {each.text for each in tree.iter(f"{SVG}text")}
    assert "id" not in {name for each in tree.iter() for name in each.attrib}, "several are in one page"


def test_a_file_has_its_charts_below_each_other_on_a_background() -> None:
    text = standalone([new_chart(), new_chart()], "Both & all")
    style, _, rest = text.partition("<style>")[2].partition("</style>")
    assert "prefers-color-scheme:dark" in style
    tree = parse(f"{text.partition('<style>')[0]}{rest}")
    tops = [(float(each.attrib["y"]), float(each.attrib["height"])) for each in tree.findall(f"{SVG}svg")]
    assert len(tops) == 2
    assert all(top + height <= below for (top, height), (below, _) in pairwise(tops))
    assert float(tree.attrib["height"]) >= sum(tops[-1])
    assert tree[0].text == "Both & all"
