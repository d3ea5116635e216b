import random
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import resources
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps

from tests.support.odd_images import textured
from tests.support.paths import SHARED
from vlmsearch._util.extras import install_command
from vlmsearch.media.images import open_image
from vlmsearch.media.ocr import Line, boxes_text, read_text

_TEXT = (
    "harbour lantern bicycle market winter garden ticket station coffee morning "
    "library mountain museum bakery orchestra window village bridge summer painting"
)
WORDS = _TEXT.split()
VERA = resources.files("reportlab") / "fonts" / "Vera.ttf"  # which has the letters of Western Europe
TURNS = (0, 90, 180, 270)


@cache
def backgrounds() -> list[Image.Image]:
    """Photographs where there are some, drawn textures elsewhere."""
    photos = sorted((SHARED / "photos").glob("*.jpg"))[:40]
    return [Image.open(path).convert("RGB") for path in photos] or [textured(224, 224, seed) for seed in range(10)]


def sign(seed: int) -> tuple[Image.Image, list[str]]:
    """A photograph with four lines of text on it, and the words."""
    rng = random.Random(seed)
    image = rng.choice(backgrounds()).resize((672, 672))
    draw = ImageDraw.Draw(image)
    words = rng.sample(WORDS, 6)
    for number, line in enumerate([" ".join(words[:2]), " ".join(words[2:4]), words[4], words[5]]):
        font = ImageFont.load_default(size=rng.choice([28, 36, 48]))
        place = (rng.randrange(20, 140), 30 + 150 * number)
        draw.text(place, line, font=font, fill="white", stroke_width=1, stroke_fill="black")
    return image, words


