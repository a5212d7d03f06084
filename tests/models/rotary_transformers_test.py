"""rotary_transformers_test.py PRINT_ANGLES   cosines and sines of every scaling of rotary positions
equal those of Transformers, read from its own form of config.json and from that of version 4."""
import copy
import json
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import (LlamaConfig, MistralConfig, Phi3Config, Qwen2_5_VLConfig, Qwen2Config,
                          Qwen3Config)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

BOUND = 1e-6  # of cosines and sines
SIZES = {"vocab_size": 64, "hidden_size": 256, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LENGTHS = (20, 300, 64, 65, 1)  # within the original positions and beyond them, in one row
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 8.0,
        "original_max_position_embeddings": 64}


def longrope(pairs, **more):
    """Factors like those of Phi-3: near 1 for fast pairs, larger for slow ones."""
    generator = torch.Generator().manual_seed(pairs)
    rise = torch.linspace(0, 1, pairs) + 0.1 * torch.rand(pairs, generator=generator)
    return {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": (1 + rise).tolist(),
            "long_factor": (1 + 60 * rise).tolist(), **more}


LLAMA, PHI3 = (LlamaConfig, LlamaRotaryEmbedding), (Phi3Config, Phi3RotaryEmbedding)
CASES = {
    "default": (*LLAMA, {"rope_type": "default", "rope_theta": 5e5}, {}),
    "linear": (*LLAMA, {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}, {}),
    "linear mistral": (MistralConfig, MistralRotaryEmbedding,
                       {"rope_type": "linear", "rope_theta": 1e6, "factor": 4}, {"head_dim": 32}),
    "llama3": (*LLAMA, {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
                        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 64}, {}),
    "dynamic": (*LLAMA, {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
                {"max_position_embeddings": 64}),
    "yarn": (*LLAMA, YARN, {}),
    "yarn qwen2": (Qwen2Config, Qwen2RotaryEmbedding, YARN, {}),
    "yarn qwen3": (Qwen3Config, Qwen3RotaryEmbedding, YARN, {"head_dim": 128}),
    "yarn betas": (*LLAMA, YARN | {"beta_fast": 16.5, "beta_slow": 2}, {}),
    "yarn not truncated": (*LLAMA, YARN | {"truncate": False}, {}),
    "yarn attention_factor": (*LLAMA, YARN | {"attention_factor": 0.75}, {}),
    "yarn mscale": (*LLAMA, YARN | {"mscale": 1.2, "mscale_all_dim": 0.7}, {}),
    "yarn mscale alone": (*LLAMA, YARN | {"mscale": 1.2}, {}),
    "yarn no factor": (*LLAMA, YARN | {"factor": None}, {}),
    "yarn factor 1": (*LLAMA, YARN | {"factor": 1.0}, {}),
    "yarn bounds meet": (*LLAMA, YARN | {"original_max_position_embeddings": 5}, {}),
    "longrope": (*PHI3, longrope(32), {"original_max_position_embeddings": 64}),
    "longrope part": (*PHI3, longrope(24), {"original_max_position_embeddings": 64,
                                            "partial_rotary_factor": 0.75}),
    "default part": (*PHI3, {"rope_type": "default", "rope_theta": 1e4},
                     {"partial_rotary_factor": 0.5}),
    "longrope attention_factor": (*PHI3, longrope(32, attention_factor=1.25),
                                  {"original_max_position_embeddings": 64}),
    "longrope factor": (*PHI3, longrope(32, factor=16.0),
                        {"original_max_position_embeddings": 64}),
    "longrope shorter": (*PHI3, longrope(32), {"original_max_position_embeddings": 1024}),
    "longrope llama": (*LLAMA, longrope(32, original_max_position_embeddings=64), {}),
}


def version4(written):
    """config.json as version 4 of Transformers writes it."""
    older = copy.deepcopy(written)
    rope = older.pop("rope_parameters")
    older["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    part = rope.pop("partial_rotary_factor", None)
    if part is not None:
        older["partial_rotary_factor"] = part
    if older["model_type"] == "phi3":
        rope.pop("original_max_position_embeddings", None)
        rope["type"] = {"longrope": "su"}.get(rope["type"], rope["type"])
    older["rope_scaling"] = None if rope["type"] == "default" else rope
    return older


def ours(program, written, axes, pairs):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(written, file)
        file.flush()
        done = subprocess.run([program, file.name, str(axes), *map(str, LENGTHS)],
                              capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode())
    numbers = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32)
    return numbers.view(2, sum(LENGTHS), pairs)


def theirs(rotary, axes):
    """Of each segment alone, since a row's longest position decides for all of it, and by a module
    of its own, since "dynamic" keeps the frequencies of the longest that it has seen."""
    parts = []
    for length in LENGTHS:
        positions = torch.arange(length)[None]
        if axes == 3:
            positions = torch.stack([positions, positions // 2, positions // 3])
        found = torch.stack(copy.deepcopy(rotary)(torch.zeros(1), positions))
        parts.append(found[:, 0, :, :found.shape[-1] // 2])
    return torch.cat(parts, 1)


def cases():
    """(name, rotary embedding, config.json of version 5, of version 4, axes of positions)."""
    for name, (config_class, rotary_class, rope, more) in CASES.items():
        config = config_class(**{**SIZES, **more, "rope_parameters": dict(rope)})
        written = json.loads(config.to_json_string(use_diff=False))
        yield name, rotary_class(config), written, version4(written), 1
    for name in ("yarn", "linear"):
        rope = CASES[name][2] | {"mrope_section": [8, 12, 12]}
        config = Qwen2_5_VLConfig(
            text_config={**SIZES, "rope_parameters": rope}, image_token_id=5, video_token_id=6,
            vision_config={"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32,
                           "out_hidden_size": SIZES["hidden_size"]})
        written = json.loads(config.to_json_string())
        yield (name + " mrope", Qwen2_5_VLRotaryEmbedding(config.text_config), written,
               {**written, "text_config": version4(written["text_config"])}, 3)


def main():
    transformers.utils.logging.set_verbosity_error()
    failed = count = 0
    for name, rotary, written, older, axes in cases():
        want = theirs(rotary, axes)
        for version, config in ((5, written), (4, older)):
            error = (ours(sys.argv[1], config, axes, want.shape[-1]) - want).abs().max().item()
            wrong = not error <= BOUND
            failed, count = failed + wrong, count + 1
            print(f"{name:26} version {version}  {error:.1e}{'  FAILED' if wrong else ''}")
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
