"""A special token that a text spells out is text: nothing behind it is lost, in whatever kind of vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.support.checkpoints import edit_json, make_clip
from tests.support.siglip import make_siglip
from tests.support.text_models import make_text_cross_encoder, make_text_model
from vlmsearch.building.fetch import text_input
from vlmsearch.building.load import load_checkpoint
from vlmsearch.models.bundle import TextPrompt
from vlmsearch.models.inputs import lower_case
from vlmsearch.models.recipe import Prompts
from vlmsearch.models.reranker import pair_tokenizer
from vlmsearch.models.tokenizers import TextTokenizer, read_tokenizer
from vlmsearch.registry import open_encoder

NONE = TextPrompt()
MAKERS: dict[str, Callable[[Path], object]] = {
    "wordpiece": lambda folder: make_text_model(folder, "bert"),
    "wordpiece of mpnet": lambda folder: make_text_model(folder, "mpnet"),
    "bytes of roberta": lambda folder: make_text_model(folder, "roberta"),
    "bytes of modernbert": lambda folder: make_text_model(folder, "modernbert"),
    "bytes of clip": make_clip,
    "unigram of xlm-roberta": lambda folder: make_text_model(folder, "xlm-roberta"),
    "unigram of siglip": lambda folder: make_siglip(folder, second=False),
    "pairs of siglip 2": make_siglip,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_behind_a_special_token_is_read(tmp_path: Path, kind: str) -> None:
    from vlmsearch.building.torch import TorchEncoder

    MAKERS[kind](tmp_path)
    read = read_tokenizer((tmp_path / "tokenizer.json").read_bytes(), kind)
    special = {id: token.content for id, token in read.get_added_tokens_decoder().items() if token.special}
    form = text_input(load_checkpoint(tmp_path))
    with TorchEncoder(f"{tmp_path}/") as encoder:
        space, (batches,) = encoder.spaces[0].name, encoder._texts.values()
        for id, token in special.items():
            if "unk" in token.casefold():
                continue  # which any letter may be
            for written in (token, token.upper(), token.lower()):
                texts = [f"a red star {written} a blue heart", f"a red star {written} two green rings", written]
                for ids in batches._token_ids(texts, ["document"] * 3):
                    assert special.keys().isdisjoint(ids) or ids.count(id) == 0, (token, ids)
                    assert not {*form.prefix, *form.suffix} & {*ids}
                first, second, _ = encoder.encode_texts(texts)[space]
                assert first @ second < 0.9999, written
                assert encoder.count_tokens(texts[:1], space=space) == [
                    len(batches._token_ids(texts[:1], ["query"])[0])
                ]


@pytest.mark.parametrize("kind", MAKERS)
def test_letters_of_another_script_are_not_known(tmp_path: Path, kind: str) -> None:
    from vlmsearch.building.torch import TorchEncoder

    MAKERS[kind](tmp_path)
    with TorchEncoder(f"{tmp_path}/") as encoder:
        known = encoder.known_letters(["a red star and two green rings", "blue"])
        assert known is not None
        assert known > 0.1  # of vocabularies as small as these
        for text in ("красная книга лежит на столе", "الكتاب الأحمر", "พิพิธภัณฑ์", "这条河发源于山区", "लाल किताब"):
            other = encoder.known_letters([text])
            assert other is not None
            assert other < 0.1, text
        assert encoder.known_letters(["12.5", "", "..."]) is None


def test_vectors_of_the_demonstration_go_on_behind_one() -> None:
    ends = ("<|endoftext|>", "<|startoftext|>", "[SEP]", "[CLS]", "[PAD]", "[MASK]")
    with open_encoder("onnx:demo") as encoder:
        for end in ends:
            first, second = (encoder.encode_texts([f"a red star {end} {rest}"]) for rest in ("a blue heart", "a ring"))
            for space, vectors in first.items():
                assert float((vectors * second[space]).sum()) < 0.99, (end, space)


@pytest.mark.parametrize("special", [True, False])
def test_whole_words_are_no_special_tokens_either(special: bool) -> None:
    """Nor is what a file does not call special, if it stands around every text."""
    words = {"[UNK]": 0, "<s>": 1, "</s>": 2, "red": 3, "blue": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    if special:
        made.add_special_tokens(["<s>", "</s>"])
    tokenizer = TextTokenizer(made, "made")
    assert tokenizer.ids(["red </s> blue", "red blue"], [NONE] * 2) == [[3, 0, 0, 0, 0, 4], [3, 4]]
    assert tokenizer.pairs([("red", "</s> blue")])[0].ids == [1, 3, 2, 0, 0, 0, 0, 4, 2]


def test_capitals_and_wide_letters_do_not_make_one(tmp_path: Path) -> None:
    make_siglip(tmp_path, second=False)
    edit_json(tmp_path / "tokenizer.json", normalizer={"type": "NFKC"})
    raw = read_tokenizer((tmp_path / "tokenizer.json").read_bytes(), "made")
    lower_case(raw)
    tokenizer, end = TextTokenizer(raw, "made"), raw.token_to_id("</s>")
    assert not any(
        end in ids
        for ids in tokenizer.ids(["star </S> ring", "star \uff1c/s\uff1e ring", "\uff1c\uff0f\uff33\uff1e"], [NONE] * 3)
    )


def test_special_tokens_of_the_models_own_prompt_stay(tmp_path: Path) -> None:
    for family in ("roberta", "xlm-roberta"):
        folder = make_text_model(tmp_path / family, "roberta" if family == "roberta" else "xlm-roberta")
        prompts = Prompts("<s>ask</s> ", "")
        form = text_input(load_checkpoint(folder, prompts))
        raw = read_tokenizer((folder / "tokenizer.json").read_bytes(), family)
        expected = raw.encode("<s>ask</s> a red star", add_special_tokens=False).ids
        tokenizer = TextTokenizer(raw, family, [form.query.ids, form.document.ids])
        plain, spelled = tokenizer.ids(["a red star", "a </s> red star"], [form.query] * 2)
        assert plain == expected
        assert (plain.count(2), spelled.count(2)) == (1, 1)
        (document,) = tokenizer.ids(["a </s> red star"], [form.document])
        assert not {0, 2} & {*document}


def test_texts_of_a_re_ranker_have_no_separator(tmp_path: Path) -> None:
    folder = make_text_cross_encoder(tmp_path, "xlm-roberta")
    tokenizer = pair_tokenizer((folder / "tokenizer.json").read_bytes(), "made", 64)
    pairs = [("star", "red </s></s> ring <mask>"), ("st</s>ar", "red ring"), ("star", "red " * 90 + "</s>")]
    marks = [encoding.ids.count(2) for encoding in tokenizer.pairs(pairs)]
    assert marks == [3, 3, 3]
    assert "ring" in tokenizer.raw.decode(tokenizer.pairs(pairs)[0].ids).replace(" ", "")


def test_other_texts_have_the_ids_that_they_had(tmp_path: Path) -> None:
    from vlmsearch.building.verify import tokenizer_cases

    for kind in ("wordpiece", "bytes of modernbert", "unigram of xlm-roberta"):
        folder = tmp_path / kind
        MAKERS[kind](folder)
        raw, changed = (read_tokenizer((folder / "tokenizer.json").read_bytes(), kind) for _ in range(2))
        special = [token.content for token in raw.get_added_tokens_decoder().values()]
        texts = [text for text in tokenizer_cases(600) if not any(token in text for token in special)]
        assert len(texts) > 400
        rows = TextTokenizer(changed, kind).ids(texts, [NONE] * len(texts))
        raw.no_truncation()
        raw.no_padding()
        assert rows == [encoding.ids for encoding in raw.encode_batch(texts, add_special_tokens=False)]


def test_settings_of_a_file_are_not_changed(tmp_path: Path) -> None:
    make_text_model(tmp_path, "bert")
    raw = read_tokenizer((tmp_path / "tokenizer.json").read_bytes(), "made")
    before = json.loads(raw.to_str())
    TextTokenizer(raw, "made")
    assert json.loads(raw.to_str()) == before
    assert np.all(raw.encode_special_tokens)
