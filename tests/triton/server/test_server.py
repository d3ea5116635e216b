"""A real Triton server: what its models answer, and what they survive."""

import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import PIL.Image
import pytest
from tritonclient.utils import InferenceServerException

from tests.support.odd_images import VAST_WEBP
from tests.support.triton_scenes import SEED, picture
from tests.support.triton_server import Running
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.encoders.triton import TritonEncoder
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import ImageLimits
from vlmsearch.registry import open_encoder


def test_images_texts_and_both(triton: Running, pictures: list[bytes], captions: list[str], local: OnnxEncoder) -> None:
    texts = [caption.encode() for caption in captions[:7]]
    images = local.encode_images(pictures[:7])["clip"]
    by_text = local.encode_texts(captions[:7])
    found = triton.ask(["CLIP_IMAGE", "IMAGE_STATUS"], IMAGE=pictures[:7])
    assert np.array_equal(found["CLIP_IMAGE"], images)
    assert not any(found["IMAGE_STATUS"][:, 0])
    both = triton.ask(IMAGE=pictures[:7], TEXT=texts)
    assert set(both) == {"CLIP_IMAGE", "IMAGE_STATUS", "CLIP_TEXT", "CLIP_TOKENS", "MINILM", "MINILM_TOKENS"}
    assert np.array_equal(both["CLIP_IMAGE"], images)
    for name, space in (("CLIP_TEXT", "clip"), ("MINILM", "minilm")):
        alone = triton.ask([name], TEXT=texts)
        assert set(alone) == {name}
        assert np.allclose(alone[name], by_text[space], atol=1e-5)
        assert np.allclose(both[name], by_text[space], atol=1e-5)


def test_models_import_the_installed_library_wherever_the_server_was_started(triton: Running) -> None:
    assert Path(f"/proc/{triton.server.pid}/cwd", "vlmsearch.py").is_file()
    with triton.client() as client:
        assert all(client.is_model_ready(name) for name in ("clip_image", "image_preprocess", "text_tokenize"))


def test_what_is_not_asked_for_is_not_computed(triton: Running, pictures: list[bytes]) -> None:
    def counts() -> dict[str, int]:
        with triton.client() as client:
            models = client.get_inference_statistics().model_stats
        return {model.name: model.inference_count for model in models}

    def computed(outputs: list[str]) -> set[str]:
        before = counts()
        triton.ask(outputs, IMAGE=pictures[:2], TEXT=[b"a star", b"two rings"])
        found, later = before, counts()
        while later == before or later != found:  # counted a little after the answer
            time.sleep(0.2)
            found, later = later, counts()
        return {name for name, count in later.items() if count > before[name]} - {"vlm", "text_tokenize"}

    assert computed(["CLIP_IMAGE"]) == {"image_preprocess", "clip_image"}
    assert computed(["IMAGE_STATUS"]) == {"image_preprocess"}
    assert computed(["MINILM"]) == {"minilm"}
    assert computed(["CLIP_TEXT", "CLIP_TOKENS"]) == {"clip_text"}
    assert computed(["MINILM_TOKENS"]) == set()


@pytest.mark.parametrize("count", [1, 7, 300])
@pytest.mark.parametrize("options", ["", "?preprocess=client"])
def test_the_encoder_gives_the_vectors_of_the_process(
    triton: Running,
    pictures: list[bytes],
    captions: list[str],
    local: OnnxEncoder,
    options: str,
    count: int,
) -> None:
    with open_encoder(triton.url + options) as encoder:
        assert (encoder.fingerprint, encoder.spaces) == (local.fingerprint, local.spaces)
        assert encoder.relevance == local.relevance
        images = encoder.encode_images(pictures[:count])
        texts = encoder.encode_texts(captions[:count])
    assert list(images) == ["clip"]
    assert np.array_equal(images["clip"], local.encode_images(pictures[:count])["clip"])
    expected = local.encode_texts(captions[:count])
    assert list(texts) == list(expected) == ["clip", "minilm"]
    for space, vectors in expected.items():
        assert np.allclose(texts[space], vectors, atol=1e-5)


