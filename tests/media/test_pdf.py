"""Pages of PDF files, drawn here, and every way that one cannot be read."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reportlab.lib.pdfencrypt import StandardEncryption

from tests.support.pdf_files import A4, write_pdf, write_scan
from vlmsearch import InvalidInputError
from vlmsearch.demo.scenes import make_scene
from vlmsearch.media import pdf
from vlmsearch.media.about import About
from vlmsearch.media.images import file_of, image_size, open_image, read_image, thumbnail
from vlmsearch.media.limits import ImageLimits


def pages(path: Path) -> list[pdf.Page]:
    found = list(pdf.read_pages(path))
    assert all(isinstance(page, pdf.Page) for page in found), found
    return [page for page in found if isinstance(page, pdf.Page)]


def code_of(path: Path) -> str:
    with pytest.raises(InvalidInputError) as caught:
        list(pdf.read_pages(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.code


def test_a_page_has_its_text_and_its_image(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["a red dog\nin the snow", "Zürich, 5 €"], title="Two pages")
    first, second = pages(path)
    assert (first.number, first.text) == (1, "a red dog\nin the snow")
    assert (second.number, second.text) == (2, "Zürich, 5 €")
    image = open_image(first.image)
    assert image.size == (1131, 1600)
    red, green, blue = np.asarray(image)[800, 565]
    assert red > 180
    assert max(green, blue) < 60
    assert np.asarray(image)[5, 5].tolist() == [255, 255, 255]
    assert pdf.describe(path) == (2, About("Two pages"), {})


def test_an_image_path_names_a_page_or_a_region_of_it(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one", "two"])
    second = Path(f"{path}#page=2")
    assert read_image(second) == pages(path)[1].image
    assert image_size(second) == (1131, 1600)
    assert file_of(second) == path
    region = open_image(Path(f"{second}#xywh=100,700,50,2000"))
    assert region.size == (50, 900)
    whole = np.asarray(open_image(second))
    assert np.array_equal(np.asarray(region), whole[700:1600, 100:150])
    assert Image.open(BytesIO(thumbnail(second, edge=64))).size == (45, 64)


def test_a_file_that_has_just_that_name_is_read_as_it_is(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["one"])
    odd = tmp_path / "a.pdf#page=1"
    Image.new("RGB", (7, 5)).save(odd, "PNG")
    assert image_size(odd) == (7, 5)
    assert file_of(odd) == odd


@pytest.mark.parametrize("fragment", ["#xywh=0,0,0,5", "#page=0", "#page=01", "#page=1&x", "#t=1", "#page=1 "])
def test_what_is_nearly_a_fragment_names_a_file_that_is_not_there(tmp_path: Path, fragment: str) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one"])
    with pytest.raises(InvalidInputError, match="No such file") as caught:
        read_image(Path(f"{path}{fragment}"))
    assert caught.value.code == "unreadable"


@pytest.mark.parametrize(
    ("fragment", "code"),
    [("#page=3", "invalid"), ("#page=1#xywh=5000,0,10,10", "invalid"), ("#t=1.000", "unsupported")],
)
def test_a_part_that_is_not_there_is_named(tmp_path: Path, fragment: str, code: str) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one", "two"])
    with pytest.raises(InvalidInputError, match=r"a\.pdf") as caught:
        read_image(Path(f"{path}{fragment}"))
    assert caught.value.code == code


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_a_rotated_page_is_drawn_as_it_is_shown(tmp_path: Path, rotate: int) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["a text at the top"], rotate=rotate)
    [page] = pages(path)
    assert page.text == "a text at the top"
    image = np.asarray(open_image(page.image).convert("L"))
    upright = np.rot90(image, rotate // 90)  # a page is turned clockwise
    assert upright.shape == (1600, 1131)
    assert (upright[:250] < 128).any()
    assert not (upright[-250:] < 128).any()


@pytest.mark.parametrize(
    ("size", "shown"), [((20_000, 20_000), (1600, 1600)), ((14_400, 3), (1600, 1)), ((3, 3), (13, 13))]
)
def test_a_page_of_absurd_size_is_drawn_no_larger_than_others(
    tmp_path: Path, size: tuple[int, int], shown: tuple[int, int]
) -> None:
    [page] = pages(write_pdf(tmp_path / "a.pdf", ["x"], size=size))
    assert open_image(page.image).size == shown


def test_a_page_that_exceeds_the_limits_is_rejected_and_the_others_are_read(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["x"])
    [(number, exc)] = [page for page in pdf.read_pages(path, ImageLimits(pixels=1000)) if isinstance(page, tuple)]
    assert (number, exc.code) == (1, "too_large")


def test_a_scan_has_no_text(tmp_path: Path) -> None:
    scene = make_scene(3).draw(300)
    [page] = pages(write_scan(tmp_path / "scan.pdf", [scene]))
    assert page.text == ""
    drawn = np.asarray(open_image(page.image).resize((60, 60)), np.int16)
    assert np.abs(drawn - np.asarray(scene.convert("RGB").resize((60, 60)), np.int16)).mean() < 10


def test_a_password_is_told_from_damage(tmp_path: Path) -> None:
    locked = StandardEncryption("secret", ownerPassword="other", strength=128)
    assert code_of(write_pdf(tmp_path / "locked.pdf", ["x"], encrypt=locked)) == "unsupported"
    owned = StandardEncryption("", ownerPassword="other", canCopy=0, strength=128)
    assert [page.text for page in pages(write_pdf(tmp_path / "owned.pdf", ["for all"], encrypt=owned))] == ["for all"]


def test_a_broken_file_is_rejected_with_its_code(tmp_path: Path) -> None:
    data = write_pdf(tmp_path / "a.pdf", ["x"] * 20).read_bytes()

    def written(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    assert code_of(written("empty.pdf", b"")) == "empty"
    assert code_of(written("html.pdf", b"<html>no PDF</html>")) == "truncated"
    assert code_of(written("noise.pdf", b"%PDF-1.7\n" + os.urandom(3000) + b"\n%%EOF")) == "corrupt"
    assert code_of(tmp_path / "gone.pdf") == "unreadable"
    (tmp_path / "folder.pdf").mkdir()
    assert code_of(tmp_path / "folder.pdf") == "unreadable"
    os.mkfifo(tmp_path / "pipe.pdf")
    assert code_of(tmp_path / "pipe.pdf") == "unreadable"
    for cut in range(0, len(data), len(data) // 40):  # PDFium rebuilds what it can
        try:
            found = list(pdf.read_pages(written("cut.pdf", data[:cut])))
        except InvalidInputError as exc:
            assert exc.code in {"empty", "truncated", "corrupt"}  # noqa: PT017
        else:
            assert len(found) <= 20


def test_the_open_file_follows_its_path(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["x"])
    image = read_image(Path(f"{path}#page=1"))
    write_pdf(path, ["x", "y"], size=(300, 300))
    assert image_size(Path(f"{path}#page=2")) == (1250, 1250)
    assert read_image(Path(f"{path}#page=1")) != image
    others = [write_pdf(tmp_path / f"{i}.pdf", ["x"], size=(100 + i, 100)) for i in range(10)]
    sizes = [image_size(Path(f"{other}#page=1"))[0] for other in [*others, *others]]
    assert sizes == sizes[:10] * 2


def test_threads_get_what_one_thread_gets(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [f"page {i}" for i in range(12)])
    alone = {page.number: page for page in pages(path)}
    begin = threading.Barrier(4)

    def read(turn: int) -> bool:
        begin.wait(10)
        numbers = [(turn + i) % 12 + 1 for i in range(12)]  # each in a child process, where PDFium has one thread
        return all(read_image(Path(f"{path}#page={n}")) == alone[n].image for n in numbers)

    with ThreadPoolExecutor(4) as workers:
        assert all(workers.map(read, range(4)))


def test_a_form_is_drawn_with_what_is_filled_in(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    drawn = []
    for value in ("", "FILLED IN"):
        canvas = Canvas(str(tmp_path / "form.pdf"), pagesize=A4, invariant=1)
        canvas.drawString(72, 72, "a form")
        canvas.acroForm.textfield(name="a", value=value, x=100, y=400, width=300, height=60)
        canvas.save()
        [page] = pages(tmp_path / "form.pdf")
        drawn.append(np.asarray(open_image(page.image).convert("L")))
    assert (drawn[1] < 128).sum() > (drawn[0] < 128).sum() + 200
