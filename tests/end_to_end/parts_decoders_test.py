"""Models from parts whose language model is InternLM2 or Phi-3, as InternVL begins, behind
InternViT and CLIP: the losses of the same weights as a whole model in Transformers' form, and of
two tensor ranks; the export is that form, of which Transformers computes the same logits."""
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    CLIPVisionModel,
    InternVLVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
)
from transformers.models.internvl.modeling_internvl import InternVLVisionModel

import sentencepiece_file
import tiny_case
from refusals import Cases

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
import internlm2  # pylint: disable=wrong-import-position

SIDE, PATCH, KV_HEADS = 56, 14, 2
TOKENS = {"clip": (SIDE // PATCH) ** 2, "internvit": (SIDE // PATCH // 2) ** 2}
SPECIAL = ["<|im_start|>", "<|im_end|>"]
SIZES = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=KV_HEADS, max_position_embeddings=512, bos_token_id=1,
             eos_token_id=2, pad_token_id=0, initializer_range=0.05, tie_word_embeddings=False)


def write_encoders(folder):
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                 initializer_range=0.05)
    torch.manual_seed(3)
    CLIPVisionModel(CLIPVisionConfig(image_size=SIDE, patch_size=PATCH, **sizes)).save_pretrained(
        f"{folder}/clip")
    InternVLVisionModel(InternVLVisionConfig(
        image_size=[SIDE, SIDE], patch_size=[PATCH, PATCH], attention_bias=True,
        norm_type="layer_norm", **sizes)).save_pretrained(f"{folder}/internvit")


def write_internlm2(folder, texts):
    """The same weights in InternLM2's own form, and as a LLaMA, with its tokenizer.model."""
    for name in ("internlm2", "llama"):
        os.makedirs(f"{folder}/{name}")
        ids = sentencepiece_file.write(f"{folder}/{name}", texts, SPECIAL)
    torch.manual_seed(4)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=max(ids.values()) + 1, **SIZES,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}))
    model.save_pretrained(f"{folder}/llama")
    with open(f"{folder}/llama/config.json", encoding="utf8") as file:
        config = internlm2.config(json.load(file))
    with open(f"{folder}/internlm2/config.json", "w", encoding="utf8") as file:
        json.dump(config, file)
    weights = internlm2.rename(load_file(f"{folder}/llama/model.safetensors"), KV_HEADS)
    save_file(weights, f"{folder}/internlm2/model.safetensors")


def write_phi3(folder, texts):
    os.makedirs(f"{folder}/phi3")
    ids = sentencepiece_file.write(f"{folder}/phi3", texts, SPECIAL)
    torch.manual_seed(6)
    Phi3ForCausalLM(Phi3Config(vocab_size=max(ids.values()) + 1, sliding_window=300,
                               **SIZES)).save_pretrained(f"{folder}/phi3")


def write_config(folder):
    config = f"{folder}/config.yaml"
    with open(config, "w", encoding="utf8") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{vision: {folder}/clip, llm: {folder}/phi3}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  max_tokens: 192
  template: chatml
  tiles: {{max: 1, thumbnail: false}}
train: {{steps: 3, seed: 5, precision: fp32, global_batch: 4, lr: 1.0e-3, warmup: 0,
  schedule: constant, threads: 1}}
