"""Checkpoints of the architectures that see, so small that they are made in a second; their weights are random."""

from pathlib import Path
from typing import Any

_WORDS = ["which star is above the green circle and where is it", "[1] [2] Question: Answer:", "yes no Yes No"] * 4
_TURNS = (
    "{% for message in messages %}{{ message.role }}: "
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def _tokenizer(special: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<end>", *special])
    tokenizer.train_from_iterator(_WORDS, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call,unused-ignore]
        tokenizer_object=tokenizer,
        eos_token="<end>",
        pad_token="<end>",
        model_max_length=2048,
        extra_special_tokens={"image_token": "<image>"},
    )


def write_llava(folder: Path) -> Path:
    """Write a LLaVA whose pictures are 16 tokens each."""
    import torch
    from transformers import CLIPImageProcessor, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    torch.manual_seed(0)
    tokenizer = _tokenizer(["<image>"])
    text = {"model_type": "llama", "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64}
    text |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "eos_token_id": 0}
    text |= {"max_position_embeddings": 2048, "bos_token_id": 0, "pad_token_id": 0}
    vision = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "image_size": 64}
    vision |= {"num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 16}
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_index=image_token, image_seq_length=16)
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    size = {"height": 64, "width": 64}
    pixels = CLIPImageProcessor(size={"shortest_edge": 64}, crop_size=size)
    LlavaProcessor(  # type: ignore[no-untyped-call,unused-ignore]
        pixels, tokenizer, patch_size=16, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=_TURNS,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def write_idefics3(folder: Path) -> Path:
    """Write an Idefics3, the architecture of SmolVLM, whose pictures are cut into tiles of 64 pixels."""
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
    )

    torch.manual_seed(0)
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    tokenizer = _tokenizer(["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *tiles])
    text = {"model_type": "llama", "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64}
    text |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "eos_token_id": 0}
    text |= {"max_position_embeddings": 2048, "bos_token_id": 0, "pad_token_id": 0}
    vision = {"hidden_size": 32, "intermediate_size": 64, "image_size": 64, "patch_size": 16}
    vision |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = Idefics3Config(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    Idefics3ForConditionalGeneration(config).save_pretrained(folder)
    pixels = Idefics3ImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
    Idefics3Processor(pixels, tokenizer, image_seq_len=4, chat_template=_TURNS).save_pretrained(folder)
    return folder


def write_qwen2_5_vl(folder: Path) -> Path:
    """Write the configuration and tokenizer of a Qwen2.5-VL, whose processor needs torchvision."""
    from transformers import Qwen2_5_VLConfig

    Qwen2_5_VLConfig().save_pretrained(folder)
    _tokenizer(["<image>"]).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "Qwen2VLImageProcessor"}')
    (folder / "processor_config.json").write_text('{"processor_class": "Qwen2_5_VLProcessor"}')
    return folder
