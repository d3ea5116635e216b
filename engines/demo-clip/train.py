"""Train the demonstration CLIP model on procedurally drawn scenes, or evaluate its checkpoint.

``python engines/demo-clip/train.py`` trains on a GPU if there is one and writes ``checkpoint`` beside this file;
``--evaluate`` prints the figures of an existing checkpoint on scenes that training never sees.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, CLIPConfig, CLIPImageProcessor, CLIPModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import training

from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import COLOURS, SHAPES, Scene

FOLDER = Path(__file__).resolve().parent
PIXELS = 64
POSITIONS = 64
DIMENSION = 64
TRAINING_LENGTH = 48
MERGES = 360
MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
START, END = "<|startoftext|>", "<|endoftext|>"
SPLIT = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def make_tokenizer(out: Path) -> Tokenizer:
    """Learn a byte-level BPE vocabulary and save it in the form of CLIP's tokenizer."""
    scratch = _pipeline(models.BPE(unk_token=END, end_of_word_suffix="</w>"))
    trainer = trainers.BpeTrainer(vocab_size=10_000, end_of_word_suffix="</w>", show_progress=False)
    scratch.train_from_iterator(training.training_texts(4000), trainer)
    learnt = json.loads(scratch.to_str())["model"]["merges"]
    merges = [tuple(pair) for pair in learnt][:MERGES]
    letters = _byte_letters()
    names = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges), START, END]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = _pipeline(
        models.BPE(vocabulary, merges, unk_token=END, continuing_subword_prefix="", end_of_word_suffix="</w>")
    )
    tokenizer.add_special_tokens([START, END])
    tokenizer.post_processor = processors.RobertaProcessing(
        (END, vocabulary[END]), (START, vocabulary[START]), trim_offsets=False, add_prefix_space=False
    )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END, "add_prefix_space": False}
    settings |= {"do_lower_case": True, "model_max_length": POSITIONS, "tokenizer_class": "CLIPTokenizer"}
    training.write_json(out / "tokenizer_config.json", settings)
    return tokenizer


def _pipeline(model: models.BPE) -> Tokenizer:
    """Surround a BPE model with CLIP's normalisation and splitting."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_letters() -> list[str]:
    """Return the 256 characters that stand for bytes, printable ones first."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(256 - len(printable))]


def make_model(tokenizer: Tokenizer) -> CLIPModel:
    """Return an untrained CLIP model of about 0.9 million parameters."""
    text = {
        "projection_dim": DIMENSION,
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "max_position_embeddings": POSITIONS,
        "bos_token_id": tokenizer.token_to_id(START),
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id(END),
    }
    vision = {
        "projection_dim": DIMENSION,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "image_size": PIXELS,
        "patch_size": 8,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=DIMENSION))


def train(options: training.Options) -> CLIPModel:
    """Train a model contrastively and return it."""
    tokenizer = make_tokenizer(options.out)
    corpus = training.make_corpus(options, options.out / "tokenizer.json", TRAINING_LENGTH, PIXELS)
    model = make_model(tokenizer)
    torch.nn.Module.to(model, options.device)
    image_tower, text_tower = model.vision_model, model.text_model
    if options.compile:
        image_tower, text_tower = torch.compile(image_tower), torch.compile(text_tower)
    centre = torch.tensor(MEAN, device=options.device).view(1, 3, 1, 1)
    spread = torch.tensor(DEVIATION, device=options.device).view(1, 3, 1, 1)

    judge = training.Judge().to(options.device)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        pixels = (_augment(corpus.images[rows].float() / 255) - centre) / spread
        hints, fits = corpus.hints_of(rows)
        shown = model.visual_projection(image_tower(pixel_values=pixels).pooler_output)
        texts = text_tower(input_ids=torch.cat([corpus.captions_of(rows), hints])).pooler_output
        said, *hinted = model.text_projection(texts).chunk(1 + len(fits))
        scale = model.logit_scale.exp().clamp(max=100)
        loss = training.contrastive_loss(said, shown, scale)
        return loss + training.hint_loss(judge, hinted, shown, fits, 0.2)

    training.fit(torch.nn.ModuleList([model, judge]), loss_of, options)
    model.logit_scale.data.clamp_(max=4.6052)
    return model


