"""BERT (Devlin et al., 2019): sentence encoders as sentence-transformers saves them, and cross-encoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import TensorProto

from vlmsearch.building.checkpoint import Checkpoint, TextTower, read_transformer, sentence_modules
from vlmsearch.building.layers import Array, Layers, Linear, Mask
from vlmsearch.building.transformer import (
    Block,
    Pool,
    Pooling,
    Transformer,
    first_rows,
    first_token,
    linear,
    norm_weights,
    one_token,
    pool_tokens,
    post_norm,
    scaled,
    text_inputs,
    text_length,
    unit,
)
from vlmsearch.building.weights import Json, Weights, read_json, read_weights
from vlmsearch.errors import ConfigError


def read(folder: Path, config: Json) -> Checkpoint:
    """Read a sentence encoder."""
    form, positions, weights = _parts(folder, config)
    pad = config.get("pad_token_id", 0)
    return sentences(folder, weights, lambda pooling: Bert(form, positions, pooling), pad)


def sentences(folder: Path, weights: Weights, tower: Callable[[Pooling], TextTower], pad: int) -> Checkpoint:
    """Return the checkpoint of a text tower that is used as the modules of sentence-transformers say."""
    modules = sentence_modules(folder)
    text = tower(modules.pooling)
    max_tokens = min(modules.limit or text.positions, text.positions)
    return Checkpoint(folder, weights, text.transformer.width, None, text, None, max_tokens, pad, modules.prompts)


def read_cross_encoder(folder: Path, config: Json) -> Checkpoint:
    """Read a model of two texts that gives one number."""
    check_one_label(folder, config, ("BertForSequenceClassification",))
    form, positions, weights = _parts(folder, config)
    return pairs(folder, weights, CrossEncoder(form, positions), config.get("pad_token_id", 0))


def check_one_label(folder: Path, config: Json, known: tuple[str, ...]) -> None:
    """Raise ConfigError unless a model has one label and one of the ``known`` heads."""
    heads, labels = config.get("architectures"), config.get("id2label")
    count = config.get("num_labels", 2) if labels is None else len(labels)
    if heads not in [[head] for head in known] or count != 1:
        has = f"{heads} with {count} labels"
        raise ConfigError(f"{folder}: {' or '.join(known)} with one label can be exported, not {has}")


def pairs(folder: Path, weights: Weights, tower: TextTower, pad: int) -> Checkpoint:
    """Return the checkpoint of a cross-encoder."""
    limits = folder / "tokenizer_config.json"
    limit = read_json(limits).get("model_max_length") if limits.is_file() else None
    own = folder / "config_sentence_transformers.json"
    config = read_json(own) if own.is_file() else {}
    if (config.get("prompts") or {}).get(config.get("default_prompt_name")):
        raise ConfigError(f"{own}: a re-ranker with a default prompt cannot be exported")
    max_tokens = min(int(limit or tower.positions), tower.positions)
    return Checkpoint(folder, weights, tower.transformer.width, None, tower, None, max_tokens, pad)


def _parts(folder: Path, config: Json) -> tuple[Transformer, int, Weights]:
    """Return the sizes of a BERT, how many positions it has, and its tensors."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(f"{folder}: only absolute positions can be exported")
    form = read_transformer({"hidden_act": "gelu", "layer_norm_eps": 1e-12} | config, folder)
    weights = read_weights(folder, lambda name: name.removeprefix("bert."))
    return form, config["max_position_embeddings"], weights


@dataclass(frozen=True)
class Bert(TextTower):
    """A sentence encoder. Families that differ in their positions only are subclasses."""

    pooling: Pooling

    def write(self, layers: Layers, weights: Weights) -> None:
        """See `TextTower.write`."""
        ids, padding = text_inputs(layers)
        length = text_length(layers, ids)
        x = layers.lookup(weights["embeddings.word_embeddings.weight"], ids)
        x = layers.graph.op("Add", x, self.places(layers, weights, ids, length), scope="embed")
        mask = Mask(padding, scores=self.scores(layers, weights, length))
        pool = one_token(layers.graph, self.pooling)
        x = encoder(layers, self.transformer, weights, x, mask, pool)
        unit(layers, pool_tokens(layers, x, padding, self.pooling), self.transformer.width)

    def places(self, layers: Layers, weights: Weights, ids: str, length: str) -> str:
        """Return what is added to the tokens' embeddings for their positions and types."""
        return first_rows(layers, position_rows(weights), length)

    def scores(self, layers: Layers, weights: Weights, length: str) -> str | None:
        """Return what is added to the scores of attention."""
        return None


