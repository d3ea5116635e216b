"""Pictures through the real Triton to models with the tensors of TensorRT-LLM's llmapi model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.triton_server import Running
from vlmsearch import Answer, Document, Picture, PictureOptions, PicturesRefusedError, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.triton.generator import TritonGenerator


def open_model(texts_server: Running, model: str) -> TritonGenerator:
    return TritonGenerator(f"//127.0.0.1:{texts_server.ends.grpc}/{model}")


def picture(width: int, height: int) -> Picture:
    return Picture(make_scene(width).draw(300).resize((width, height)))


@pytest.mark.parametrize(("model", "pieces"), [("streaming", 2), ("unary", 1)])
def test_a_model_decodes_the_pictures_that_are_sent(texts_server: Running, model: str, pieces: int) -> None:
    with open_model(texts_server, model) as generator:
        assert generator.max_pictures == 16
        parts: list[str | Picture] = ["[1] a\n", picture(300, 200), "\n[2] b\n", picture(64, 70), "\nQuestion"]
        text = list(generator.stream_parts(parts))
        assert "".join(text) == "It has 2 pictures in 2 places: [(300, 200), (64, 70)] [1]."
        assert len(text) == pieces
        assert "".join(generator.stream_parts(["a ", picture(3000, 1500)])) == (
            "It has 1 pictures in 1 places: [(2048, 1024)] [1]."
        )
        assert generator.generate("a") == "It has 0 pictures in 0 places: [] [1]."
        with pytest.raises(PicturesRefusedError, match="At most 3 image") as refused:
            list(generator.stream_parts([picture(64, 64)] * 4))
        assert refused.value.at_most == generator.max_pictures == 3


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("streaming", "It has 3 pictures in 3 places: [(128, 128), (128, 128), (128, 128)] [1]."),
        ("unary", "It has 3 pictures in 3 places: [(128, 128), (128, 128), (128, 128)] [1]."),
        ("ignoring", "It has 0 pictures in 0 places: [] [1]."),
        ("blind", "It has 0 pictures in 0 places: [] [1]."),
    ],
)
def test_an_answer_says_how_its_sources_were_read(
    texts_server: Running, model: str, expected: str, tmp_path: Path
) -> None:
    generator = f"triton://127.0.0.1:{texts_server.ends.grpc}/{model}"
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=generator) as pipeline:
        for number in range(4):
            make_scene(number).draw(128).save(tmp_path / f"{number}.png")
            caption = make_scene(number).caption() if number == 3 else None
            pipeline.add(Document(str(number), image=tmp_path / f"{number}.png", text=caption))
        for _ in range(2):
            answer = pipeline.ask("a red star", min_score=0.0, pictures=PictureOptions(limit=4))
            assert isinstance(answer, Answer)
            assert answer.text == expected
            assert [citation.number for citation in answer.citations] == [1]
            shown = 3 if "3 pictures" in expected else 0
            for place, match in enumerate(answer.matches):
                without = "text" if match.document.text else "neither"
                seen = "both" if match.document.text else "picture"
                assert answer.read_as[match.document.id] == (seen if place < shown else without)