def _augment(images: torch.Tensor) -> torch.Tensor:
    """Shift images by up to two pixels and vary brightness, contrast and noise slightly."""
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="replicate")
    rows = torch.randint(5, (count, 1), device=images.device) + torch.arange(height, device=images.device)
    columns = torch.randint(5, (count, 1), device=images.device) + torch.arange(width, device=images.device)
    batch = torch.arange(count, device=images.device).view(-1, 1, 1)
    moved = padded.permute(0, 2, 3, 1)[batch, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
    gain, offset = (torch.randn(count, 1, 1, 1, device=images.device) for _ in range(2))
    return moved * (1 + 0.04 * gain) + 0.02 * offset + 0.01 * torch.randn_like(moved)


def save(model: CLIPModel, out: Path) -> None:
    """Save the weights and the settings of the image processor."""
    training.save_weights(model, out)
    settings = {
        "crop_size": {"height": PIXELS, "width": PIXELS},
        "do_center_crop": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": MEAN,
        "image_processor_type": "CLIPImageProcessor",
        "image_std": DEVIATION,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": PIXELS},
    }
    training.write_json(out / "preprocessor_config.json", settings)


@torch.inference_mode()
def evaluate(out: Path) -> dict[int, float]:
    """Print how well a checkpoint finds 1,000 unseen scenes; return the recall of canonical captions.

    The checkpoint is read back from its files, pictures are drawn at 256 pixels and go through the image processor.
    """
    model: Any = CLIPModel.from_pretrained(out, dtype=torch.float32)
    model.eval()
    processor, tokenizer = CLIPImageProcessor.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    scenes = training.evaluation_scenes()
    pixels = [processor(images=scene.draw(), return_tensors="pt")["pixel_values"] for scene in scenes]
    shown = model.visual_projection(model.vision_model(torch.cat(pixels)).pooler_output)
    shown = torch.nn.functional.normalize(shown)

    def embed(texts: list[str]) -> torch.Tensor:
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        return torch.nn.functional.normalize(model.text_projection(model.text_model(**inputs).pooler_output))

    canonical = embed([scene.caption() for scene in scenes])
    styles = {style: [scene.captions(1, training.PARAPHRASE_SEED, style=style)[0] for scene in scenes]
              for style in ("full", "partial")}  # fmt: skip
    figures = training.recall(canonical, shown)
    training.print_recall("canonical caption -> image", figures)
    training.print_recall("image -> canonical caption", training.recall(shown, canonical))
    training.print_recall("full paraphrase -> image", training.recall(embed(styles["full"]), shown))
    training.print_recall("partial caption -> image", training.recall(embed(styles["partial"]), shown))
    _print_short_queries(embed, shown, scenes)
    training.print_size(model, out)
    return figures


def _print_short_queries(embed: Callable[[list[str]], torch.Tensor], shown: torch.Tensor, scenes: list[Scene]) -> None:
    """Print how many of the first five results of short queries show what was asked for."""
    words = {0: "{} {}", 1: "a {} {}", 2: "two {} {}s", 3: "three {} {}s"}
    for count in (0, 1, 2, 3):
        hits = asked = 0
        for colour in COLOURS:
            for shape in SHAPES:
                text = words[count].format(colour, shape).replace("crosss", "crosses")
                right = [parse_query(text).fits(scene) for scene in scenes]
                if sum(right) >= 5:
                    top = (embed([text]) @ shown.T)[0].topk(5).indices.tolist()
                    hits, asked = hits + sum(right[index] for index in top), asked + 5
        example = words[count].format("red", "star")
        print(f"queries such as {example!r:<28}precision@5 {hits / max(1, asked):.3f} ({asked // 5} queries)")


def main() -> None:
    """Train and evaluate, or only evaluate."""
    options = training.parse_options(
        "Train the demonstration CLIP model.", FOLDER, scenes=120_000, steps=7_750, batch=2048, rate=1.5e-3
    )
    if not options.evaluate:
        save(train(options), options.out)
    evaluate(options.out)


if __name__ == "__main__":
    main()
