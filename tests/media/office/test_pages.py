import subprocess
import sys
import time
from pathlib import Path

import pypandoc
import pytest

from vlmsearch._util.extras import install_command
from vlmsearch.media.office import read_bytes, read_office
from vlmsearch.media.office.content import Content

XHTML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" '
    '"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">\n<html xmlns="http://www.w3.org/1999/xhtml" '
    'xmlns:m="http://www.w3.org/1998/Math/MathML"><head><title>{}</title><script src="a.js"/></head>'
    "<body>{}</body></html>"
)
PICTURE = "data:image/png;base64," + "A" * 200


def page(markup: str, suffix: str = ".html") -> Content:
    return read_bytes(markup.encode(), suffix, "'page'")


def test_a_page_has_all_its_text_in_order_and_no_programs() -> None:
    read = page(
        "<!doctype html><title>Snow &amp; ice</title><style>p{}</style><body><div>in <b>a</b> div</div>"
        "<dl><dt>term<dd>what it is</dl><table><tr><td>a<td>b</tr></table><img alt='a cat' src=x>"
        "<script>if (a < b) alert('no')</script><p>one<br>two\nthree</p><h2>Head</h2>after"
    )

    assert read.about.title == "Snow & ice"
    assert read.text == "in a div\nterm\nwhat it is\n\na\tb\n\na cat\n\none\ntwo three\n\nHead\n\nafter"
    assert not read.unread


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>un<my-word class='x'>bro</my-word>ken <font color=red>r</font>ed <o:p>b</o:p>ox", "unbroken red box"),
        ("Donau&shy;dampf&shy;schiff, Donau<wbr>dampf", "Donaudampfschiff, Donaudampf"),
        ("<p>dunlin<sup><a href=#n>3</a></sup> H<sub>2</sub>O x<sup>2</sup>", "dunlin 3 H2O x2"),
        ("<img alt=O>nce <img src=x alt=upon>a", "Once upon a"),
        ("<p>x<div>y</p>z", "x\n\ny z"),  # browsers begin a paragraph at an end that has no beginning
        ("<pre>def f():\n    return <b>1</b>\n\n\tx</pre>after", "def f():\n    return 1\n\n\tx\n\nafter"),
        ("<textarea>\none\n two</textarea><xmp>a <b>\nb</xmp>", "one\n two\n\na <b>\nb"),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>です", "漢字 かんじ です"),
        ("<figure><img src=x><figcaption>cap</figcaption></figure><p>x", "cap\n\nx"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "a\nb\nc"),
        ("<details><summary>s</summary>d</details><p hidden>h<p style='display:none'>n", "s\nd\n\nh\n\nn"),
        ("<p>dunlin<a epub:type=noteref>1</a> knot<a role=doc-noteref>2</a>", "dunlin 1 knot 2"),
        ("<template>t</template><div><template shadowrootmode=open>shadow</template></div>", "shadow"),
        ("a<noscript><p>without programs</noscript>b", "a\n\nwithout programs\n\nb"),
        ("<frameset><frame src=a><noframes><body><p>no <b>fra</b>mes</noframes></frameset>", "no frames"),
        ("a<iframe srcdoc='&lt;p&gt;in&lt;p&gt;side'>old</iframe>b", "a\n\nin\n\nside\n\nb"),
        ("a <!-- c --><!--[if IE]><p>old</p><![endif]-->b", "a b"),
        ("<abbr title=tip>WHO</abbr><p aria-label=l>p", "WHO\n\np"),
        ("<p>a <![CDATA[x < y]]> b<script>//<![CDATA[\n'<p>no</p>'//]]></script> c", "a x < y b c"),
        ("<map><area alt=left><area alt=right></map>", "left right"),
        ("<math><mfrac><mn>1</mn><mn>2</mn></mfrac><mo>+</mo><msup><mi>x</mi><mn>2</mn></msup></math>", "1 2 +x2"),
        ("<nav role=doc-pagelist epub:type=page-list><a>vii</a></nav><nav>Start</nav>", "Start"),
    ],
)
def test_a_page_is_read_as_it_is_seen(markup: str, text: str) -> None:
    assert page(markup).text == text


