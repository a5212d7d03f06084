"""Tiny random models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, whose pictures are grids of patches of
14 pixels. `text`: sizes of the language model; `image`: the placeholder token, behind three that
stand for videos and the marks of pictures."""
import itertools

from transformers import (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration)


def made(kind, config, text, vision, image, rope):
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, **rope}
    vision = {"depth": 3, "num_heads": 4, "patch_size": 14, **vision}
    return kind(config(text_config=text, vision_config=vision, image_token_id=image,
                       video_token_id=image - 1, vision_start_token_id=image - 2,
                       vision_end_token_id=image - 3,
                       tie_word_embeddings=text["tie_word_embeddings"]))


def qwen2_vl(text, image):
    vision = {"embed_dim": 32, "mlp_ratio": 2, "hidden_size": text["hidden_size"]}
    return made(Qwen2VLForConditionalGeneration, Qwen2VLConfig, text, vision, image,
                {"mrope_section": [1, 1, 2]})


def qwen2_5_vl(text, image):
    vision = {"hidden_size": 32, "intermediate_size": 56, "out_hidden_size": text["hidden_size"],
              "window_size": 56, "fullatt_block_indexes": [1]}
    return made(Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLConfig, text, vision, image,
                {"mrope_section": [1, 1, 2]})


def qwen3_vl(text, image, features):
    """The outputs of encoder blocks `features` are added behind the decoder's first blocks."""
    text["head_dim"] = 16
    vision = {"hidden_size": 32, "intermediate_size": 56, "out_hidden_size": text["hidden_size"],
              "num_position_embeddings": 25, "deepstack_visual_indexes": features}
    return made(Qwen3VLForConditionalGeneration, Qwen3VLConfig, text, vision, image,
                {"mrope_section": [4, 2, 2], "mrope_interleaved": True})


def with_published_positions(model):
    """The model, with text behind a video at the position after the video's largest, as the models
    were trained (Qwen's rope2d.py, vLLM, Transformers 4). Transformers 5.23 has it behind the
    longer side, among the times of a long video (huggingface/transformers#45381), and generates
    behind them."""
    own = model.model.get_rope_index

    def get_rope_index(input_ids, mm_token_type_ids, attention_mask=None, **facts):
        positions, deltas = own(input_ids, mm_token_type_ids, attention_mask=attention_mask,
                                **facts)
        for row, kinds in enumerate(mm_token_type_ids):
            places = range(len(kinds))
            if attention_mask is not None:
                places = attention_mask[row].nonzero().flatten().tolist()
            behind = 0
            for _, group in itertools.groupby(places, lambda place, of=kinds: of[place].item()):
                group = list(group)
                # Of a video all axes begin with the same position.
                block = positions[:, row, group]
                positions[:, row, group] = block - block[0, 0] + behind
                behind += (block - block[0, 0]).max().item() + 1
            deltas[row] = behind - len(places)
        return positions, deltas

    model.model.get_rope_index = get_rope_index
    return model