def plain(text: str, size: tuple[int, int] = (400, 80), at: tuple[int, int] = (20, 20)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text(at, text, font=ImageFont.truetype(str(VERA), 32), fill="black")
    return image


def found_words(lines: list[Line]) -> list[str]:
    return " ".join(line.text for line in lines).lower().split()


@pytest.mark.slow
def test_words_over_photographs_are_read_whichever_way_the_picture_is_turned() -> None:
    found = dict.fromkeys(TURNS, 0)
    count, ordered = 4, 0
    for seed in range(count):
        image, words = sign(seed)
        for turn in TURNS:
            read = found_words(read_text(image.rotate(turn, expand=True)))
            found[turn] += sum(word in read for word in words)
            ordered += [word for word in read if word in words] == words

    assert {turn: hits / (6 * count) >= 0.95 for turn, hits in found.items()} == dict.fromkeys(TURNS, True), found
    assert ordered >= 0.8 * 4 * count  # in reading order, with not one word missing


@pytest.mark.slow
@pytest.mark.parametrize("orientation", range(1, 9))
def test_text_is_read_at_every_exif_orientation(orientation: int) -> None:
    image = plain("harbour lantern")
    undo = {2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}.get(orientation, 1)
    exif = Image.Exif()
    exif[0x0112] = undo
    stored = ImageOps.exif_transpose(_with(image, exif))
    exif[0x0112] = orientation
    data = BytesIO()
    stored.save(data, "JPEG", quality=95, exif=exif)

    upright = open_image(data.getvalue())
    (line,) = read_text(upright)

    assert upright.size == image.size
    assert line.text == "harbour lantern"
    assert_box(line.box, (16, 18, 258, 40))


def _with(image: Image.Image, exif: Image.Exif) -> Image.Image:
    data = BytesIO()
    image.save(data, "PNG", exif=exif)
    return Image.open(data)


def assert_box(box: tuple[int, int, int, int], around: tuple[int, int, int, int]) -> None:
    """The box of a line covers most of where it was drawn, and little else."""
    left, top = max(box[0], around[0]), max(box[1], around[1])
    right, bottom = min(box[0] + box[2], around[0] + around[2]), min(box[1] + box[3], around[1] + around[3])
    shared = max(right - left, 0) * max(bottom - top, 0)
    assert shared / (box[2] * box[3] + around[2] * around[3] - shared) > 0.6, (box, around)


@pytest.mark.parametrize("turn", TURNS)
def test_boxes_are_in_pixels_of_the_picture_as_it_is_given(turn: int) -> None:
    image = Image.new("RGB", (600, 400), "white")
    draw = ImageDraw.Draw(image)
    draw.text((50, 60), "first line", font=ImageFont.load_default(size=40), fill="black")
    draw.text((200, 250), "second", font=ImageFont.load_default(size=40), fill="black")
    drawn = [
        draw.textbbox(at, text, font=ImageFont.load_default(size=40))
        for at, text in (((50, 60), "first line"), ((200, 250), "second"))
    ]

    lines = read_text(image.rotate(turn, expand=True))

    assert [line.text for line in lines] == ["first line", "second"]
    assert all(line.confidence > 0.8 for line in lines)
    for line, (left, top, right, bottom) in zip(lines, drawn):
        x, y, width, height = map(round, (left, top, right - left, bottom - top))
        turned = {
            0: (x, y, width, height),
            90: (y, 600 - x - width, height, width),
            180: (600 - x - width, 400 - y - height, width, height),
            270: (400 - y - height, x, height, width),
        }[turn]
        assert_box(line.box, (turned[0] - 6, turned[1] - 6, turned[2] + 12, turned[3] + 12))


def test_lines_side_by_side_are_read_from_left_to_right() -> None:
    image = plain("left column", (900, 300), (30, 40))
    ImageDraw.Draw(image).text((550, 43), "right column", font=ImageFont.load_default(size=32), fill="black")
    ImageDraw.Draw(image).text((30, 180), "below", font=ImageFont.load_default(size=32), fill="black")

    assert [line.text for line in read_text(image)] == ["left column", "right column", "below"]


@pytest.mark.slow
def test_large_long_and_tiny_pictures_are_read() -> None:
    large = plain("harbour lantern").resize((4000, 800))
    (line,) = read_text(large)
    assert {"harbour", "lantern"} <= set(line.text.split())
    assert_box(line.box, (180, 200, 2500, 360))

    ribbon = plain("harbour lantern market", (3000, 60), (1500, 10))
    assert [line.text for line in read_text(ribbon)] == ["harbour lantern market"]
    assert [line.text for line in read_text(ribbon.rotate(90, expand=True))] == ["harbour lantern market"]

    assert read_text(Image.new("RGB", (7, 500))) == []
    assert read_text(Image.new("RGB", (16, 16), "white")) == []


def test_a_picture_without_text_has_none() -> None:
    assert read_text(Image.new("RGB", (300, 200), "grey")) == []
    assert read_text(Image.fromarray(np.full((64, 64), 255, np.uint8))) == []


def test_languages_in_latin_letters_are_read() -> None:
    texts = ["Zwölf Boxkämpfer jagen", "Voix ambiguë d'un cœur", "pingüino señal", "Não há avião"]
    image = Image.new("RGB", (600, 80 * len(texts)), "white")
    for number, text in enumerate(texts):
        image.paste(plain(text, (600, 80)), (0, 80 * number))
    assert found_words(read_text(image)) == " ".join(texts).lower().split()


@pytest.mark.slow
def test_threads_share_one_engine_and_read_the_same() -> None:
    images = [sign(seed)[0] for seed in range(3)]
    alone = [read_text(image) for image in images]
    together: dict[int, list[Line]] = {}

    def read(number: int) -> None:
        together[number] = read_text(images[number % 3])

    threads = [threading.Thread(target=read, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [together[number] for number in range(6)] == alone * 2


def test_boxes_are_written_as_metadata() -> None:
    lines = [Line("a", (1, 2, 3, 4), 0.9), Line("b", (5, 6, 7, 8), 0.8)]

    assert boxes_text(lines) == "1,2,3,4;5,6,7,8"


@pytest.mark.slow
def test_nothing_is_downloaded() -> None:
    program = (
        "import socket\n"
        "def refuse(*_, **__): raise AssertionError('a connection')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from PIL import Image, ImageDraw, ImageFont\n"
        "image = Image.new('RGB', (300, 80), 'white')\n"
        "ImageDraw.Draw(image).text((20, 20), 'market', font=ImageFont.load_default(size=32), fill='black')\n"
        "from vlmsearch.media.ocr import read_text\n"
        "print(*[line.text for line in read_text(image)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "market\n"
    assert done.stderr == ""


def test_without_rapidocr_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['rapidocr'] = None\n"
        "from PIL import Image\n"
        "from vlmsearch import MissingDependencyError\n"
        "from vlmsearch.media.ocr import read_text\n"
        "try: read_text(Image.new('RGB', (99, 99)))\n"
        "except MissingDependencyError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"reading text in pictures needs RapidOCR: {install_command('ocr')}\n"


@pytest.mark.slow
def test_reading_costs_little_more_than_rapidocr_alone() -> None:
    import rapidocr

    settings = {"Global.log_level": "error", "EngineConfig.onnxruntime.intra_op_num_threads": 1}
    bare = rapidocr.RapidOCR(params=settings)
    images = [sign(seed)[0].rotate(90 * seed, expand=True) for seed in range(2)]
    read_text(images[0])

    def seconds(read: object) -> float:
        start = time.process_time()
        for image in images:
            read(image)  # type: ignore[operator]
        return time.process_time() - start

    pairs = [
        (seconds(lambda image: bare(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]))), seconds(read_text))
        for _ in range(2)
    ]
    assert (
        min(own for _, own in pairs) <= min(alone for alone, _ in pairs) / 0.75
    )  # 0.9 and more where nothing else runs