def test_values_of_forms_are_read_and_not_what_stands_for_them() -> None:
    read = page(
        "<form><label>Name</label><input value=Joe><input type=hidden value=no><input type=checkbox value=no>"
        "<input placeholder=no><input type=password value=no><input type=image alt=Send value=no><input type=submit "
        "value=Go><button>A</button><button>B</button><select><optgroup label=Birds><option>gull<option>tern</select>"
    )

    assert read.text == "Name Joe Send Go A B\nBirds\ngull\ntern"


def test_a_row_is_a_line_whatever_is_in_its_cells() -> None:
    read = page(
        "<table><caption>Cap</caption><thead><tr><th>A<th>B</thead><tr><td><p>one</p><p>two</p><ul><li>i<li>j</ul>"
        "<td>b<br>c<pre>d\n e</pre></tr><tr><td></td><td>q</tr><tr><td><td></table>z"
    )

    assert read.text == "Cap\nA\tB\none two i j\tb c d e\n\tq\n\nz"


def test_tables_in_cells_are_a_layout_and_keep_their_paragraphs_and_rows() -> None:
    read = page(
        "<table><tr><td>nav<td><h1>H</h1><p>p<table><tr><td>1<td>2<tr><td>3<td>4</table><p>q</table>"
        "<table><tr><td><p>one<p>two</table>"
    )

    assert read.text == "nav\n\nH\n\np\n\n1\t2\n3\t4\n\nq\n\none\n\ntwo"


def test_drawings_give_their_words() -> None:
    read = page(
        "<p>a <svg><style>no</style><metadata>no</metadata><title>What it shows</title><text x=1>Nor<tspan dy=1>th"
        "</tspan><tspan x=0 dy=9>South</tspan></text><text>East</text></svg> b"
    )

    assert read.text == "a\nWhat it shows\nNorth\nSouth\nEast\nb"
    assert page("<svg xmlns='http://www.w3.org/2000/svg'><title>Map</title><text>sea</text></svg>").text == "Map\nsea"


def test_xhtml_is_xml_with_the_entities_of_html(tmp_path: Path) -> None:
    math = "<m:math><m:semantics><m:mi>E</m:mi><m:annotation>no</m:annotation></m:semantics></m:math>"
    body = f'<p>caf&eacute;&nbsp;noir <![CDATA[x < y & z]]> &unknown; &amp;lt;</p><a id="p1"/><p/>{math}'
    (tmp_path / "page.xhtml").write_text(XHTML.format("Title", body), "utf-8")

    read = read_office(tmp_path / "page.xhtml")

    assert (read.text, read.about.title) == ("café noir x < y & z &unknown; &lt;\n\nE", "Title")


def test_xhtml_that_is_not_well_formed_is_read_as_html() -> None:
    assert (
        page(XHTML.format("", "<p>one <b>two <![CDATA[x < y]]></p><p>&eacute;"), ".xhtml").text == "one two x < y\n\né"
    )


def test_entities_that_a_page_declares_are_not_expanded_and_read_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    doctype = (
        f'<!DOCTYPE html [<!ENTITY a "aaa"><!ENTITY b "&a;&a;"><!ENTITY c SYSTEM "file://{tmp_path}/secret.txt">]>'
    )
    markup = f'<?xml version="1.0"?>{doctype}<html xmlns="http://www.w3.org/1999/xhtml"><p>x &b; &c;</p></html>'

    assert page(markup, ".xhtml").text == "x &b; &c;"