def big(size: int) -> bytes:
    return b"\xff\xd8\xff" + bytes(size)


MALFORMED = {
    "image of 64 MB": ({"IMAGE": [big(64 * 2**20)]}, ["CLIP_IMAGE"], "too_large"),
    "no image": ({"IMAGE": [b"nothing"]}, ["CLIP_IMAGE"], "image 0: unsupported"),
    "truncated image": ({"IMAGE": [picture(0), picture(1)[:700]]}, ["CLIP_IMAGE"], "image 1: truncated"),
    "empty image": ({"IMAGE": [b""]}, ["CLIP_IMAGE"], "empty"),
    "two of 46 bytes that claim gigabytes": ({"IMAGE": [VAST_WEBP] * 2}, ["CLIP_IMAGE"], "image 0: too_large"),
    "bomb": ({"IMAGE": [b"P6 60000 60000 255\n"]}, ["CLIP_IMAGE"], "too_large"),
    "not UTF-8": ({"TEXT": [b"\xff\xfe"]}, ["CLIP_TEXT"], "not UTF-8"),
    "numbers for text": ({"TEXT": np.zeros((2, 1), np.float32)}, ["MINILM"], "expects 'BYTES'"),
    "two columns": ({"TEXT": np.full((2, 2), b"a", np.object_)}, ["MINILM"], "unexpected shape"),
    "too many": ({"TEXT": [b"a"] * 65}, ["MINILM"], "batch-size must be <= 64"),
    "no items": ({"IMAGE": []}, ["CLIP_IMAGE"], "IMAGE"),
    "nothing": ({}, ["CLIP_IMAGE"], "0 inputs"),
    "nothing, for all": ({}, [], "0 inputs"),
    "image for text": ({"IMAGE": [picture(0)]}, ["CLIP_TEXT"], "missing required input"),
    "text for image": ({"TEXT": [b"a"]}, ["CLIP_IMAGE"], "no IMAGE: name .* CLIP_TEXT, CLIP_TOKENS, MINILM, MINILM_T"),
    "image for all": ({"IMAGE": [picture(0)]}, [], "missing required input"),
    "text for all": ({"TEXT": [b"a", b"b"]}, [], "the request has no IMAGE: name the outputs that you want, of CLIP_T"),
    "unlike numbers": ({"IMAGE": [picture(0)], "TEXT": [b"a", b"b"]}, [], "batch size does not match"),
    "no such output": ({"TEXT": [b"a"]}, ["NOTHING"], "unexpected inference output"),
    "no such input": ({"WHAT": [b"a"]}, ["MINILM"], "WHAT"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_are_answered_with_an_error(triton: Running, case: str, pictures: list[bytes]) -> None:
    inputs, outputs, message = MALFORMED[case]
    with pytest.raises(InferenceServerException, match=message):
        triton.ask(outputs, **inputs)  # type: ignore[arg-type]
    assert triton.ask(["CLIP_IMAGE"], IMAGE=pictures[:1])["CLIP_IMAGE"].shape == (1, 64)


def post(triton: Running, verb: str, body: object) -> tuple[int, str]:
    """What the HTTP endpoint answers."""
    address = f"http://127.0.0.1:{triton.ends.http}/v2/models/vlm/{verb}"
    answer = httpx.post(address, json=body, timeout=60)
    return answer.status_code, answer.text


def test_a_text_alone_over_http_names_its_outputs(triton: Running) -> None:
    text = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["a star"]}
    status, body = post(triton, "infer", {"inputs": [text], "outputs": [{"name": "MINILM"}]})
    assert (status, json.loads(body)["outputs"][0]["shape"]) == (200, [1, 96])
    for verb, request in (("infer", {"inputs": [text]}), ("generate", {"TEXT": "a star"})):
        status, body = post(triton, verb, request)
        assert status == 400
        assert "the request has no IMAGE" in body
        assert "of CLIP_TEXT, CLIP_TOKENS, MINILM, MINILM_TOKENS" in body


RAW = {
    "ids out of range": ("clip_text", {"input_ids": np.full((2, 8), 99_999), "attention_mask": np.ones((2, 8))}),
    "too long": ("clip_text", {"input_ids": np.full((2, 500), 5), "attention_mask": np.ones((2, 500))}),
    "unlike lengths": ("minilm", {"input_ids": np.full((2, 8), 5), "attention_mask": np.ones((2, 9))}),
}


@pytest.mark.parametrize("case", RAW)
def test_a_tower_refuses_what_it_cannot_compute(triton: Running, case: str) -> None:
    model, arrays = RAW[case]
    with pytest.raises(InferenceServerException):
        triton.ask(model=model, **{name: array.astype(np.int32) for name, array in arrays.items()})  # type: ignore[arg-type]
    assert triton.ask(["MINILM"], TEXT=[b"a star"])["MINILM"].shape == (1, 96)


def test_an_image_beyond_the_limits_of_the_server_is_decoded_by_the_client(
    triton: Running, pictures: list[bytes], local: OnnxEncoder
) -> None:
    size = PIL.Image.open(io.BytesIO(pictures[0])).size
    with TritonEncoder(triton.url.removeprefix("triton:")) as encoder:
        small = ImageLimits(pixels=size[0] * size[1] - 1)
        encoder._deployment = replace(encoder._deployment, image_limits=small)
        assert encoder.prepare_image(pictures[0]) != pictures[0]
        assert np.array_equal(encoder.encode_images(pictures[:1])["clip"], local.encode_images(pictures[:1])["clip"])
        with pytest.raises(InvalidInputError, match="at most"):
            encoder.prepare_image(pictures[0], small)


def test_bad_requests_do_no_harm_to_others(triton: Running, pictures: list[bytes]) -> None:
    """Malformed requests of every kind beside good ones: the good ones are answered, and right."""
    images = triton.ask(["CLIP_IMAGE"], IMAGE=pictures[:4])["CLIP_IMAGE"]
    texts = triton.ask(["MINILM"], TEXT=[b"a star", b"two rings"])["MINILM"]
    end = time.monotonic() + 3

    def good(number: int) -> int:
        done = 0
        while time.monotonic() < end:
            if number % 2:
                assert np.array_equal(triton.ask(["CLIP_IMAGE"], IMAGE=pictures[:4])["CLIP_IMAGE"], images)
            else:
                found = triton.ask(["MINILM"], TEXT=[b"a star", b"two rings"])["MINILM"]
                assert np.allclose(found, texts, atol=1e-5)
            done += 1
        return done

    def bad(case: str) -> None:
        inputs, outputs, _ = MALFORMED[case]
        while time.monotonic() < end:
            with pytest.raises(InferenceServerException):
                triton.ask(outputs, **inputs)  # type: ignore[arg-type]

    cases = [case for case in MALFORMED if case != "image of 64 MB"]
    with ThreadPoolExecutor(len(cases) + 4) as pool:
        wrong = [pool.submit(bad, case) for case in cases]
        right = [pool.submit(good, number) for number in range(4)]
        assert min(future.result() for future in right) > 0
        for future in wrong:
            future.result()


def test_the_metrics_that_the_dashboard_asks_for_are_there(triton: Running) -> None:
    import re

    from vlmsearch.triton import DASHBOARD

    text = httpx.get(f"http://127.0.0.1:{triton.ends.metrics}/metrics").text
    asked = set(re.findall(r"nv_\w+", DASHBOARD.read_text()))
    assert {name for name in asked if name not in text} <= {
        "nv_gpu_utilization",
        "nv_gpu_memory_used_bytes",
        "nv_gpu_memory_total_bytes",
    }
    assert json.loads(DASHBOARD.read_text())["panels"]


def test_decoded_images_give_the_same_vectors(triton: Running, local: OnnxEncoder) -> None:
    images = [make_scene(SEED + i).draw(200) for i in range(3)] + [PIL.Image.new("RGBA", (90, 400), (200, 10, 10, 99))]
    with open_encoder(triton.url) as encoder:
        assert np.array_equal(encoder.encode_images(images)["clip"], local.encode_images(images)["clip"])
