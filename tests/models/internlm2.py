"""A folder of Transformers' LLaMA in InternLM2's form: other names, q, k and v in one tensor."""
import re

import torch

RENAMED = (
    (r"\bembed_tokens\.", "tok_embeddings."),
    (r"\.self_attn\.o_proj\.", ".attention.wo."),
    (r"\.mlp\.gate_proj\.", ".feed_forward.w1."),
    (r"\.mlp\.up_proj\.", ".feed_forward.w3."),
    (r"\.mlp\.down_proj\.", ".feed_forward.w2."),
    (r"\.input_layernorm\.", ".attention_norm."),
    (r"\.post_attention_layernorm\.", ".ffn_norm."),
    (r"(^|\.)lm_head\.", r"\1output."),
)


def fuse(q, k, v, kv_heads):
    """For each key/value head: its query heads, the key, the value."""
    groups = [part.unflatten(0, (kv_heads, -1)) for part in (q, k, v)]
    return torch.cat(groups, 1).flatten(0, 1).contiguous()


def rename(tensors, kv_heads):
    """Tensors by the keys of a folder that Transformers saved -> by InternLM2's."""
    result = {}
    for old, tensor in tensors.items():
        name = old
        for pattern, theirs in RENAMED:
            name = re.sub(pattern, theirs, name)
        if ".self_attn.q_proj." in old:
            name = name.replace(".self_attn.q_proj.", ".attention.wqkv.")
            tensor = fuse(*(tensors[old.replace(".q_proj.", f".{x}_proj.")] for x in "qkv"),
                          kv_heads)
        elif re.search(r"\.self_attn\.[kv]_proj\.", old):
            continue
        result[name] = tensor
    return result


def config(llama):
    """config.json of Transformers' LLaMA -> of InternLM2's code, as version 4 writes it."""
    text = {key: value for key, value in llama.items()
            if key not in ("mlp_bias", "head_dim", "attention_bias", "rope_parameters")}
    rope = llama.get("rope_parameters") or {}
    text.update(model_type="internlm2", architectures=["InternLM2ForCausalLM"],
                auto_map={"AutoModelForCausalLM": "modeling_internlm2.InternLM2ForCausalLM"},
                bias=llama.get("attention_bias", False),
                rope_theta=rope.get("rope_theta", 10000.0), rope_scaling=None)
    if rope.get("rope_type", "default") != "default":
        text["rope_scaling"] = {"type": rope["rope_type"], "factor": rope["factor"]}
    return text