checkpoint: {{every: 3}}
""")
    return config


class Pair:
    """An encoder's folder and a language model's."""

    def __init__(self, results, config, folder, vision, llm):
        self.results, self.config, self.folder = results, config, folder
        self.vision, self.llm, self.name = vision, llm, f"{vision} + {llm}"
        self.parts = {"model__vision": f"{folder}/{vision}", "model__llm": f"{folder}/{llm}"}

    def check(self, name, ok, detail=""):
        self.results.check(f"{self.name}: {name}", ok, detail)

    def train(self, name, ranks=1, **settings):
        run = f"{self.folder}/{self.vision}_{self.llm}_{name}"
        done = tiny_case.run(self.config, ranks, "train", run__dir=run, **settings)
        self.check(f"{name} trains", done.returncode == 0 and "are not used" not in done.stderr,
                   done.stderr[-600:])
        return run

    def export(self, run):
        done = tiny_case.program("export", run, "--out", f"{run}_exported")
        self.check("is exported", done.returncode == 0, done.stderr[-500:])
        return f"{run}_exported"

    def trains(self):
        """From the parts, and from a whole model that they were joined to."""
        run = self.train("parts", **self.parts)
        losses = tiny_case.losses(run)
        self.check("the loss falls", len(losses) == 3 and losses[-1] < losses[0], str(losses))
        tensor = self.train("tensor", 2, parallel__tensor=2, parallel__data=1, **self.parts)
        self.check("tensor ranks: the same but for rounding", all(
            abs(a - b) < 1e-5 for a, b in zip(losses, tiny_case.losses(tensor))),
            str(tiny_case.losses(tensor)))
        start = self.export(self.train("start", train__steps=1, train__lr=0, **self.parts))
        whole = self.train("whole", model__vision='""', model__llm='""', model__hf=start)
        self.check("the joined folder has the losses of its parts, bit by bit",
                   tiny_case.losses(whole) == losses, f"{tiny_case.losses(whole)} {losses}")
        return losses, start

    def transformers(self, start):
        """Weights are the parts', under Transformers' names, and it computes the same logits."""
        model, report = AutoModelForImageTextToText.from_pretrained(start, output_loading_info=True)
        self.check("Transformers finds every weight and none is left over",
                   not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
        kind = "phi3" if self.llm == "phi3" else "llama"
        self.check("its form", model.config.text_config.model_type == kind)
        written = f"{self.folder}/{kind}/model.safetensors"
        ours, theirs = load_file(f"{start}/model.safetensors"), load_file(written)
        words = {key.removeprefix("language_model."): value for key, value in ours.items()
                 if key.startswith("language_model.")}
        self.check("the language model's weights are its folder's", words.keys() == theirs.keys()
                   and all(words[key][:len(value)].equal(value) for key, value in theirs.items()),
                   str(words.keys() ^ theirs.keys()))
        tower = "vision_tower.vision_model." if self.vision == "clip" else "vision_tower."
        tiny_case.check_names(self, start, model, tower)
        with open(f"{start}/config.json", encoding="utf8") as file:
            config = json.load(file)
        token = config.get("image_token_index", config.get("image_token_id"))
        torch.manual_seed(8)
        ids = [5, *[token] * TOKENS[self.vision], 20, 21, 22]
        inputs = {"input_ids": torch.tensor([ids]), "pixel_values": torch.randn(1, 3, SIDE, SIDE)}
        save_file(inputs, f"{start}_inputs.safetensors")
        done = tiny_case.program("check", start, f"{start}_inputs.safetensors", "--out",
                                 f"{start}_out.safetensors")
        self.check("check", done.returncode == 0, done.stderr[-300:])
        logits = load_file(f"{start}_out.safetensors")["logits"]
        with torch.no_grad():
            want = model.eval()(**inputs).logits
        error = ((logits - want).abs().max() / want.abs().max()).item()
        self.check("the logits of Transformers", error <= 1e-5, f"{error:.1e}")

    def answers(self, start):
        done = tiny_case.program("generate", start, "--prompt", "What is it?",
                                 "--max-new-tokens", "4")
        self.check("the joined folder answers", done.returncode == 0, done.stderr[-400:])

    def adapters(self, start):
        """Over the joined folder; in PEFT's form the layers are those that Transformers has."""
        run = self.train("adapters", model__vision='""', model__llm='""', model__hf=start,
                         model__adapter__targets='["self_attn.qkv_proj"]')
        out = f"{run}_adapter"
        done = tiny_case.program("export", run, "--out", out)
        self.check("adapters are exported", done.returncode == 0, done.stderr[-400:])
        names = set(load_file(f"{out}/adapter_model.safetensors"))
        layer = "base_model.model.model.language_model.layers.0.self_attn.qkv_proj."
        self.check("their layers are Transformers' modules", layer + "lora_A.weight" in names,
                   str(sorted(names)[:4]))


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="parts_decoders")
    records = tiny_case.write_records(folder, 20, seed=2)
    texts = [turn["value"] for record in records for turn in record["conversations"]]
    texts += ["system", "user", "assistant"]
    write_encoders(folder)
    write_internlm2(folder, texts)
    write_phi3(folder, texts)
    config = write_config(folder)
    for vision in ("internvit", "clip"):
        for llm in ("internlm2", "phi3"):
            pair = Pair(results, config, folder, vision, llm)
            losses, start = pair.trains()
            pair.transformers(start)
            pair.answers(start)
            if llm == "phi3":
                pair.adapters(start)
                continue
            llama = pair.train("llama", model__vision=f"{folder}/{vision}",
                               model__llm=f"{folder}/llama")
            pair.check("the losses of the same weights as a LLaMA, bit by bit",
                       tiny_case.losses(llama) == losses, f"{tiny_case.losses(llama)} {losses}")
    shutil.copytree(f"{folder}/internlm2", f"{folder}/other")
    tensors = load_file(f"{folder}/other/model.safetensors")
    save_file({key: value for key, value in tensors.items() if "1.attention.wqkv" not in key},
              f"{folder}/other/model.safetensors")
    Cases(results).refused("a fused weight is missing", tiny_case.command(
        config, 1, "train", "--dry-run", model__llm=f"{folder}/other",
        run__dir=f"{folder}/refused"), 4, f"{folder}/other", "3 of", "weights are missing")
    questions = f"[{{annotations: {folder}/train.jsonl, images: {folder}/images}}]"
    answers = {"model__llm": f"{folder}/phi3", "eval__answers": questions,
               "eval__answer_samples": 8}
    Cases(results).refused("an answer could grow beyond the window", tiny_case.command(
        config, 2, "train", run__dir=f"{folder}/window", eval__answer_tokens=290, **answers),
        4, f"{folder}/train.jsonl: record 1 with eval.answer_tokens: 290", "sliding_window of 300")
    results.check("before the first step", not tiny_case.losses(f"{folder}/window"))
    done = tiny_case.run(config, 1, "train", run__dir=f"{folder}/within", train__steps=1,
                         eval__answer_tokens=2, data__system="red " * 80, **answers)
    results.check("shorter ones are within it", done.returncode == 0, done.stderr[-400:])
    tiny_case.program("export", f"{folder}/within", "--out", f"{folder}/with_system")
    for more, fits in ((["--set", "data.system=red"], True), ([], False)):
        done = tiny_case.program("generate", f"{folder}/with_system", "--prompt", "What is it?",
                                 "--max-new-tokens", "240", *more)
        results.check("an exported system text is part of prompts" if not more else
                      "but where another is given",
                      fits == (done.returncode == 0) == ("sliding_window" not in done.stderr),
                      done.stderr[-400:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
