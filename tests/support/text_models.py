"""Text checkpoints of every family with random weights, over tokenizers of a few sentences' words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.support.checkpoints import save
from vlmsearch.building.verify import tokenizer_cases

TextFamily = Literal["bert", "distilbert", "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta"]
TEXT_FAMILIES: tuple[TextFamily, ...] = get_args(TextFamily)
_TINY_VOCABULARY, _REAL_VOCABULARY = 2000, 8000
"""The larger one has whole words: read letter by letter, all sentences are much the same, and so are their vectors."""
_TINY_TIMES, _REAL_TIMES = 4.0, 1.5
"""How much larger than fresh ones the weights are. In base models four times is too much: each layer doubles the
rounding of the one before it, and transformers in float32 is 0.0004 from itself in float64, as a cosine."""
_LETTERS = pre_tokenizers.ByteLevel.alphabet()
_CONFIGS: Mapping[TextFamily, str] = {
    "bert": "BertConfig",
    "distilbert": "DistilBertConfig",
    "modernbert": "ModernBertConfig",
    "mpnet": "MPNetConfig",
    "nomic_bert": "NomicBertConfig",
    "roberta": "RobertaConfig",
    "xlm-roberta": "XLMRobertaConfig",
}
"""The names of their classes in transformers."""
REAL: Mapping[TextFamily, Mapping[str, int]] = {
    "bert": {},
    "distilbert": {},
    "modernbert": {},
    "mpnet": {"max_position_embeddings": 514},
    "nomic_bert": {},
    "roberta": {"max_position_embeddings": 514, "type_vocab_size": 1},
    "xlm-roberta": {"max_position_embeddings": 514, "type_vocab_size": 1},
}
"""What the published base models have and transformers' defaults do not."""


def _config(family: TextFamily) -> type[Any]:
    import transformers

    found: type[Any] = getattr(transformers, _CONFIGS[family])
    return found


def make_text_model(
    folder: Path,
    family: TextFamily,
    *,
    pooling: str = "mean",
    real: bool = False,
    limit: int = 40,
    prompts: Mapping[str, str] | None = None,
    normalize: bool = True,
    **settings: object,
) -> Path:
    """A sentence-transformers checkpoint: of the family's base size where ``real``, else tiny.

    ``settings`` go into its configuration; ``prompts`` are what its own files say of them.
    """
    import torch
    from transformers import AutoModel

    tokenizer = text_tokenizer(family, _REAL_VOCABULARY if real else _TINY_VOCABULARY)
    words = max(tokenizer.get_vocab().values()) + 1
    sizes: dict[str, object] = dict(REAL[family]) if real else _tiny(family)
    special = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos", "cls", "sep")
    }
    torch.manual_seed(0)
    if not real:  # with the usual one, texts hardly differ
        sizes["initializer_range"] = 0.05
    model: Any = AutoModel.from_config(  # type: ignore[no-untyped-call]
        _config(family)(**{"vocab_size": words, **special, **sizes, **settings})
    )
    save(model, folder, times=_REAL_TIMES if real else _TINY_TIMES)
    tokenizer.save_pretrained(folder)
    width = model.config.hidden_size
    modules = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(modules, paths))
    ]
    _write(folder / "modules.json", listed)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": limit, "do_lower_case": False})
    for path in paths[1 : len(modules)]:
        (folder / path).mkdir(exist_ok=True)
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, "pooling_mode": pooling})
    _write(folder / "config_sentence_transformers.json", {"prompts": dict(prompts or {}), "default_prompt_name": None})
    return folder


def text_tokenizer(family: TextFamily, size: int = _TINY_VOCABULARY) -> Any:
    """A family's own tokenizer over a vocabulary of about ``size``."""
    from transformers import BertTokenizer, MPNetTokenizer, RobertaTokenizer, XLMRobertaTokenizer

    if family in ("bert", "distilbert", "nomic_bert"):
        return BertTokenizer(vocab=_wordpiece(size, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    if family == "mpnet":
        return MPNetTokenizer(vocab=_wordpiece(size, "<s>", "<pad>", "</s>", "[UNK]", "<mask>"))
    if family == "xlm-roberta":
        return XLMRobertaTokenizer(vocab=_unigram(size))
    if family == "roberta":
        vocabulary, merges = _pairs(size, "<s>", "<pad>", "</s>", "<unk>", "<mask>")
        return RobertaTokenizer(vocab=vocabulary, merges=merges)  # type: ignore[arg-type]  # it takes pairs
    return _modern(size)


@cache
def _wordpiece(size: int, *special: str) -> dict[str, int]:
    words = _words(normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer())
    letters = sorted({letter for word in words for letter in word})
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *words[: size // 2]]
    return {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}


@cache
def _unigram(size: int) -> list[tuple[str, float]]:
    space = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    words = _words(normalizers.NFC(), space)
    scores = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], 0.0)
    scores |= dict.fromkeys(sorted({letter for word in words for letter in word}), -20.0)
    scores |= {word: -5 - i / size for i, word in enumerate(words[: size // 2])}
    return list(scores.items())


@cache
def _pairs(size: int, *special: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    words = _words(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False))
    merges = list(dict.fromkeys((word[:i], word[i]) for word in words for i in range(1, len(word))))
    letters = sorted(_LETTERS)
    merges = merges[: size - len(letters) - len(special)]
    pieces = dict.fromkeys([*special, *letters, *(left + right for left, right in merges)])
    return {piece: i for i, piece in enumerate(pieces)}, merges


def _modern(size: int) -> Any:
    """ModernBERT's: pairs of bytes over NFC, and no class of its own."""
    from transformers import PreTrainedTokenizerFast

    vocabulary, merges = _pairs(size, "[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    numbers = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=numbers
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, cls_token="[CLS]", pad_token="[PAD]", sep_token="[SEP]", unk_token="[UNK]",
        mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def _words(normalizer: Any, splitter: Any) -> list[str]:
    """The words of the texts, frequent ones first; a trained vocabulary would be another one in each process."""
    texts = [normalizer.normalize_str(text) for text in tokenizer_cases(1500) if 0 < len(text) < 1000]
    found = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(text))
    return sorted(found, key=lambda word: (-found[word], word))


def _tiny(family: TextFamily) -> dict[str, object]:
    sizes: dict[str, object]
    if family == "distilbert":
        sizes = {"dim": 48, "n_layers": 2, "n_heads": 3, "hidden_dim": 96}
        return sizes | {"max_position_embeddings": 64}
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    if family == "modernbert":
        return sizes | {"num_hidden_layers": 4, "local_attention": 16, "max_position_embeddings": 64}
    return sizes | {"max_position_embeddings": 66}


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def make_text_cross_encoder(folder: Path, family: TextFamily) -> Path:
    """A tiny cross-encoder with one label."""
    import torch
    from transformers import AutoModelForSequenceClassification

    tokenizer = text_tokenizer(family)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    torch.manual_seed(0)
    words = {"vocab_size": len(tokenizer), "num_labels": 1, "type_vocab_size": 1, "initializer_range": 0.05}
    config = _config(family)(**(words | special | _tiny(family)))
    model: Any = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    save(model, folder)
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    return folder
