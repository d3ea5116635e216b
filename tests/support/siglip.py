"""SigLIP and SigLIP 2 checkpoints with random weights and small tokenizers of their kinds."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from functools import cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.checkpoints import save
from vlmsearch.building.data import sentences
from vlmsearch.building.verify import tokenizer_cases

_GEMMA_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
VOCABULARY = 1500


def make_siglip(
    folder: Path,
    *,
    second: bool = True,
    size: int = 32,
    patch: int = 8,
    width: int = 48,
    heads: int = 3,
    layers: int = 2,
    inner: int = 96,
    dim: int | None = None,
    positions: int = 16,
    seed: int = 0,
    weaker: float = 1.0,
    words: int = VOCABULARY,
) -> Path:
    """A checkpoint of SigLIP 2 of one resolution, or of SigLIP where not ``second``.

    ``dim`` is the length of vectors where it is not the image tower's width. ``words`` is the size of the
    table of tokens. ``weaker`` divides all matrices: in many
    wide layers, weights as large as in small ones make rounding errors grow.
    """
    import torch
    from transformers import SiglipConfig, SiglipModel

    torch.manual_seed(seed)
    both = {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    ids = (
        {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1} if second else {"pad_token_id": 1, "eos_token_id": 1}
    )
    text = {"bos_token_id": 0} | both | ids | {"vocab_size": words, "max_position_embeddings": positions}
    vision = both | {"image_size": size, "patch_size": patch}
    if dim is not None:
        text |= {"projection_size": width, "hidden_size": dim}
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    with torch.no_grad():
        model.logit_scale.fill_(4.7)
        model.logit_bias.fill_(-16.5)
        for value in model.parameters():
            if value.ndim >= 2:
                value.div_(weaker)
        model.vision_model.head.probe.mul_(0.1)  # so that the head looks at more than one patch
    save(model, folder)
    _forget_special_tokens(folder)
    processor = {
        "image_processor_type": "SiglipImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 2 if second else 3,
        "rescale_factor": 1 / 255,
        "size": {"height": size, "width": size},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    if second:
        gemma_tokenizer(folder, positions)
    else:
        t5_tokenizer(folder, positions)
    return folder


def _forget_special_tokens(folder: Path) -> None:
    """Leave out of the configuration what that of google/siglip2-base-patch16-224 does not say."""
    config = json.loads((folder / "config.json").read_text())
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        config["text_config"].pop(name)
    (folder / "config.json").write_text(json.dumps(config))


@cache
def _corpus() -> tuple[str, ...]:
    return (*sentences(), *tokenizer_cases(2000))


@cache
def _gemma() -> str:
    """BPE over whole texts with spaces as letters, and bytes for what is in no token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[*_GEMMA_SPECIAL, *bytes_], limit_alphabet=300, show_progress=False
    )
    tokenizer.train_from_iterator((text.lower() for text in _corpus()), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in _GEMMA_SPECIAL]
    return json.dumps(data)


def gemma_tokenizer(folder: Path, positions: int) -> None:
    """Write a tokenizer of SigLIP 2's kind: Gemma's, which is to lower-case and does not."""
    (folder / "tokenizer.json").write_text(_gemma())
    settings = {
        "add_bos_token": False,
        "add_eos_token": True,
        "bos_token": "<bos>",
        "do_lower_case": True,
        "eos_token": "<eos>",
        "mask_token": "<mask>",
        "model_input_names": ["input_ids"],
        "model_max_length": positions,
        "pad_token": "<pad>",
        "padding_side": "right",
        "tokenizer_class": "GemmaTokenizer",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@cache
def _t5() -> str:
    """Unigram of words, lower-cased and without punctuation."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex(f"[{re.escape(string.punctuation)}]"), ""),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    usual = {letter for letter, _ in Counter("".join(_corpus())).most_common(700)}  # a vocabulary has room for no more
    tokenizer.train_from_iterator(("".join(filter(usual.__contains__, text)) for text in _corpus()), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer.to_str()


def t5_tokenizer(folder: Path, positions: int) -> None:
    """Write a tokenizer of SigLIP's kind, as its repositories hold it for libraries other than transformers."""
    (folder / "tokenizer.json").write_text(_t5())
    settings = {
        "do_lower_case": True,
        "eos_token": "</s>",
        "model_input_names": ["input_ids"],
        "model_max_length": positions,
        "pad_token": "</s>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