def position_rows(weights: Weights) -> Array:
    """Return the table of positions.

    The type of all tokens, in families that have types, is part of it.
    """
    table = weights["embeddings.position_embeddings.weight"]
    types = weights.get("embeddings.token_type_embeddings.weight")
    return table if types is None else table + types[0]


@dataclass(frozen=True)
class CrossEncoder(TextTower):
    """A BERT that reads two texts together and gives one number."""

    def write(self, layers: Layers, weights: Weights) -> None:
        """Write ``input_ids``, ``token_type_ids``, ``attention_mask`` int32 (n, length) to ``logit`` float32 (n, 1)."""
        graph, op, form = layers.graph, layers.graph.op, self.transformer
        ids, padding = text_inputs(layers)
        types = graph.input("token_type_ids", TensorProto.INT32, ["batch", "length"])
        x = layers.lookup(weights["embeddings.word_embeddings.weight"], ids)
        places = first_rows(layers, weights["embeddings.position_embeddings.weight"], text_length(layers, ids))
        x = op("Add", x, places, scope="embed")
        x = op(
            "Add", x, layers.lookup(weights["embeddings.token_type_embeddings.weight"], types, "types"), scope="embed"
        )
        x = encoder(layers, form, weights, x, Mask(padding), first_token(graph))
        give_logit(layers, weights, x, "pooler.dense", "classifier")


def give_logit(layers: Layers, weights: Weights, x: str, dense: str, out: str) -> None:
    """Give out the number of the first token, (n, 1, width): two Linears, which stay in high precision.

    They are a thousandth of the work and decide the number.
    """
    graph, op = layers.graph, layers.graph.op
    pooled = op("Tanh", layers.linear(x, _head(weights, dense)), scope="pooler")
    logit = op("Squeeze", layers.linear(pooled, _head(weights, out)), graph.ints(1), scope="classifier")
    logit = op("Cast", logit, scope="classifier", to=int(TensorProto.FLOAT))
    graph.output(logit, "logit", TensorProto.FLOAT, ["batch", 1])


def _head(weights: Weights, name: str) -> Linear:
    return replace(linear(weights, name, name), quantisable=False)


def encoder(layers: Layers, form: Transformer, weights: Weights, x: str, mask: Mask, pool: Pool | None) -> str:
    """BERT on what its embeddings add up to: all tokens, or the one that ``pool`` takes, (n, 1, width)."""
    x = layers.norm(x, norm_weights(weights, "embeddings.LayerNorm", form))
    blocks = [_block(weights, f"encoder.layer.{i}.", f"text/{i}", form) for i in range(form.layers)]
    return post_norm(layers, x, blocks, form, mask, pool)


def _block(weights: Weights, prefix: str, name: str, form: Transformer) -> Block:
    """Return a layer of BERT."""
    attention = f"{prefix}attention.self."
    return Block(
        name,
        query=scaled(linear(weights, f"{attention}query", f"{name}/q"), form),
        key=linear(weights, f"{attention}key", f"{name}/k"),
        value=linear(weights, f"{attention}value", f"{name}/v"),
        out=linear(weights, f"{prefix}attention.output.dense", f"{name}/out"),
        fc1=linear(weights, f"{prefix}intermediate.dense", f"{name}/fc1"),
        fc2=linear(weights, f"{prefix}output.dense", f"{name}/fc2"),
        norm1=norm_weights(weights, f"{prefix}attention.output.LayerNorm", form),
        norm2=norm_weights(weights, f"{prefix}output.LayerNorm", form),
    )
