"""The application on LangChain among the examples."""

from __future__ import annotations

import base64
import runpy
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage

from tests.support.cli import script
from tests.support.paths import ROOT
from vlmsearch import Pipeline
from vlmsearch.demo.scenes import make_scene

PROGRAM = ROOT / "examples" / "langchain_app.py"


class ListeningChatModel(FakeListChatModel):
    """Say what it is told to, and keep what it was asked."""

    asked: list[BaseMessage] = []  # noqa: RUF012 - pydantic copies it

    def _call(self, messages: list[BaseMessage], *args: Any, **options: Any) -> str:
        self.asked.extend(messages)
        return super()._call(messages, *args, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(4):
        make_scene(number).draw(128).save(photos / f"{number}.png")
    (photos / "note.txt").write_text("The dog in the snow is called Laika.")
    return photos


def test_it_answers_from_pictures_and_notes(folder: Path) -> None:
    for question, expected in (
        (make_scene(2).caption(), "2.png"),
        ("What is the dog called?", "The dog in the snow is called Laika."),
    ):
        pictures = 1 if expected.endswith(".png") else 0
        printed = script(PROGRAM, "photos", question, "-k", "1", cwd=folder.parent)
        assert printed == f"[1] {expected} ({pictures} pictures)\n"


def test_a_chat_model_sees_the_pictures(folder: Path) -> None:
    make_chain = runpy.run_path(str(PROGRAM))["make_chain"]
    model = ListeningChatModel(responses=["On the left [1]."])
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        pipeline.index(folder)
        answer = make_chain(pipeline, model, k=1).invoke(make_scene(2).caption())
    assert answer.content == "On the left [1]."
    [message] = model.asked
    question, source, picture = message.content_blocks
    assert question["type"] == source["type"] == "text"
    assert source["text"] == "[1] 2.png"
    assert picture["type"] == "image"
    with PIL.Image.open(BytesIO(base64.b64decode(picture["base64"]))) as seen:
        assert seen.size == (128, 128)
        assert seen.resize((1, 1)).getpixel((0, 0)) == pytest.approx(
            make_scene(2).draw(128).resize((1, 1)).getpixel((0, 0)), abs=4
        )
