"""Pictures a second that a LLaVA of two billion parameters describes, in process, on a GPU or a CPU.

The weights are random, so nothing is downloaded and the texts mean nothing. The time is that of a trained model of this
size: 576 tokens of each picture and 64 of each description. Needs `pip install '.[transformers]'` and PyTorch.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.common import print_figures
from vlmsearch.demo.scenes import make_scene
from vlmsearch.generators.base import GenerationOptions, Picture
from vlmsearch.generators.local.transformers import TransformersGenerator

_TURNS = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}\n{% endfor %}assistant:"
)
_SIDE, _PATCH = 336, 14


@click.command()
@click.option("--device", default="cuda", show_default=True, help="PyTorch's name of the device.")
@click.option("--layers", default=24, show_default=True, type=click.IntRange(2), help="Layers of tower and decoder.")
@click.option("--width", default=2048, show_default=True, type=click.IntRange(64), help="Width of the decoder.")
@click.option("--pictures", default=24, show_default=True, type=click.IntRange(2), help="Pictures that are timed.")
def main(device: str, layers: int, width: int, pictures: int) -> None:
    """Measure how fast a large model describes pictures, one after the other."""
    import torch

    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as folder:
        parameters = write_model(Path(folder), layers, width)
        generator = TransformersGenerator(folder, device=device, dtype="bfloat16")
        seconds, firsts = zip(*(_describe(generator, number) for number in range(-2, pictures)))
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    print_figures(
        f"{parameters / 1e9:.2f} billion random parameters, {name}, PyTorch {torch.__version__}",
        ("pictures/s", "first word, ms"),
        [(f"{1 / statistics.median(seconds[2:]):.2f}", f"{1000 * statistics.median(firsts[2:]):.0f}")],
    )


def write_model(folder: Path, layers: int, width: int) -> int:
    """Write a LLaVA with random weights, and return its number of parameters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        CLIPImageProcessor,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<end>", "<image>"])
    tokenizer.train_from_iterator(["describe the picture"], trainer)
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call,unused-ignore]
        tokenizer_object=tokenizer,
        eos_token="<end>",  # noqa: S106 - no password
        extra_special_tokens={"image_token": "<image>"},
    )
    text: dict[str, Any] = {"model_type": "llama", "vocab_size": 32064, "hidden_size": width, "eos_token_id": 0}
    text |= {"intermediate_size": 4 * width, "num_hidden_layers": layers, "num_attention_heads": width // 64}
    vision: dict[str, Any] = {"model_type": "clip_vision_model", "hidden_size": width // 2, "image_size": _SIDE}
    vision |= {"intermediate_size": 2 * width, "num_hidden_layers": layers, "num_attention_heads": width // 128 or 1}
    vision["patch_size"] = _PATCH
    config = LlavaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=fast.convert_tokens_to_ids("<image>"),
        image_seq_length=(_SIDE // _PATCH) ** 2,
    )
    model: Any = LlavaForConditionalGeneration(config)
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    pixels = CLIPImageProcessor(size={"shortest_edge": _SIDE}, crop_size={"height": _SIDE, "width": _SIDE})
    LlavaProcessor(  # type: ignore[no-untyped-call,unused-ignore]
        pixels, fast, patch_size=_PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=_TURNS,
    ).save_pretrained(folder)  # fmt: skip
    return sum(parameter.numel() for parameter in model.parameters())


def _describe(generator: TransformersGenerator, number: int) -> tuple[float, float]:
    """Return the seconds of a description, and those to its first word."""
    picture = Picture(make_scene(32_000_100 + number).draw(512))
    begun, first = time.perf_counter(), None
    for _ in generator.stream_parts([picture, "\nDescribe the picture."], GenerationOptions(max_tokens=64)):
        first = first or time.perf_counter() - begun
    seconds = time.perf_counter() - begun
    return seconds, first or seconds


if __name__ == "__main__":
    main()
