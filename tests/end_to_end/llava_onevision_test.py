"""LLaVA-OneVision from a folder in Hugging Face's form, as LLaVA-NeXT (llava_next_test.py): patches
that are brought down where they are many, one square for each of a record's several pictures, and
videos."""
import json
import os
import sys

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration,
                          LlavaOnevisionProcessor, PreTrainedTokenizerFast, Qwen2Config,
                          SiglipVisionConfig)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil)
from transformers.models.llava_onevision.video_processing_llava_onevision import (
    LlavaOnevisionVideoProcessor)

import llava_next_test

SIDE, PATCH = 56, 14
TOKENS = (SIDE // PATCH) ** 2  # of a tile
RESOLUTIONS = [[56, 112], [112, 56], [112, 112], [56, 168], [168, 56], [168, 112]]
ASPECT = "anyres_max_1"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
# With the texts that tell the template.
JINJA = ("{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\n"
         "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n"
         "{{ m['content'] }}<|im_end|>\n{% endfor %}")


def write_tokenizer(folder, texts):
    """Qwen2's form: bytes, and marks of turns."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf8") as file:
        json.dump({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
                   "chat_template": JINJA}, file)
    return tokenizer


def write_folder(folder, texts):
    os.makedirs(folder)
    tokenizer = write_tokenizer(folder, texts)
    text = Qwen2Config(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=96,
                       num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                       max_position_embeddings=512, bos_token_id=None, eos_token_id=2,
                       pad_token_id=0, initializer_range=0.05, tie_word_embeddings=True)
    vision = SiglipVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                                num_attention_heads=4, image_size=SIDE, patch_size=PATCH,
                                vision_use_head=False)
    torch.manual_seed(11)
    LlavaOnevisionForConditionalGeneration(LlavaOnevisionConfig(
        text_config=text, vision_config=vision, image_grid_pinpoints=RESOLUTIONS,
        vision_aspect_ratio=ASPECT, tie_word_embeddings=True,
        image_token_index=tokenizer.token_to_id("<image>"),
        video_token_index=tokenizer.token_to_id("<video>"))).save_pretrained(folder)
    LlavaOnevisionImageProcessorPil(size={"height": SIDE, "width": SIDE},
                                    image_mean=[0.4, 0.5, 0.6], image_std=[0.5, 0.4, 0.3],
                                    image_grid_pinpoints=RESOLUTIONS).save_pretrained(folder)
    LlavaOnevisionVideoProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.4, 0.5, 0.6],
                                 image_std=[0.5, 0.4, 0.3]).save_pretrained(folder)


def processor_of(folder):
    return LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessorPil.from_pretrained(folder),
        PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", eos_token="<|im_end|>",
                                pad_token="<|endoftext|>"),
        LlavaOnevisionVideoProcessor.from_pretrained(folder), num_image_tokens=TOKENS,
        vision_feature_select_strategy="full", vision_aspect_ratio=ASPECT)


def rendered(conversations, prompt=False):
    """The template's text of a record, with one mark a picture."""
    text = SYSTEM
    for turn in conversations:
        role = "user" if turn["from"] == "human" else "assistant"
        text += f"<|im_start|>{role}\n{turn['value']}<|im_end|>\n"
    return text + ("<|im_start|>assistant\n" if prompt else "")


class Onevision(llava_next_test.Family):
    name, template = "llava_onevision", "qwen2-vl"
    videos, max_frames = True, 0
    max_tokens = 160
    model = LlavaOnevisionForConditionalGeneration
    resolutions = RESOLUTIONS
    texts = ["system user assistant\n", "You are a helpful assistant."]
    end = SPECIAL.index("<|im_end|>")
    write_folder = staticmethod(write_folder)
    processor = staticmethod(processor_of)
    rendered = staticmethod(rendered)

    @staticmethod
    def as_images(pictures):
        return [pictures] if pictures else []

    @staticmethod
    def sizes_count(inputs):
        return inputs["batch_num_images"].tolist() == [1]


if __name__ == "__main__":
    sys.exit(llava_next_test.check_family(Onevision))
