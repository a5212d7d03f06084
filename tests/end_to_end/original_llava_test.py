"""LLaVA's own folders and files beside llava-hf's form of the same weights: the same losses and
logits. A folder has a language model and a projector (liuhaotian/llava-v1.5-7b), or the encoder
too; mm_projector.bin is what stage 1 writes."""
import json
import os
import re
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import llava_test
import tiny_case
from llava_test import PATCH, SIDE, SYSTEM, TOKENS
from refusals import Cases

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]  # LLaVA's own tokenizer has no <image>
LAYERS = 4  # of the encoder; its features are of the last but two
TOWER = "openai/clip-vit-large-patch14-336"


def grown(rows):
    """With a row for <image>: the mean of all others."""
    return torch.cat([rows, rows.double().mean(0, keepdim=True).float()])


def encoder(seed):
    torch.manual_seed(seed)
    return CLIPVisionModel(CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
        image_size=SIDE, patch_size=PATCH, initializer_range=0.05))


class Folders:
    """clip: the encoder. other_clip: another one's weights. hf: the whole in Transformers' form.
    own: the language model and the projector in LLaVA's own form, in shards of PyTorch's files.
    with_tower: the encoder too. base: the language model alone."""

    def __init__(self, folder, texts):
        self.folder = folder
        clip, other = encoder(3), encoder(4)
        for name, model in (("clip", clip), ("other_clip", other)):
            model.save_pretrained(f"{folder}/{name}")
            CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SIDE,
                                  image_mean=[0.4, 0.5, 0.6]).save_pretrained(f"{folder}/{name}")
        os.makedirs(f"{folder}/base")
        tokenizer = llava_test.write_tokenizer(f"{folder}/base", texts, SPECIAL)
        self.vocabulary = tokenizer.get_vocab_size()
        text = LlamaConfig(
            vocab_size=self.vocabulary + 1, hidden_size=48, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
            max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
            pad_token_id=tokenizer.token_to_id("<pad>"), initializer_range=0.05)
        torch.manual_seed(5)
        self.model = LlavaForConditionalGeneration(LlavaConfig(
            text_config=text, vision_config=clip.config, image_seq_length=TOKENS,
            vision_feature_layer=-3, image_token_index=self.vocabulary))
        self.model.model.vision_tower.load_state_dict(clip.state_dict())
        with torch.no_grad():
            for module in (self.model.get_input_embeddings(), self.model.lm_head):
                module.weight.copy_(grown(module.weight[:-1]))
        self.write_hf(texts)
        self.write_own(text, clip)

    def write_hf(self, texts):
        hf = f"{self.folder}/hf"
        self.model.save_pretrained(hf)
        llava_test.write_tokenizer(hf, texts, [*SPECIAL, "<image>"])
        for path in ("preprocessor_config.json",):
            with open(f"{self.folder}/clip/{path}", encoding="utf8") as file:
                settings = json.load(file)
            settings.update(do_pad=True, image_processor_type="LlavaImageProcessor")
            with open(f"{hf}/{path}", "w", encoding="utf8") as file:
                json.dump(settings, file)

    def write_own(self, text, clip):
        words = {f"model.{key}": value
                 for key, value in self.model.model.language_model.state_dict().items()}
        words["lm_head.weight"] = self.model.lm_head.weight.detach()
        for key in ("model.embed_tokens.weight", "lm_head.weight"):
            words[key] = words[key][:-1].clone()
        projector = self.model.model.multi_modal_projector.state_dict()
        self.projector = {
            "model.mm_projector." + key.replace("linear_1", "0").replace("linear_2", "2"): value
            for key, value in projector.items()}
        tower = {f"model.vision_tower.vision_tower.vision_model.{key}": value.contiguous()
                 for key, value in clip.state_dict().items()}
        torch.save(self.projector, f"{self.folder}/mm_projector.bin")
        save_file(words, f"{self.folder}/base/model.safetensors")
        config = text.to_dict() | {"architectures": ["LlamaForCausalLM"],
                                   "vocab_size": self.vocabulary}
        self.write_config("base", config)
        self.config = config | {
            "architectures": ["LlavaLlamaForCausalLM"], "model_type": "llava",
            "freeze_mm_mlp_adapter": False, "image_aspect_ratio": "pad", "mm_hidden_size": 32,
            "mm_projector_type": "mlp2x_gelu", "mm_resampler_type": None,
            "mm_use_im_patch_token": False, "mm_use_im_start_end": False,
            "mm_vision_select_feature": "patch", "mm_vision_select_layer": -3,
            "mm_vision_tower": TOWER, "tune_mm_mlp_adapter": False, "use_mm_proj": True}
        for name in ("own", "with_tower"):
            shutil.copytree(f"{self.folder}/base", f"{self.folder}/{name}",
                            ignore=shutil.ignore_patterns("*.safetensors"))
            self.write_config(name, self.config)
        torch.save(words, f"{self.folder}/own/pytorch_model-00001-of-00002.bin")
        torch.save(self.projector, f"{self.folder}/own/pytorch_model-00002-of-00002.bin")
        torch.save(self.projector, f"{self.folder}/own/mm_projector.bin")
        places = {key: f"pytorch_model-0000{1 + (key in self.projector)}-of-00002.bin"
                  for key in {**words, **self.projector}}
        with open(f"{self.folder}/own/pytorch_model.bin.index.json", "w", encoding="utf8") as file:
            json.dump({"metadata": {}, "weight_map": places}, file)
        save_file({**words, **self.projector, **tower},
                  f"{self.folder}/with_tower/model.safetensors")

    def write_config(self, name, config):
        with open(f"{self.folder}/{name}/config.json", "w", encoding="utf8") as file:
            json.dump(config, file)


