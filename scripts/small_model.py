"""Writes the folder of a small InternVL (ViT, pixel shuffle + MLP, Qwen2) that Transformers reads.

For the scripts that prepare data: the tokenizer is trained on that data, weights are drawn when
training begins.
"""

import dataclasses
import json
import os

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PATCH, DOWNSAMPLE = 14, 0.5
END, START_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
IMAGE_START, IMAGE_END, CONTEXT = "<img>", "</img>", "<IMG_CONTEXT>"
SPECIAL = [
    END,
    START_TURN,
    END_TURN,
    IMAGE_START,
    IMAGE_END,
    CONTEXT,
    "<quad>",
    "</quad>",
    "<ref>",
    "</ref>",
    "<box>",
    "</box>",
]
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclasses.dataclass(frozen=True)
class SmallModel:
    """Sizes of the model; of an image tile in pixels."""

    image_size: int
    vocabulary: int
    vision_hidden: int
    vision_inner: int
    vision_layers: int
    vision_heads: int
    text_hidden: int
    text_inner: int
    text_layers: int
    text_heads: int
    text_kv_heads: int
    max_tokens: int = 2048

    @property
    def tokens_per_tile(self):
        return int((self.image_size // PATCH) ** 2 * DOWNSAMPLE**2)


def train_tokenizer(texts, vocabulary):
    """Byte-level BPE in the form of Qwen2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=1,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def model_config(tokenizer, model):
    return {
        "architectures": ["InternVLForConditionalGeneration"],
        "model_type": "internvl",
        "dtype": "float32",
        "image_token_id": tokenizer.token_to_id(CONTEXT),
        "image_seq_length": model.tokens_per_tile,
        "downsample_ratio": DOWNSAMPLE,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": False,
        "vision_config": {
            "model_type": "internvl_vision",
            "hidden_size": model.vision_hidden,
            "num_hidden_layers": model.vision_layers,
            "num_attention_heads": model.vision_heads,
            "intermediate_size": model.vision_inner,
            "attention_bias": True,
            "use_qk_norm": False,
            "hidden_act": "gelu",
            "norm_type": "layer_norm",
            "layer_norm_eps": 1e-6,
            "image_size": [model.image_size, model.image_size],
            "patch_size": [PATCH, PATCH],
            "num_channels": 3,
            "use_mask_token": False,
            "use_absolute_position_embeddings": True,
            "layer_scale_init_value": 1.0,
            "use_mean_pooling": True,
            "initializer_range": 0.02,
            "hidden_dropout_prob": 0.0,
            "attention_dropout": 0.0,
            "projection_dropout": 0.0,
        },
        "text_config": {
            "model_type": "qwen2",
            "vocab_size": tokenizer.get_vocab_size(),
            "hidden_size": model.text_hidden,
            "num_hidden_layers": model.text_layers,
            "num_attention_heads": model.text_heads,
            "num_key_value_heads": model.text_kv_heads,
            "intermediate_size": model.text_inner,
            "hidden_act": "silu",
            "max_position_embeddings": model.max_tokens,
            "rms_norm_eps": 1e-6,
            "initializer_range": 0.02,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "attention_dropout": 0.0,
            "use_cache": True,
            "bos_token_id": tokenizer.token_to_id(END),
            "pad_token_id": tokenizer.token_to_id(END),
            "eos_token_id": tokenizer.token_to_id(END_TURN),
        },
    }


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf8") as file:
        json.dump(value, file, ensure_ascii=False, indent=2)
        file.write("\n")


def write_model(folder, tokenizer, model):
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    marks = {
        "start_image_token": IMAGE_START,
        "end_image_token": IMAGE_END,
        "context_image_token": CONTEXT,
        "video_token": "<quad>",
    }
    write_json(folder, "config.json", model_config(tokenizer, model))
    write_json(
        folder,
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "processor_class": "InternVLProcessor",
            "model_max_length": model.max_tokens,
            "clean_up_tokenization_spaces": False,
            "eos_token": END_TURN,
            "pad_token": END,
            "bos_token": None,
            "unk_token": None,
            "extra_special_tokens": marks,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    write_json(
        folder, "special_tokens_map.json", {"eos_token": END_TURN, "pad_token": END, **marks}
    )
    write_json(
        folder,
        "preprocessor_config.json",
        {
            "image_processor_type": "GotOcr2ImageProcessor",
            "processor_class": "InternVLProcessor",
            "crop_to_patches": False,
            "min_patches": 1,
            "max_patches": 1,
            "do_resize": True,
            "do_rescale": True,
            "do_normalize": True,
            "do_convert_rgb": True,
            "resample": 3,
            "size": {"height": model.image_size, "width": model.image_size},
            "image_mean": [0.485, 0.456, 0.406],
            "image_std": [0.229, 0.224, 0.225],
        },
    )
    write_json(
        folder,
        "processor_config.json",
        {"processor_class": "InternVLProcessor", "image_seq_length": model.tokens_per_tile},
    )
    write_json(
        folder,
        "generation_config.json",
        {
            "eos_token_id": tokenizer.token_to_id(END_TURN),
            "pad_token_id": tokenizer.token_to_id(END),
        },
    )
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf8") as file:
        file.write(CHAT_TEMPLATE)
