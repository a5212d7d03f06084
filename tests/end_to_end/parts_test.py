"""A model from parts: an encoder's folder and a language model's, made by Transformers, and a new
projector. The first stage trains the projector alone; what is exported is the model that
Transformers makes of the same parts, and the next stage trains it."""
import json
import os
import shutil
import sys
import tempfile

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoProcessor,
    CLIPConfig,
    CLIPModel,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.internvl.modeling_internvl import InternVLVisionModel

import tiny_case
from refusals import Cases

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
import opengvlab  # pylint: disable=wrong-import-position

SIDE, PATCH = 56, 14
CHATML = tiny_case.SPECIAL[:3]  # none of those for pictures
INTERNVL_TOKENS = ["<img>", "</img>", "<IMG_CONTEXT>", "<quad>", "</quad>", "<ref>", "</ref>",
                   "<box>", "</box>"]


def write_tokenizer(folder, records, special=CHATML):
    os.makedirs(folder, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [t["value"].replace("<image>", "") for r in records for t in r["conversations"]]
    tokenizer.train_from_iterator(texts + ["system user assistant\n"], trainers.BpeTrainer(
        vocab_size=360, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
                   "added_tokens_decoder": {
                       str(tokenizer.token_to_id(t)): {"content": t, "special": True}
                       for t in special},
                   "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"}, file)
    return tokenizer


class Llava:
    """CLIP, its text model beside it, and Qwen2 with a head of its own."""

    name, image_tokens, placeholder = "llava", ["<image>"], "<image>"

    def __init__(self, folder, records):
        sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                     num_attention_heads=4, initializer_range=0.05)
        torch.manual_seed(3)
        clip = CLIPModel(CLIPConfig(vision_config=dict(sizes, image_size=SIDE, patch_size=PATCH),
                                    text_config=dict(sizes, vocab_size=64), projection_dim=16))
        clip.save_pretrained(f"{folder}/clip")
        CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SIDE, resample=2,
                              image_mean=[0.4, 0.5, 0.6]).save_pretrained(f"{folder}/clip")
        self.vision, self.encoder = f"{folder}/clip", clip.vision_model
        self.llm = f"{folder}/qwen2"
        # It has another family's token for pictures too.
        self.tokenizer = write_tokenizer(self.llm, records, [*CHATML, "<IMG_CONTEXT>"])
        self.decoder = Qwen2ForCausalLM(Qwen2Config(
            vocab_size=self.tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=512, bos_token_id=None, eos_token_id=2, pad_token_id=0,
            initializer_range=0.05, tie_word_embeddings=False))
        self.decoder.save_pretrained(self.llm)

    def joined(self, image_token):
        config = LlavaConfig(vision_config=self.encoder.config, text_config=self.decoder.config,
                             vision_feature_layer=-2, vision_feature_select_strategy="default",
                             projector_hidden_act="gelu", image_token_index=image_token,
                             image_seq_length=self.tokens, tie_word_embeddings=False)
        return LlavaForConditionalGeneration(config)

    tokens = (SIDE // PATCH) ** 2  # of a picture
    whole = LlavaForConditionalGeneration
    tower = "vision_tower.vision_model."  # of an export's names
    filter = 2  # bilinear


class InternVl:
    """InternViT in OpenGVLab's form, and LLaMA whose head is its embedding."""

    name, image_tokens, placeholder = "internvl", INTERNVL_TOKENS, "<IMG_CONTEXT>"

    def __init__(self, folder, records):
        torch.manual_seed(4)
        config = InternVLVisionConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            image_size=[SIDE, SIDE], patch_size=[PATCH, PATCH], attention_bias=True,
            use_qk_norm=True, norm_type="rms_norm", layer_norm_eps=1e-6, initializer_range=0.05)
        self.encoder = InternVLVisionModel(config)
        self.vision = f"{folder}/internvit"
        os.makedirs(self.vision)
        ours = {f"vision_tower.{k}": v for k, v in self.encoder.state_dict().items()}
        theirs = {k.removeprefix("vision_model."): v.contiguous()
                  for k, v in opengvlab.rename(ours).items()}
        save_file(theirs, f"{self.vision}/model.safetensors")
        native = {"vision_config": config.to_dict(), "text_config": {}, "downsample_ratio": 0.5,
                  "image_token_id": 0}
        with open(f"{self.vision}/config.json", "w", encoding="utf8") as file:
            json.dump(opengvlab.config(native)["vision_config"], file)
        self.llm = f"{folder}/llama"
        self.tokenizer = write_tokenizer(self.llm, records)
        self.decoder = LlamaForCausalLM(LlamaConfig(
            vocab_size=self.tokenizer.get_vocab_size() + 4, hidden_size=48, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
            max_position_embeddings=512, bos_token_id=None, eos_token_id=2, pad_token_id=0,
            initializer_range=0.05, tie_word_embeddings=True))
        self.decoder.save_pretrained(self.llm)

    def joined(self, image_token):
        config = InternVLConfig(vision_config=self.encoder.config,
                                text_config=self.decoder.config, downsample_ratio=0.5,
                                image_token_id=image_token, image_seq_length=self.tokens,
                                projector_hidden_act="gelu", vision_feature_layer=-1,
                                tie_word_embeddings=True)
        return InternVLForConditionalGeneration(config)

    tokens = (SIDE // PATCH // 2) ** 2
    whole = InternVLForConditionalGeneration
    tower = "vision_tower."
    filter = 3


def grown(rows, tokens):
    """An embedding with rows for `tokens` tokens: new ones are the mean of all others."""
    new = max(0, tokens - len(rows))
    return torch.cat([rows, rows.double().mean(0).float().expand(new, -1)])


class Case:
    def __init__(self, results, folder, records, kind):
        self.results, self.folder = results, f"{folder}/{kind.name}"
        self.pictures = f"{folder}/images"
        os.makedirs(self.folder)
        self.parts = kind(self.folder, records)
        self.records = records
        # What Transformers' tokenizer does with the tokens that are missing.
        self.parts.tokenizer.add_special_tokens(
            [AddedToken(t, special=True, normalized=False) for t in kind.image_tokens])
        self.vocabulary = max(self.parts.tokenizer.get_vocab_size(),
                              self.parts.decoder.config.vocab_size)
        self.config = f"{self.folder}/config.yaml"
        with open(self.config, "w", encoding="utf8") as file:
            file.write(f"""run: {{dir: {self.folder}/run}}
model: {{vision: {self.parts.vision}, llm: {self.parts.llm}, freeze: [vision, llm]}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  max_tokens: 192
  tiles: {{min: 1, max: 2}}
train: {{steps: 3, seed: 5, precision: fp32, global_batch: 4, lr: 1.0e-2, warmup: 0,
  schedule: constant, threads: 1}}
checkpoint: {{every: 1, keep: 5}}
""")

    def check(self, name, ok, detail=""):
        self.results.check(f"{self.parts.name}: {name}", ok, detail)

    def run(self, name, ranks, subcommand="train", *more, says="", **settings):
        done = tiny_case.run(self.config, ranks, subcommand, *more, **settings)
        self.check(name, done.returncode == 0 and says in done.stdout + done.stderr,
                   "" if done.returncode == 0 else done.stderr[-1500:])
        return done

    def export(self, what, out):
        done = tiny_case.program("export", f"{self.folder}/{what}", "--out",
                                 f"{self.folder}/{out}")
        self.check(f"{what} is exported", done.returncode == 0, done.stderr[-500:])
        return load_file(f"{self.folder}/{out}/model.safetensors")

    def plans(self):
        for ranks in ("1", "2"):
            self.run(f"plan for {ranks}", 1, "plan", "--ranks", ranks, says="projector")
        done = self.run("dry run", 1, "train", "--dry-run")
        self.check("weights beside the parts' are not missed", "are not used" not in done.stderr,
                   done.stderr)
        text = f"a{self.parts.placeholder}b<|im_end|>\n"
        done = tiny_case.execute(tiny_case.command(self.config, 1, "data", "tokenize"), input=text)
        want = self.parts.tokenizer.encode(text[:-1], add_special_tokens=False).ids
        self.check("added tokens have Transformers' ids",
                   done.returncode == 0 and json.loads(done.stdout) == want,
                   f"{done.stdout} {want} {done.stderr[-300:]}")

    def samples(self):
        token = self.parts.tokenizer.token_to_id(self.parts.placeholder)
        for index in (0, 3, 4):
            out = f"{self.folder}/sample{index}.safetensors"
            self.run(f"record {index} is shown", 1, "data", "show", str(index), "--pixels", out)
            ours = load_file(out)
            ids = ours["input_ids"].flatten()
            tiles = len(ours["pixel_values"]) if "pixel_values" in ours else 0
            self.check(f"record {index}: a place for each row of a picture",
                       (ids == token).sum().item() == tiles * self.parts.tokens,
                       f"{tiles} tiles, {ids.tolist()}")
            if self.parts.name == "llava":
                record = self.records[index]
                names = record.get("image", [])
                names = [names] if isinstance(names, str) else names
                self.check(f"record {index}: one square a picture", tiles == len(names))
                pictures = [Image.open(f"{self.pictures}/{n}").convert("RGB") for n in names]
                want = CLIPImageProcessorPil.from_pretrained(self.parts.vision)(
                    pictures, return_tensors="pt")["pixel_values"] if names else None
                error = (ours["pixel_values"] - want).abs().max().item() if names else 0
                self.check(f"record {index}: its processor's pixels", error <= 1e-6, error)

    def trains(self):
        """Two ranks; the losses of one, and of tensor ranks that share the grown vocabulary."""
        self.run("the first stage on two ranks", 2, says="drawing the projector's, seed 5")
        losses = tiny_case.losses(f"{self.folder}/run")
        self.check("the loss falls", len(losses) == 3 and losses[-1] < losses[0], str(losses))
        self.run("tensor ranks", 2, run__dir=f"{self.folder}/tensor", parallel__tensor=2,
                 parallel__data=1)
        other = tiny_case.losses(f"{self.folder}/tensor")
        self.check("their losses", all(abs(a - b) < 1e-4 for a, b in zip(losses, other)),
                   f"{losses} {other}")
        again = f"{self.folder}/again"
        self.run("two steps", 2, run__dir=again, train__steps=2)
        self.run("and one more", 2, run__dir=again, says="step 2 of 3")
        self.check("a resumed run has the losses of one that was not",
                   tiny_case.losses(again) == losses, f"{tiny_case.losses(again)} {losses}")

    def weights(self):
        """Only the projector is trained; the rest are the bits of the folders."""
        first = self.export("run/checkpoints/step-00000001", "first")
        last = self.export("run", "exported")
        self.check("the same weights in both", first.keys() == last.keys())
        projector = {k for k in last if "multi_modal_projector" in k}
        moved = {k for k in last if not torch.equal(first[k], last[k])}
        self.check("the projector's move, and no other", moved == projector,
                   f"{moved ^ projector}")
        towers = {k.removeprefix("vision_tower.").removeprefix("vision_model."): v
                  for k, v in last.items() if k.startswith("vision_tower.")}
        want = {k: v for k, v in self.parts.encoder.state_dict().items() if "position_ids" not in k}
        self.check("the encoder's are its folder's", towers.keys() == want.keys() and all(
            torch.equal(towers[k], want[k]) for k in want), str(towers.keys() ^ want.keys()))
        words = {k.removeprefix("language_model."): v
                 for k, v in last.items() if k.startswith("language_model.")}
        tied = self.parts.decoder.config.tie_word_embeddings
        want = {k: v for k, v in self.parts.decoder.state_dict().items()
                if not (tied and k.startswith("lm_head"))}
        self.check("the language model's names", words.keys() == want.keys(),
                   str(words.keys() ^ want.keys()))
        for key, value in want.items():
            if key in ("model.embed_tokens.weight", "lm_head.weight"):
                rows = len(value)
                full = grown(value, self.vocabulary)
                ok = (words[key].shape == full.shape and torch.equal(words[key][:rows], value)
                      and torch.allclose(words[key][rows:], full[rows:], rtol=0, atol=1e-8))
            else:
                ok = torch.equal(words[key], value)
            if not ok or key == "model.embed_tokens.weight":
                self.check(f"{key} is its folder's", ok)
        return last

    def draws(self, trained):
        """The projector before the first step: drawn by the seed, on any number of ranks."""
        starts = []
        for ranks, seed in ((1, 5), (2, 5), (1, 6)):
            run = f"start{ranks}{seed}"
            self.run(f"no step is taken on {ranks}, seed {seed}", ranks, train__lr=0,
                     train__steps=1, train__seed=seed, run__dir=f"{self.folder}/{run}")
            starts.append({k: v for k, v in self.export(run, f"out_{run}").items()
                           if "multi_modal_projector" in k})
        same = [all(torch.equal(starts[0][k], other[k]) for k in other) for other in starts]
        self.check("the projector depends on the seed alone", same == [True, True, False], same)
        weight = next(k for k in starts[0] if k.endswith("linear_1.weight"))
        spread = starts[0][weight].std().item()
        self.check("it is drawn with initializer_range", abs(spread / 0.05 - 1) < 0.1, spread)
        self.check("and then trained", not torch.equal(starts[0][weight], trained[weight]))

    def oracle(self, trained):
        """Transformers' model of the same modules, with the trained projector."""
        tokenizer, parts = self.parts.tokenizer, self.parts
        model = parts.joined(tokenizer.token_to_id(parts.placeholder)).eval()
        model.model.vision_tower.load_state_dict(parts.encoder.state_dict())
        model.model.language_model.load_state_dict(parts.decoder.model.state_dict())
        model.lm_head.load_state_dict(parts.decoder.lm_head.state_dict())
        rows = [m.weight.detach().clone() for m in (model.get_input_embeddings(), model.lm_head)]
        model.resize_token_embeddings(self.vocabulary, mean_resizing=False)
        with torch.no_grad():
            for module, old in zip((model.get_input_embeddings(), model.lm_head), rows):
                module.weight.copy_(grown(old, self.vocabulary))
        model.model.multi_modal_projector.load_state_dict(
            {k.split("multi_modal_projector.")[1]: v for k, v in trained.items()
             if "multi_modal_projector" in k})
        return model

    def transformers(self, trained):
        out = f"{self.folder}/exported"
        loaded, report = self.parts.whole.from_pretrained(out, output_loading_info=True)
        self.check("Transformers finds every weight and none is left over",
                   not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
        with open(f"{out}/preprocessor_config.json", encoding="utf8") as file:
            self.check("the filter of the resize", json.load(file)["resample"] == self.parts.filter)
        tiny_case.check_names(self, out, loaded, self.parts.tower)
        text = "<|im_start|>user\n" + self.parts.placeholder * self.parts.tokens + "\nWhat is it?"
        ids = self.parts.tokenizer.encode(text, add_special_tokens=False).ids
        theirs = PreTrainedTokenizerFast.from_pretrained(out)
        self.check("its tokenizer has the added tokens", theirs.encode(text) == ids and all(
            theirs.convert_tokens_to_ids(t) == self.parts.tokenizer.token_to_id(t)
            for t in self.parts.image_tokens), str(theirs.encode(text)))
        processor = AutoProcessor.from_pretrained(out)
        picture = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)
        given = processor(images=[picture], text=[f"{self.parts.placeholder}What"])["input_ids"][0]
        count = given.count(self.parts.tokenizer.token_to_id(self.parts.placeholder))
        self.check("its processor gives a picture the model's tokens", count == self.parts.tokens,
                   f"{count}, not {self.parts.tokens}")
        self.chat(processor)
        torch.manual_seed(8)
        inputs = {"input_ids": torch.tensor([ids]), "pixel_values": torch.randn(1, 3, SIDE, SIDE)}
        save_file(inputs, f"{self.folder}/inputs.safetensors")
        done = tiny_case.program("check", out, f"{self.folder}/inputs.safetensors", "--out",
                                 f"{self.folder}/out.safetensors")
        self.check("check", done.returncode == 0, done.stderr[-500:])
        ours = load_file(f"{self.folder}/out.safetensors")["logits"]
        with torch.no_grad():
            for name, model in (("the export", loaded), ("the parts", self.oracle(trained))):
                want = model.eval()(**inputs).logits
                error = ((ours - want).abs().max() / want.abs().max()).item()
                self.check(f"the logits of Transformers with {name}", error <= 1e-5,
                           f"{error:.1e} of the largest")

    def chat(self, processor):
        """Messages with pictures become the ids of the records that are trained."""
        for index in (0, 3, 4):  # one picture, two, and none
            record = self.records[index]
            names = record.get("image", [])
            names = [names] if isinstance(names, str) else names
            question, answer = (turn["value"] for turn in record["conversations"])
            pictures = [{"type": "image", "image": Image.open(f"{self.pictures}/{name}")}
                        for name in names]
            said = {"type": "text", "text": question.replace("<image>\n", "")}
            # A record's pictures share data.tiles.max.
            tiles = {"images_kwargs": {"max_patches": 2 // max(1, len(names))}}
            theirs = processor.apply_chat_template(
                [{"role": "user", "content": [*pictures, said]},
                 {"role": "assistant", "content": answer}], tokenize=True, return_dict=True,
                processor_kwargs=tiles if self.parts.name == "internvl" else {})
            ours = load_file(f"{self.folder}/sample{index}.safetensors")["input_ids"].flatten()
            same = list(theirs["input_ids"][0]) == ours.tolist()
            self.check(f"record {index}: the ids of its processor's chat template", same,
                       "" if same else f"{theirs['input_ids'][0]} {ours.tolist()}")

    def next_stage(self):
        """The export is a model like any other: all of it is trained, and it answers."""
        done = tiny_case.run(self.config, 1, model__vision='""', model__llm='""',
                             model__freeze="[]", model__hf=f"{self.folder}/exported",
                             train__steps=2, run__dir=f"{self.folder}/second",
                             data__template="qwen3")
        self.check("the next stage", done.returncode == 0, done.stderr[-1000:])
        templates = [open(f"{self.folder}/{where}/chat_template.jinja", encoding="utf8").readline()
                     for where in ("exported", "second/model")]
        first = "qwen2-vl" if self.parts.name == "llava" else "chatml"  # LLaVA's over Qwen2
        self.check("each stage's chat template is its own", f"template {first} " in templates[0]
                   and "template qwen3 " in templates[1], str(templates))
        picture = f"{self.folder}/plain.png"
        tiny_case.draw(picture, "red", "disc", (90, 60), 3)
        for where in ("run", "exported", "second"):
            done = tiny_case.program("generate", f"{self.folder}/{where}", "--image", picture,
                                     "--prompt", "What is it?", "--max-new-tokens", "4")
            self.check(f"{where} answers", done.returncode == 0, done.stderr[-500:])


def refusals(results, folder, case):
    cases = Cases(results)
    vision, llm = case.parts.vision, case.parts.llm
    bare = f"{folder}/bare"
    shutil.copytree(llm, bare)
    os.remove(f"{bare}/tokenizer.json")
    empty = f"{folder}/no_weights"
    os.makedirs(empty)
    shutil.copy(f"{vision}/config.json", empty)
    other = f"{folder}/other_weights"
    shutil.copytree(vision, other)
    shutil.copy(f"{llm}/model.safetensors", other)
    for name, code, words, settings in (
            ("one part alone", 2, ("model.llm: is empty",), {"model__llm": '""'}),
            ("parts beside a whole model", 2, ("model.hf", "beside model.vision"),
             {"model__hf": llm}),
            ("a language model as encoder", 4, ("model.vision", "no image encoder"),
             {"model__vision": llm}),
            ("an encoder as language model", 4, ("model.llm", "not supported"),
             {"model__llm": vision}),
            ("no such folder", 4, ("model.vision", "no such folder"),
             {"model__vision": f"{folder}/none"}),
            ("no tokenizer", 4, (bare, "no tokenizer.json"), {"model__llm": bare}),
            ("an encoder without weights", 4, (empty,), {"model__vision": empty}),
            ("an encoder with other weights", 4, (other, "weights are missing"),
             {"model__vision": other}),
            ("adapters beside a new projector", 2, ("model.adapter.train", "projector is new"),
             {"model__adapter__targets": "all-linear", "model__freeze": "[]"}),
            ("a new projector that is frozen", 2, ("model.freeze", "the projector is new"),
             {"model__freeze": "[projector]"}),
            ("a layer that is not there", 2, ("feature_layer", "none of the encoder's 3 layers"),
             {"model__projector__feature_layer": 9})):
        for more in (("--dry-run",), ()):
            cases.refused(f"{name} {' '.join(more)}",
                          tiny_case.command(case.config, 1, "train", *more,
                                            run__dir=f"{folder}/refused", **settings), code, *words)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="parts")
    records = tiny_case.write_records(folder, 20, seed=2)
    for kind in (Llava, InternVl):
        case = Case(results, folder, records, kind)
        case.plans()
        case.samples()
        case.trains()
        trained = case.weights()
        case.transformers(trained)
        case.draws(trained)
        case.next_stage()
        if kind is Llava:
            refusals(results, folder, case)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
