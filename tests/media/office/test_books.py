import zipfile
from collections.abc import Mapping
from pathlib import Path

import pypandoc
import pytest
from ebooklib import epub
from PIL import Image

from vlmsearch import InvalidInputError
from vlmsearch.media.office import read_office
from vlmsearch.media.office.content import Content

CONTAINER = (
    '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
    'full-path="The%20book/all.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
XHTML = (
    '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/></head><body><p>{}</p></body></html>'
)
PAGE, SVG = "application/xhtml+xml", "image/svg+xml"


def book(path: Path, items: str, spine: str, members: Mapping[str, str], about: str = "") -> Path:
    """Write a book with an OPF in a folder; ``items`` and ``spine`` are its lists."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr(
            "The book/all.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/">{about}</metadata>'
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
        )
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def item(id: str, href: str, kind: str = PAGE, more: str = "") -> str:
    return f'<item id="{id}" href="{href}" media-type="{kind}" {more}/>'


def itemrefs(*ids: str) -> str:
    return "".join(f'<itemref idref="{id}"/>' for id in ids)


@pytest.mark.parametrize(
    ("member", "href"),
    [
        ("The book/one.xhtml", "one.xhtml"),
        ("The book/chapter 1.xhtml", "chapter%201.xhtml"),
        ("The book/chapter 1.xhtml", "chapter 1.xhtml"),
        ("The book/a+b&c.xhtml", "a+b%26c.xhtml"),
        ("The book/Größe.xhtml", "Gr%C3%B6%C3%9Fe.xhtml"),
        ("The book/Gro\u0308ße.xhtml", "Größe.xhtml"),
        ("The book/a%20b.xhtml", "a%20b.xhtml"),
        ("The book/One.XHTML", "one.xhtml#part?x"),
        ("Text/one.xhtml", "../Text/./one.xhtml"),
        ("The book\\one.xhtml", "one.xhtml"),
    ],
)
def test_references_of_pages_are_urls(tmp_path: Path, member: str, href: str) -> None:
    read = read_office(book(tmp_path / "a.epub", item("a", href), itemrefs("a"), {member: XHTML.format("dunlin")}))

    assert (read.text, read.unread) == ("dunlin", {})


def test_pages_come_in_the_order_of_the_spine_and_then_the_others(tmp_path: Path) -> None:
    items = item("note", "n.xhtml") + item("two", "2.xhtml") + item("one", "1.xhtml") + item("map", "m.svg", SVG)
    items += item("cover", "c.svg", SVG) + item("old", "3.htm", "text/html")
    items += item("mistaken", "4.htm", "text/plain")
    texts = {"4.htm": "Last", "n.xhtml": "A note", "2.xhtml": "Second", "1.xhtml": "First", "3.htm": "Old"}
    members = {f"The book/{name}": XHTML.format(text) for name, text in texts.items()}
    drawing = '<svg xmlns="http://www.w3.org/2000/svg"><text>Northern sea</text></svg>'
    members |= {"The book/m.svg": drawing, "The book/c.svg": drawing}

    read = read_office(book(tmp_path / "a.epub", items, itemrefs("one", "map", "two", "one"), members))

    assert read.text == "First\n\nNorthern sea\n\nSecond\n\nA note\n\nOld\n\nLast"
    assert read.unread == {"picture": 1}


def test_what_is_not_read_is_said_and_what_nobody_misses_is_not(tmp_path: Path) -> None:
    items = item("a", "a.xhtml") + item("gone", "gone.xhtml") + item("web", "https://example.org/a.mp3", "audio/mpeg")
    names = ["a.png", "b.mp3", "c.mp4", "d.pdf", "e.bin", "s.css", "f.otf", "g.woff2", "p.js", "t.smil", "l.pls"]
    names += ["page-map.xml", ".DS_Store"]
    members = {f"The book/{name}": "x" for name in names} | {"META-INF/signatures.xml": "x"}
    members["The book/a.xhtml"] = XHTML.format(f'x<img src="data:image/png;base64,{"A" * 99}" alt=""/>')

    read = read_office(book(tmp_path / "a.epub", items, itemrefs("a", "lost"), members))

    assert read.unread == {"film": 1, "missing part": 2, "other part": 2, "picture": 2, "sound": 1}


def test_a_damaged_page_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    items = item("a", "a.xhtml") + item("b", "b.xhtml") + item("c", "c.xhtml")
    members = {f"The book/{name}.xhtml": XHTML.format(f"Page {name}") for name in ("a", "b", "unlisted")}
    members["The book/c.xhtml"] = "\x00\x01\x02" * 100
    path = book(tmp_path / "a.epub", items, itemrefs("a", "b", "c"), members)
    path.write_bytes(path.read_bytes().replace(b"Page b", b"Page x"))  # its checksum is another

    assert read_office(path).text == "Page a"
    assert read_office(path).unread == {"page": 3}


def test_tables_of_contents_are_read_where_they_say_more(tmp_path: Path) -> None:
    nav = XHTML.format(
        '<nav><a>One</a><br/><a>The end</a></nav><nav role="doc-pagelist" type="page-list"><a>ix</a></nav>'
    )
    ncx = (
        '<?xml version="1.0"?><ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>Winter</text></docTitle>'
        "<navMap><navPoint><navLabel><text>One</text></navLabel></navPoint><navPoint><navLabel><text>The end</text>"
        "</navLabel></navPoint></navMap><pageList><pageTarget><navLabel><text>1</text></navLabel></pageTarget></pageList></ncx>"
    )
    items = item("a", "a.xhtml") + item("nav", "nav.xhtml", more='properties="nav"')
    items += item("ncx", "toc.ncx", "application/x-dtbncx+xml")
    members = {"The book/a.xhtml": XHTML.format("one"), "The book/nav.xhtml": nav, "The book/toc.ncx": ncx}

    path = book(tmp_path / "a.epub", items, itemrefs("nav", "a"), members, "<dc:title>Winter</dc:title>")

    assert (read_office(path).text, read_office(path).unread) == ("one\n\nThe end", {})


ENCRYPTION = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
    'xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="{}"/><CipherData><CipherReference '
    'URI="{}"/></CipherData></EncryptedData></encryption>'
)


@pytest.mark.parametrize(
    ("algorithm", "member", "is_read"),
    [
        ("http://www.idpf.org/2008/embedding", "The%20book/f.otf", True),
        ("http://ns.adobe.com/pdf/enc#RC", "The%20book/f.otf", True),
        ("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "The%20book/f.otf", True),
        ("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "The%20book/a.xhtml", False),
    ],
)
def test_hidden_fonts_are_no_protection_and_encrypted_pages_are(
    tmp_path: Path, algorithm: str, member: str, is_read: bool
) -> None:
    members = {"The book/a.xhtml": XHTML.format("x"), "The book/f.otf": "x"}
    members["META-INF/encryption.xml"] = ENCRYPTION.format(algorithm, member)
    path = book(tmp_path / "a.epub", item("a", "a.xhtml"), itemrefs("a"), members)

    if is_read:
        assert (read_office(path).text, read_office(path).unread) == ("x", {})
    else:
        with pytest.raises(InvalidInputError, match=r"a\.epub' is protected") as caught:
            read_office(path)
        assert caught.value.code == "unsupported"


def test_a_book_without_its_container_is_read_by_its_description(tmp_path: Path) -> None:
    whole = book(tmp_path / "a.epub", item("a", "a.xhtml"), itemrefs("a"), {"The book/a.xhtml": XHTML.format("x")})
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(tmp_path / "b.epub", "w") as new:
        for name in old.namelist()[2:]:
            new.writestr(name, old.read(name))
    with zipfile.ZipFile(tmp_path / "c.epub", "w") as new:
        new.writestr("a.xhtml", "x")

    assert read_office(tmp_path / "b.epub").text == "x"
    with pytest.raises(InvalidInputError, match="names no pages") as caught:
        read_office(tmp_path / "c.epub")
    assert caught.value.code == "corrupt"


def test_books_of_ebooklib_have_all_words_and_authors(tmp_path: Path) -> None:
    written = epub.EpubBook()
    written.set_identifier("x")
    written.set_title("Winter")
    written.set_language("en")
    written.add_author("Ann Lee", role="aut", uid="ann")
    written.add_author("Ben Ode", role="ill", uid="ben")
    table = "<table><tr><td><p>gull</p><p>tern</p></td><td>12</td></tr></table>"
    first = epub.EpubHtml(
        title="Sea", file_name="Text/chapter 1.xhtml", content=f"<h1>Sea</h1><p>A <i>g</i>ull.</p>{table}"
    )
    second = epub.EpubHtml(title="Land", file_name="Text/2.xhtml", content="<h1>Land</h1><dl><dt>a</dt><dd>b</dd></dl>")
    note = epub.EpubHtml(title="Note", file_name="note.xhtml", content="<aside><p>A note</p></aside>")
    (tmp_path / "a.jpg").write_bytes(b"x")
    for part in (first, second, note, epub.EpubNcx(), epub.EpubNav(), epub.EpubItem(file_name="s.css", content=b"p{}")):
        written.add_item(part)
    written.add_item(epub.EpubImage(uid="p", file_name="p.png", media_type="image/png", content=b"x"))
    written.toc, written.spine = (
        [first, second, epub.Link("2.xhtml#b", "Beyond", "b")],
        ["nav", first, second, (note, "no")],
    )
    epub.write_epub(str(tmp_path / "a.epub"), written)

    read = read_office(tmp_path / "a.epub")

    assert (read.about.title, read.about.author, read.unread) == ("Winter", "Ann Lee; Ben Ode", {"picture": 1})
    assert read.text == "Sea\n\nA gull.\n\ngull tern\t12\n\nLand\n\na\nb\n\nA note\n\nBeyond"


@pytest.mark.parametrize("version", ["epub2", "epub3"])
def test_books_of_pandoc_have_all_words_in_order(tmp_path: Path, version: str) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "p.png")
    markdown = (
        "---\ntitle: Winter\nauthor: [Ann Lee, Ben Ode]\nlang: en\n---\n\n# Sea\n\nA *g*ull.[^n]\n\n[^n]: The note\n\n"
        f"![A tern]({tmp_path}/p.png)\n\n# Land\n\nTerm\n:   Means\n\n| a | b |\n|---|---|\n| c | d |\n\n: Birds\n"
    )
    path = tmp_path / "a.epub"
    pypandoc.convert_text(markdown, version, "markdown", outputfile=str(path))

    read: Content = read_office(path)
    lines = [line for line in read.text.splitlines() if line]
    words = ["Sea", "A gull. 1", "A tern", "The note", "Land", "Term", "Means", "Birds", "a\tb", "c\td"]

    assert (read.about.title, read.about.author, read.unread) == ("Winter", "Ann Lee; Ben Ode", {"picture": 1})
    positions = [next(n for n, line in enumerate(lines) if line.endswith(word)) for word in words]
    assert positions == sorted(positions)