def test_a_page_says_its_title_authors_and_description_once() -> None:
    head = "<title>T</title><meta name=description content='About  terns'><meta name=author content=Ann>"
    read = page(f"{head}<meta name=DC.creator content=Ben><meta property=og:description content=no><p>x")

    assert (read.about.title, read.about.author, read.about.subject) == ("T", "Ann; Ben", "About terns")
    assert read.about.over(read.text) == "T\n\nAnn; Ben\n\nAbout terns\n\nx"
    again = page(f"{head}<h1>T</h1><p>All about\nterns<p>About\nterns")
    assert again.about.over(again.text) == "Ann\n\nT\n\nAll about terns\n\nAbout terns"


def test_what_is_inside_the_file_and_not_read_is_said() -> None:
    read = page(
        f"<link rel=icon href={PICTURE}><p>a<img src={PICTURE}><img src='data:image/gif;base64,R0lGODlhAQ' "
        f"data-x={PICTURE}>"
        f"<svg><image xlink:href={PICTURE} /></svg><video src='data:video/mp4;base64,{'A' * 99}'></video>"
        f"<audio src='data:audio/ogg;base64,{'A' * 99}'></audio><object data='data:application/pdf;base64,{'A' * 99}'>"
        f"</object><iframe srcdoc='<img src={PICTURE}>'></iframe>"
    )

    assert read.unread == {"picture": 3, "film": 1, "sound": 1, "embedded document": 1}


def test_pages_inside_of_pages_are_read_to_some_depth() -> None:
    markup = "<p>inmost"
    for _ in range(8):
        markup = f'<iframe srcdoc="{markup.replace("&", "&amp;").replace(chr(34), "&quot;")}"></iframe>'

    assert page(markup).text == "inmost"
    deeper = page(f"<p>a<iframe srcdoc='{markup.replace('&', '&amp;')}'></iframe>")
    assert (deeper.text, deeper.unread) == ("a", {"embedded document": 1})


def test_deep_and_long_pages_take_time_in_proportion() -> None:
    assert page("<div>" * 200_000 + "a").text == "a"
    assert page("<table><tr><td>" * 20_000 + "a<td>b").text == "a\tb"
    assert len(page("<p>word</p>" * 100_000).text.split("\n\n")) == 100_000
    repeated = (
        "<!--",
        "<![CDATA[",
        "</p",
        "<ruby><rt>",
        "<meta name=description content=x>",
        "<pre>\n \n",
        "<tr><td>a<td>",
    )
    for part in repeated:
        begin = time.perf_counter()
        page(part * 30_000 + "a")
        assert time.perf_counter() - begin < 10, part


MARKDOWN = """---
title: Winter
author: [Ann Lee, Ben Ode]
---

# Birds

A *part*ly **bold**ed word, a [link](https://example.org/), H~2~O.[^n]

[^n]: A note.

Term
:   What it means.

| Bird | Count |
|------|------:|
| gull | 12    |

: Birds at sea

~~~ python
def f():
    return 1
~~~

- one
    1. nested

> Quoted
"""


def test_pages_of_pandoc_have_all_words(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    pypandoc.convert_text(MARKDOWN, "html5", "markdown", outputfile=str(path), extra_args=["-s"])

    read = read_office(path)

    assert (read.about.title, read.about.author) == ("Winter", "Ann Lee; Ben Ode")
    assert read.text == (
        "Winter\n\nAnn Lee\n\nBen Ode\n\nBirds\n\nA partly bolded word, a link, H2O. 1\n\nTerm\nWhat it means.\n\n"
        "Birds at sea\nBird\tCount\ngull\t12\n\ndef f():\n    return 1\n\none\nnested\n\nQuoted\n\nA note.↩︎"
    )


def test_without_lxml_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys; sys.modules['lxml'] = None\n"
        "from vlmsearch import MissingDependencyError\n"
        "from vlmsearch.media.office import read_bytes\n"
        "try: read_bytes(b'<p>x', '.html', 'page')\n"
        "except MissingDependencyError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)

    monkeypatch.chdir(tmp_path)
    assert done.stdout == f"web pages need lxml: {install_command('office')}\n"
