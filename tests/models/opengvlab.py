"""A Transformers InternVL folder in OpenGVLab's own form: other names, a fused qkv, other keys."""
import re

import torch

RENAMED = (
    (r"vision_tower\.embeddings\.cls_token", "vision_model.embeddings.class_embedding"),
    (r"vision_tower\.embeddings\.patch_embeddings\.projection\.",
     "vision_model.embeddings.patch_embedding."),
    (r"vision_tower\.embeddings\.position_embeddings",
     "vision_model.embeddings.position_embedding"),
    (r"vision_tower\.encoder\.layer\.", "vision_model.encoder.layers."),
    (r"\.attention\.projection_layer\.", ".attn.proj."),
    (r"\.attention\.([qk])_norm\.", r".attn.\1_norm."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.lambda_([12])$", r".ls\1"),
    (r"^multi_modal_projector\.layer_norm\.", "mlp1.0."),
    (r"^multi_modal_projector\.linear_1\.", "mlp1.1."),
    (r"^multi_modal_projector\.linear_2\.", "mlp1.3."),
)


def rename(tensors):
    """Tensors by the keys of a folder that Transformers saved -> by OpenGVLab's."""
    result = {}
    for old, tensor in tensors.items():
        name = old
        for pattern, theirs in RENAMED:
            name = re.sub(pattern, theirs, name)
        if ".attention.q_proj." in old:
            name = name.replace(".attention.q_proj.", ".attn.qkv.")
            tensor = torch.cat([tensors[old.replace(".q_proj.", f".{x}_proj.")] for x in "qkv"])
        elif re.search(r"\.attention\.[kv]_proj\.", old):
            continue
        result[name] = tensor
    return result


def config(native):
    """config.json of Transformers -> of OpenGVLab's code."""
    vision, text = native["vision_config"], dict(native["text_config"])
    rope = text.pop("rope_parameters", None) or {}
    text.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
    return {
        "model_type": "internvl_chat",
        "architectures": ["InternVLChatModel"],
        "auto_map": {"AutoModel": "modeling_internvl_chat.InternVLChatModel"},
        "downsample_ratio": native["downsample_ratio"],
        "image_token_id": native["image_token_id"],
        "force_image_size": vision["image_size"][0],
        "dynamic_image_size": True,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 2,
        "use_thumbnail": True,
        "ps_version": "v2",
        "select_layer": -1,
        "template": "internvl2_5",
        "torch_dtype": "float32",
        "llm_config": text,
        "vision_config": {
            "model_type": "intern_vit_6b",
            "image_size": vision["image_size"][0],
            "patch_size": vision["patch_size"][0],
            "qk_normalization": vision.get("use_qk_norm", False),
            "qkv_bias": vision.get("attention_bias", False),
            "drop_path_rate": 0.1,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "initializer_factor": vision.get("layer_scale_init_value", 0.1),
            **{key: vision[key] for key in ("hidden_size", "intermediate_size", "hidden_act",
                                            "num_hidden_layers", "num_attention_heads",
                                            "num_channels", "norm_type", "layer_norm_eps")},
        },
    }
