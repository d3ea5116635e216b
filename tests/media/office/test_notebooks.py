import json
from pathlib import Path
from typing import Any

import pypandoc
import pytest

from vlmsearch import InvalidInputError
from vlmsearch.media.office import read_bytes, read_office
from vlmsearch.media.office.content import Content

PICTURE = "iVBORw0KGgo="


def notebook(*cells: dict[str, Any], **metadata: Any) -> Content:
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}
    return read_bytes(json.dumps(book).encode(), ".ipynb", "'book'")


def code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs, "metadata": {}, "execution_count": 1}


def text(source: str | list[str], **more: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}, **more}


def shown(**data: Any) -> dict[str, Any]:
    kinds = {"plain": "text/plain", "html": "text/html", "png": "image/png", "markdown": "text/markdown"}
    kinds |= {"plotly": "application/vnd.plotly.v1+json", "widget": "application/vnd.jupyter.widget-view+json"}
    kinds |= {
        "latex": "text/latex",
        "json": "application/json",
        "other": "application/x-other",
        "pdf": "application/pdf",
    }
    kinds |= {"load": "application/vnd.bokehjs_load.v0+json", "script": "application/javascript"}
    return {"output_type": "display_data", "metadata": {}, "data": {kinds[name]: value for name, value in data.items()}}


def test_cells_and_what_they_show_come_in_order() -> None:
    read = notebook(
        text(["# The birds #\n", "\n", "A *part*ly **bold**ed word, H<sub>2</sub>O"]),
        code(["x = 1\n", "print(x)"], {"output_type": "stream", "name": "stdout", "text": ["1\n", "2\n"]}),
        {"cell_type": "raw", "source": "raw words", "metadata": {}},
        code(
            "1/0",
            {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "\x1b[31mby zero", "traceback": ["no"]},
        ),
        code("x", {"output_type": "execute_result", "data": {"text/plain": ["a  b\n", "c  d"]}, "metadata": {}}),
        authors=[{"name": "Ann"}, {"name": "Ben"}],
    )

    assert read.text == (
        "The birds\n\nA partly bolded word, H2O\n\nx = 1\nprint(x)\n\n1\n2\n\n\nraw words\n\n1/0\n\n"
        "ZeroDivisionError: by zero\n\nx\n\na  b\nc  d"
    )
    assert (read.about.title, read.about.author, read.unread) == ("The birds", "Ann; Ben", {})
    assert read.about.over(read.text).count("The birds") == 1


@pytest.mark.parametrize(
    ("output", "words", "unread"),
    [
        (shown(plain="a  b", html="<b>no</b>"), "a  b", {}),
        (shown(plain="<IPython.core.display.HTML object>", html=["<p>un<b>bro</b>", "ken"]), "unbroken", {}),
        (shown(html="<p>a"), "a", {}),
        (shown(plain="<IPython.core.display.Markdown object>", markdown="**b**"), "**b**", {}),
        (shown(plain="<IPython.core.display.Latex object>", latex="$x$"), "$x$", {}),
        (shown(plain="a", json={"b": 1}), "a", {}),
        (shown(plain="<__main__.Bird at 0x7f>"), "<__main__.Bird at 0x7f>", {}),
        (shown(plain="<Figure size 640x480 with 1 Axes>", png=PICTURE), "", {"picture": 1}),
        (shown(plain="<x>", html=f"<img src='data:image/png;base64,{'A' * 99}'>"), "", {"picture": 1}),
        (shown(plotly={"data": []}, html="<script>plot()</script>"), "", {"chart": 1}),
        (shown(pdf=PICTURE), "", {"other part": 1}),
        (shown(plain="IntSlider(value=3)", widget={"model_id": "x"}), "IntSlider(value=3)", {}),
        (shown(widget={"model_id": "x"}), "", {}),
        (shown(load="", script="load()"), "", {}),
        (shown(plain="<x>", html="<script>draw()</script>"), "<x>", {"other part": 1}),
        (shown(other="x"), "", {"other part": 1}),
        ({"output_type": "stream", "text": "\x1b[1m10%\r 50%\rdone\r\nnext\r"}, "done\nnext", {}),
    ],
)
def test_an_output_is_read_as_text_or_said(output: dict[str, Any], words: str, unread: dict[str, int]) -> None:
    read = notebook(code("", output))

    assert (read.text, read.unread) == (words, unread)


def test_pictures_of_cells_are_said_and_are_no_text() -> None:
    read = notebook(
        text("![a tern](attachment:a.png)", attachments={"a.png": {"image/png": PICTURE}}),
        text(f"![a gull](data:image/png;base64,{PICTURE}) flies"),
    )

    assert (read.text, read.unread) == ("![a tern](attachment:a.png)\n\n![a gull]() flies", {"picture": 2})


def test_the_title_is_that_of_the_metadata_or_the_first_heading() -> None:
    assert notebook(text("# A"), title="Birds").about.title == "Birds"
    assert notebook(code("# no"), text("no\n\n## Gulls\n"), text("# no")).about.title == "Gulls"
    assert notebook(text("Terns and gulls\n===\n")).about.title == "Terns and gulls"


def test_notebooks_of_format_3_are_read() -> None:
    cells = [
        {"cell_type": "heading", "level": 1, "source": ["Birds"]},
        {
            "cell_type": "code",
            "input": ["x = 1\n", "x"],
            "outputs": [
                {"output_type": "stream", "stream": "stdout", "text": ["printed"]},
                {"output_type": "pyout", "text": ["<b>"], "html": ["<b>shown</b>"]},
                {"output_type": "display_data", "png": PICTURE},
                {"output_type": "pyerr", "ename": "KeyError", "evalue": "'x'", "traceback": []},
            ],
        },
    ]
    book = {"nbformat": 3, "metadata": {"name": ""}, "worksheets": [{"cells": cells}]}

    read = read_bytes(json.dumps(book).encode("utf-8-sig"), ".ipynb", "'book'")

    assert read.text == "Birds\n\nx = 1\nx\n\nprinted\n\nshown\n\nKeyError: 'x'"
    assert read.unread == {"picture": 1}


@pytest.mark.parametrize("data", [b'{"cells": [', b"[]", b"\xff\x00", b'{"a": 1}', b"[" * 100_000])
def test_what_is_no_notebook_is_corrupt(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="'book' is damaged") as caught:
        read_bytes(data, ".ipynb", "'book'")
    assert caught.value.code == "corrupt"


def test_cells_of_other_shapes_do_no_harm() -> None:
    odd: dict[str, Any] = {
        "cell_type": "code",
        "source": 1,
        "outputs": [1, {"data": [], "text": None}],
        "attachments": [],
    }

    assert notebook(odd, text("a"), title=3, authors="x").text == "a"


def test_notebooks_of_pandoc_have_all_words(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    pypandoc.convert_text(
        "# Birds\n\nA *part*ly **bold**ed word.\n\n``` code\nx = 1\n```\n", "ipynb", "markdown", outputfile=str(path)
    )

    read = read_office(path)

    assert read.text == "Birds\n\nA partly bolded word.\n\nx = 1"
    assert read.about.title == "Birds"


@pytest.mark.parametrize("code", ["`w*x*b`", "```\na*b*c\n```", "$a*b*c$", "$$\na*b*c\n$$"])
def test_stars_in_code_and_formulas_of_a_text_are_no_emphasis(code: str) -> None:
    assert notebook(text(f"un*believ*able {code} un*believ*able")).text == f"unbelievable {code} unbelievable"