def write_config(folder):
    config = f"{folder}/config.yaml"
    with open(config, "w", encoding="utf8") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{vision: {folder}/clip, llm: {folder}/own}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  template: vicuna_v1
  max_tokens: 256
train: {{steps: 3, seed: 5, precision: fp32, global_batch: 4, lr: 1.0e-3, warmup: 0,
  schedule: constant, threads: 1}}
checkpoint: {{every: 3}}
""")
    return config


def compare(results, folder, config):
    """Losses of three steps from each form of the same weights."""
    base = {"model__llm": f"{folder}/base", "data__pad_pictures": "true",
            "model__projector__feature_layer": -3}
    runs = {
        "hf": {"model__vision": '""', "model__llm": '""', "model__hf": f"{folder}/hf"},
        "own": {},
        "own_tensor": {"parallel__tensor": 2, "parallel__data": 1},
        "with_tower": {"model__vision": f"{folder}/other_clip",
                       "model__llm": f"{folder}/with_tower"},
        "file": base | {"model__projector__weights": f"{folder}/mm_projector.bin"},
        "safetensors": base | {
            "model__projector__weights": f"{folder}/adapters.safetensors"},
        "drawn": base,
        "other": {"model__vision": f"{folder}/other_clip"},
    }
    says = {"own": "clip and .*own, which has the projector too in LLaVA's original form "
                   "\\(layer -3, pictures are padded\\)",
            "with_tower": "weights from [^ ]*with_tower, which has the encoder and projector too",
            "file": "the projector's from [^ ]*/mm_projector.bin"}
    losses = {}
    for name, settings in runs.items():
        done = tiny_case.run(config, 2 if name == "own_tensor" else 1, "train",
                             run__dir=f"{folder}/run_{name}", **settings)
        results.check(f"{name}: trains", done.returncode == 0, done.stderr[-600:])
        results.check(f"{name}: nothing is missed",
                      "are not used" not in done.stderr and
                      re.search(says.get(name, ""), done.stderr) is not None, done.stderr[-1500:])
        losses[name] = tiny_case.losses(f"{folder}/run_{name}")
    for name in ("own", "with_tower", "file", "safetensors"):
        results.check(f"{name}: the losses of llava-hf's form, bit by bit",
                      len(losses["hf"]) == 3 and losses[name] == losses["hf"],
                      f"{losses[name]} {losses['hf']}")
    results.check("tensor ranks: the same but for rounding", all(
        abs(a - b) < 1e-5 for a, b in zip(losses["own_tensor"], losses["hf"])),
        str(losses["own_tensor"]))
    cache = f"{folder}/hub"
    snapshot = f"{cache}/models--{TOWER.replace('/', '--')}/snapshots/a"
    shutil.copytree(f"{folder}/clip", snapshot)
    os.environ["HF_HUB_CACHE"] = cache
    done = tiny_case.run(config, 1, run__dir=f"{folder}/run_alone", model__vision='""',
                         model__llm='""', model__hf=f"{folder}/own")
    del os.environ["HF_HUB_CACHE"]
    results.check("the folder alone, its encoder in the Hub's cache", done.returncode == 0 and
                  tiny_case.losses(f"{folder}/run_alone") == losses["hf"], done.stderr[-600:])
    done = tiny_case.run(config, 1, run__dir=f"{folder}/run_alone", train__steps=4,
                         model__vision=snapshot)
    results.check("goes on from the parts that it became", "step 3 of 4" in done.stderr,
                  done.stderr[-600:])
    adapters = {"model__adapter__targets": "all-linear", "model__adapter__rank": 4,
                "model__adapter__dora": "true"}
    for name in ("hf", "own", "with_tower", "file"):
        run = f"{folder}/run_{name}_adapters"
        done = tiny_case.run(config, 1, "train", run__dir=run, **runs[name], **adapters)
        results.check(f"{name}: trains adapters", done.returncode == 0, done.stderr[-600:])
        losses[f"{name} adapted"] = tiny_case.losses(run)
        results.check(f"{name}: the losses of adapters over llava-hf's form, bit by bit",
                      losses[f"{name} adapted"] == losses["hf adapted"] != losses["hf"],
                      str(losses[f"{name} adapted"]))
    for name in ("drawn", "other"):
        results.check(f"{name}: another projector or encoder has other losses",
                      abs(losses[name][0] - losses["hf"][0]) > 1e-5, str(losses[name]))


def export(results, folders, config):
    """Parts that are joined and not trained: Transformers' logits of the export and of hf."""
    folder = folders.folder
    run, out = f"{folder}/joined", f"{folder}/exported"
    done = tiny_case.run(config, 1, run__dir=run, train__steps=1, train__lr=0)
    results.check("a step without a rate", done.returncode == 0, done.stderr[-500:])
    done = tiny_case.program("export", run, "--out", out)
    results.check("is exported", done.returncode == 0, done.stderr[-500:])
    ours, theirs = (load_file(f"{where}/model.safetensors") for where in (out, f"{folder}/hf"))
    theirs = {re.sub("^vision_tower.(?!vision_model)", "vision_tower.vision_model.", key): value
              for key, value in theirs.items()}
    same = ours.keys() == theirs.keys() and all(ours[key].equal(theirs[key]) for key in ours)
    results.check("the weights of llava-hf's form, bit by bit", same,
                  str(ours.keys() ^ theirs.keys()))
    model, report = LlavaForConditionalGeneration.from_pretrained(out, output_loading_info=True)
    results.check("Transformers finds every weight and none is left over",
                  not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
    results.check("the layer of the features", model.config.vision_feature_layer == -3)
    torch.manual_seed(8)
    ids = [1, *[folders.vocabulary] * TOKENS, 20, 21, 22]
    inputs = {"input_ids": torch.tensor([ids]), "pixel_values": torch.randn(1, 3, SIDE, SIDE)}
    save_file(inputs, f"{folder}/inputs.safetensors")
    done = tiny_case.program("check", out, f"{folder}/inputs.safetensors", "--out",
                             f"{folder}/out.safetensors")
    results.check("check", done.returncode == 0, done.stderr[-300:])
    logits = load_file(f"{folder}/out.safetensors")["logits"]
    with torch.no_grad():
        for name, one in (("the export", model), ("hf", folders.model)):
            want = one.eval()(**inputs).logits
            error = ((logits - want).abs().max() / want.abs().max()).item()
            results.check(f"the logits of Transformers with {name}", error <= 1e-6, f"{error:.1e}")


def refusals(results, folders, config):
    cases, folder = Cases(results), folders.folder
    projector = folders.projector
    files = {
        "linear": {"model.mm_projector.weight": torch.ones(48, 32),
                   "model.mm_projector.bias": torch.ones(48)},
        "narrow": {key: value[:, :16] if key.endswith("0.weight") else value
                   for key, value in projector.items()},
        "long": projector | {"model.mm_projector.4.weight": torch.ones(48, 48),
                             "model.mm_projector.4.bias": torch.ones(48)},
        "none": {"model.embed_tokens.weight": torch.ones(4, 48)},
    }
    for name, tensors in files.items():
        torch.save({key: value.clone() for key, value in tensors.items()}, f"{folder}/{name}.bin")
    ours = "the model's is linear_1.weight [48, 32], linear_2.weight [48, 48]"
    of_file = [(f"a projector: {name}", 4, ("model.projector.weights", *words), {
        "model__llm": f"{folder}/base", "model__projector__weights": f"{folder}/{name}.bin"})
               for name, words in {
                   "linear": ("weight [48, 32]", ours),
                   "narrow": ("linear_1.weight [48, 16], linear_2.weight [48, 48]", ours),
                   "long": ("4.weight [48, 48], linear_1.weight [48, 32]", ours),
                   "none": ("holds no projector",), "absent": ("no such file",)}.items()]
    changes = {
        "anyres": ({"mm_patch_merge_type": "spatial_unpad", "image_aspect_ratio": "anyres"},
                   ("mm_patch_merge_type", "spatial_unpad", "llava-hf")),
        "linear_config": ({"mm_projector_type": "linear"}, ("mm_projector_type", "mlp2x_gelu")),
        "wide": ({"mm_hidden_size": 1024}, ("model.vision", "32", "1024", TOWER)),
        "marks": ({"mm_use_im_start_end": True}, ("mm_use_im_start_end",)),
    }
    for name, (change, _) in changes.items():
        shutil.copytree(f"{folder}/own", f"{folder}/{name}")
        folders.write_config(name, folders.config | change)
    of_config = [(name, 4, words, {"model__llm": f"{folder}/{name}"})
                 for name, (_, words) in changes.items()]
    no_parts = {"model__vision": '""', "model__llm": '""'}
    for name, code, words, settings in (
            *of_file, *of_config,
            ("the folder alone", 4, (f"hf download {TOWER}", "model.llm", "model.vision"),
             no_parts | {"model__hf": f"{folder}/own"}),
            ("the folder alone, of any resolution", 4, ("spatial_unpad", "llava-hf/llava-v1.6"),
             no_parts | {"model__hf": f"{folder}/anyres"}),
            ("a file beside a whole model", 2, ("model.projector",), no_parts | {
                "model__hf": f"{folder}/hf",
                "model__projector__weights": f"{folder}/mm_projector.bin"}),
            ("a file beside random weights", 2, ("model.projector.weights", "model.init"), {
                "model__init": "random",
                "model__projector__weights": f"{folder}/mm_projector.bin"}),
            ("biases that the model has not", 4, ("model.llm", "without biases"),
             {"model__projector__bias": "false"})):
        cases.refused(name, tiny_case.command(config, 1, "train", "--dry-run",
                                              run__dir=f"{folder}/refused", **settings),
                      code, *words)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="original_llava")
    records = tiny_case.write_records(folder, 20, seed=2)
    texts = [turn["value"] for record in records for turn in record["conversations"]]
    folders = Folders(folder, texts + ["USER: ASSISTANT:", SYSTEM])
    save_file({"base_model.model." + key: value for key, value in folders.projector.items()},
              f"{folder}/adapters.safetensors")
    config = write_config(folder)
    compare(results, folder, config)
    export(results, folders, config)
    refusals(results, folders, config)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
