"""Train the demonstration sentence encoder on paraphrases of scene captions, or evaluate its checkpoint.

``python engines/demo-minilm/train.py`` trains on a GPU if there is one and writes ``checkpoint`` beside this file in
the layout of sentence-transformers; ``--evaluate`` prints the figures of an existing checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertConfig, BertModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import training

FOLDER = Path(__file__).resolve().parent
POSITIONS = 64
TRAINING_LENGTH = 48
TEMPERATURE = 0.04
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
           "mask_token": "[MASK]"}  # fmt: skip


def make_tokenizer(out: Path) -> Tokenizer:
    """Learn a WordPiece vocabulary and save it in the form of BERT's uncased tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=352, special_tokens=list(SPECIAL.values()), initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(training.training_texts(4000), trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = SPECIAL | {"do_lower_case": True, "model_max_length": POSITIONS, "tokenizer_class": "BertTokenizer"}
    training.write_json(out / "tokenizer_config.json", settings)
    training.write_json(out / "special_tokens_map.json", SPECIAL)
    return tokenizer


def make_model(tokenizer: Tokenizer) -> BertModel:
    """Return an untrained BERT encoder of about 0.16 million parameters."""
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=128,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.token_to_id("[PAD]"),
    )
    return BertModel(config)


def embed(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Average the hidden states of the tokens that are not padding."""
    hidden: torch.Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
    weights = mask.unsqueeze(-1).float()
    return torch.sum(hidden * weights, dim=1) / weights.sum(dim=1)


def train(options: training.Options) -> BertModel:
    """Train a model contrastively on pairs of captions of one scene and return it."""
    tokenizer = make_tokenizer(options.out)
    corpus = training.make_corpus(options, options.out / "tokenizer.json", TRAINING_LENGTH, None)
    model = make_model(tokenizer)
    torch.nn.Module.to(model, options.device)
    tower = torch.compile(model) if options.compile else model
    padding = int(model.config.pad_token_id or 0)
    scale = torch.tensor(1 / TEMPERATURE, device=options.device)

    judge = training.Judge().to(options.device)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        hints, fits = corpus.hints_of(rows)
        ids = torch.cat([corpus.captions_of(rows), corpus.captions_of(rows), hints])
        first, second, *hinted = embed(tower, ids, ids.ne(padding).long()).chunk(2 + len(fits))
        loss = training.contrastive_loss(first, second, scale)
        return loss + training.hint_loss(judge, hinted, first, fits, 0.3)

    training.fit(torch.nn.ModuleList([model, judge]), loss_of, options)
    return model


def save(model: BertModel, out: Path) -> None:
    """Save the weights and the description of the sentence-transformers pipeline."""
    training.save_weights(model, out)
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(kinds)
    ]
    training.write_json(out / "modules.json", modules)
    training.write_json(out / "sentence_bert_config.json", {"max_seq_length": POSITIONS, "do_lower_case": False})
    pooling = {"word_embedding_dimension": model.config.hidden_size, "pooling_mode_cls_token": False}
    pooling |= {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    training.write_json(out / "1_Pooling" / "config.json", pooling)


@torch.inference_mode()
def evaluate(out: Path) -> dict[int, float]:
    """Print how well a checkpoint finds canonical captions, and return the recall of paraphrases.

    They are those of 1,000 unseen scenes.
    """
    model: Any = BertModel.from_pretrained(out, dtype=torch.float32)
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(out)
    scenes = training.evaluation_scenes()

    def encode(texts: list[str]) -> torch.Tensor:
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        return torch.nn.functional.normalize(embed(model, inputs["input_ids"], inputs["attention_mask"]))

    captions = encode([scene.caption() for scene in scenes])
    figures = {}
    for style in ("full", "partial"):
        queries = encode([scene.captions(1, training.PARAPHRASE_SEED, style=style)[0] for scene in scenes])
        figures[style] = training.recall(queries, captions)
        training.print_recall(f"{style} paraphrase -> canonical caption", figures[style])
    training.print_size(model, out)
    return figures["full"]


def main() -> None:
    """Train and evaluate, or only evaluate."""
    options = training.parse_options(
        "Train the demonstration sentence encoder.", FOLDER, scenes=100_000, steps=750, batch=2048, rate=2e-3
    )
    if not options.evaluate:
        save(train(options), options.out)
    evaluate(options.out)


if __name__ == "__main__":
    main()
