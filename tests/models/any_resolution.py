"""Tiny random models that take pictures of any resolution, and their pictures and videos."""
import torch
from transformers import (LlavaNextConfig, LlavaNextForConditionalGeneration,
                          LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration)

IMAGE, VIDEO = 199, 1  # tokens
VISION = {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3,
          "num_attention_heads": 4, "patch_size": 28}
# Height and width of each sample's pictures, with the tiles and tokens that LLaVA-NeXT makes of
# them: rows that are padding are left out of either.
SIZES = ([(100, 200, 5, 14), (10, 10, 3, 10)], [(10, 10, 3, 10)], [])
# LLaVA-OneVision: 6 x 4 patches brought down to 4 x 2; two squares, each with a vector behind it.
ONEVISION_SIZES = ([(168, 110, 7, 16)], [(100, 200, 1, 5), (10, 10, 1, 5)], [])
# With three patches a side: a picture behind a video of two frames, whose height and width are no
# matter; a video alone.
ONEVISION_VIDEOS = ([(None, None, 2, 9), (84, 84, 2, 21)], [(None, None, 2, 9)], [])


def llava_next(text):
    """LLaVA-NeXT, with four patches a tile."""
    return LlavaNextForConditionalGeneration(LlavaNextConfig(
        vision_config=VISION | {"image_size": 56, "model_type": "clip_vision_model"},
        text_config=text.to_dict(), image_token_index=IMAGE,
        image_grid_pinpoints=[[112, 112], [112, 56], [168, 56]]))


def llava_onevision(text, side=2):
    """LLaVA-OneVision, with tiles of `side` patches a side, brought down to those of three tiles.
    Two patches a side of a video's frame become one, three become two."""
    pixels = VISION["patch_size"] * side
    resolutions = [[112, 112], [168, 112]] if side == 2 else [[pixels, pixels]]
    return LlavaOnevisionForConditionalGeneration(LlavaOnevisionConfig(
        vision_config=VISION | {"image_size": pixels, "model_type": "siglip_vision_model",
                                "vision_use_head": False},
        text_config=text.to_dict(), image_token_index=IMAGE, video_token_index=VIDEO,
        image_grid_pinpoints=resolutions, vision_aspect_ratio="anyres_max_3",
        tie_word_embeddings=text.tie_word_embeddings))


def add(sample, all_sizes, sizes, generator):
    """Puts pictures and videos, `sizes` of `all_sizes`, into a sample, with text between them."""
    at, ids = 2, sample["input_ids"]
    for height, _, _, tokens in sizes:
        ids[0, at:at + tokens] = VIDEO if height is None else IMAGE
        at += tokens + 1
    sample["labels"][(ids == IMAGE) | (ids == VIDEO)] = -100
    pictures = [size for size in sizes if size[0] is not None]
    frames = [size[2] for size in sizes if size[0] is None]
    tile = (3, 84, 84) if all_sizes is ONEVISION_VIDEOS else (3, 56, 56)
    if frames:
        sample["pixel_values_videos"] = torch.randn(len(frames), frames[0], *tile,
                                                    generator=generator)
    if not pictures:
        return
    sample["pixel_values"] = torch.randn(sum(size[2] for size in pictures), *tile,
                                         generator=generator)
    sample["image_sizes"] = torch.tensor([size[:2] for size in pictures])
    if all_sizes is not SIZES:
        sample["batch_num_images"] = torch.tensor([len(pictures)])


def sizes_of(config):
    """The pictures and videos of a model that takes them in any resolution; None: another."""
    if hasattr(config, "vision_aspect_ratio"):
        return ONEVISION_SIZES if config.vision_config.image_size == 56 else ONEVISION_VIDEOS
    return SIZES if hasattr(config, "image_grid_pinpoints") else None
