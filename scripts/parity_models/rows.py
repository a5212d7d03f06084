"""The rows of the table: each tiny model of the oracle's list in the form of Transformers, some of
them in another form of their files, and some cut into the two parts that a new model is made of."""
import copy
import dataclasses
import os
import shutil

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import internlm2
import opengvlab
import pictures
import reference
import tiny_case
import transformers_oracle_test as oracle
from transformers_oracle_test import RECIPE


@dataclasses.dataclass(frozen=True)
class Row:
    """`model`: of oracle.MODELS. `form`: of its files."""
    name: str
    model: str
    form: str = "transformers"
    settings: tuple = ()  # of the run that puts parts together


OTHERS = [
    Row("internvl 300m qwen2, OpenGVLab", "internvl 300m qwen2", "opengvlab"),
    Row("internvl 300m qwen3, OpenGVLab", "internvl 300m qwen3", "opengvlab"),
    Row("internvl 6b llama, OpenGVLab", "internvl 6b llama", "opengvlab"),
    Row("internvl 300m phi3, OpenGVLab", "internvl 300m phi3", "opengvlab"),
    Row("internvl 6b internlm2", "internvl 6b llama", "internlm2"),
    Row("internlm2 dynamic-rope", "llama dynamic-rope", "internlm2"),
    Row("parts clip + llama", "llava clip llama", "parts"),
    Row("parts siglip + qwen2", "llava siglip qwen2", "parts",
        ("model.projector.feature_layer=-1",)),
    Row("parts internvit + qwen3", "internvl 300m qwen3", "parts"),
    Row("parts internvit + phi3", "internvl 300m phi3", "parts"),
    Row("parts clip + phi3", "llava clip phi3", "parts"),
    Row("parts internvit + internlm2", "internvl 6b llama", "parts of internlm2"),
]
ROWS = {row.name: row for row in sorted([Row(name, name) for name in oracle.MODELS] + OTHERS,
                                        key=lambda row: row.name)}


def of_version_5(tensors):
    """Tensors by the keys of a model that Transformers 5 has made: exports have the encoder's names
    of published folders."""
    return {key.replace("vision_tower.vision_model.", "vision_tower."): tensor
            for key, tensor in tensors.items()}


def module_of(name):
    """The module of model.freeze that a parameter of Transformers is of."""
    if any(word in name for word in ("multi_modal_projector", "merger", "image_newline")):
        return "projector"
    return "vision" if "vision_tower" in name or ".visual." in name else "llm"


def renaming(form, model):
    """Tensors by the keys of Transformers -> by those of the form."""
    if form == "opengvlab":
        return opengvlab.rename
    if form == "internlm2":
        heads = model.config.get_text_config().num_key_value_heads
        return lambda tensors: oracle.in_internlm2(tensors, heads)
    return dict


def in_form_of_transformers(tensors, rename, shapes):
    """The inverse of `rename`, found by renaming the numbers of the elements. `shapes`: of the
    tensors by the keys of Transformers."""
    numbered, count = {}, 0
    for key, shape in shapes.items():
        numbered[key] = torch.arange(count, count + shape.numel()).view(shape)
        count += shape.numel()
    renamed = rename(numbered)
    if set(renamed) != set(tensors):
        raise ValueError(f"other tensors: {sorted(set(renamed) ^ set(tensors))[:6]}")
    elements = torch.empty(count)
    for key, places in renamed.items():
        elements[places.flatten()] = tensors[key].float().flatten()
    return {key: elements[places.flatten()].view(places.shape)
            for key, places in numbered.items()}


class Subject:
    """The model of a row with its folders. `folder` is what the program is given."""

    def __init__(self, row, home):
        self.row, self.home = row, home
        self.seed = list(oracle.MODELS).index(row.model)
        self.model = oracle.filled(oracle.MODELS[row.model](), self.seed)
        self.kind = pictures.kind_of(self.model)
        self.native = os.path.join(home, "native")
        self.model_settings = f"hf: {home}/model"
        self.freeze = []
        self.rename = renaming(row.form, self.model)
        pictures.write_records(home)
        if row.form.startswith("parts"):
            self.put_parts_together()
        else:
            self.folder = self.write(self.model, "model")
            self.key_of = reference.key_map(self.model, self.native)
        self.shapes = {key: tensor.shape for key, tensor in self.tensors(self.native).items()}

    @property
    def has_pictures(self):
        return bool(self.kind)

    @property
    def takes_grids(self):
        return hasattr(self.model.model, "get_rope_index")

    @staticmethod
    def tensors(folder):
        return of_version_5(load_file(os.path.join(folder, "model.safetensors")))

    def write(self, model, name):
        """A folder of the row's form with the model, its tokenizer and image processor."""
        native, folder = self.native, os.path.join(self.home, name)
        model.save_pretrained(native)
        os.makedirs(folder)
        if self.row.form == "opengvlab":
            oracle.write_opengvlab(native, folder)
        elif self.row.form == "internlm2":
            heads = model.config.get_text_config().num_key_value_heads
            oracle.write_internlm2(native, folder, heads)
        else:
            shutil.copytree(native, folder, dirs_exist_ok=True)
        pictures.write_tokenizer(folder, self.kind)
        pictures.write_processor(folder, model)
        return folder

    def write_answering(self):
        """A folder of the same model, but that a letter is the likeliest token everywhere, and the
        model that it is of."""
        model = copy.deepcopy(self.model)
        head = model.get_output_embeddings().weight
        with torch.no_grad():
            letters = torch.zeros(len(head), 1)
            letters[list(pictures.letter_ids())] = 1
            head.mul_(letters)
        kept = self.native
        self.native = os.path.join(self.home, "native-answering")
        folder = self.write(model, "answering")
        self.native = kept
        return folder, model

    def to_native(self, tensors):
        """Tensors by the keys of the row's form, by those of Transformers. A tied head's gradient
        is part of the embedding's."""
        return in_form_of_transformers(of_version_5(tensors), self.rename, self.shapes)

    def put_parts_together(self):
        """Cuts the model into an encoder's folder and a language model's, and takes the projector
        that the program draws between them. Every other weight must be the part's, bit by bit."""
        model, home = self.model, self.home
        vision, llm = os.path.join(home, "encoder"), os.path.join(home, "decoder")
        model.model.vision_tower.save_pretrained(vision)
        decoder = AutoModelForCausalLM.from_config(model.config.text_config)
        decoder.model.load_state_dict(model.model.language_model.state_dict())
        decoder.lm_head.load_state_dict(model.lm_head.state_dict())
        decoder.save_pretrained(llm)
        if self.row.form.endswith("internlm2"):
            written, llm = llm, os.path.join(home, "internlm2")
            os.makedirs(llm)
            oracle.write_internlm2(written, llm, decoder.config.num_key_value_heads)
        pictures.write_tokenizer(llm, self.kind, with_marks=False)
        pictures.write_processor(vision, model)
        self.model_settings = f"vision: {vision}, llm: {llm}, freeze: [vision, llm]"
        self.freeze = ["vision", "llm"]
        self.folder = self.train("start", 1, "train.lr=0")
        drawn = self.tensors(self.folder)
        rows = drawn[next(key for key in drawn if "embed_tokens" in key)].shape[0]
        if rows > len(model.get_input_embeddings().weight):
            model.resize_token_embeddings(rows, mean_resizing=False)
        self.native = self.folder
        model.save_pretrained(os.path.join(home, "whole"))
        before = self.tensors(os.path.join(home, "whole"))
        state = {}
        for key, tensor in drawn.items():
            old = before[key]
            grown = "embed_tokens" in key or "lm_head" in key
            kept = oracle.VOCABULARY if grown else len(old)
            if "multi_modal_projector" not in key and not tensor[:kept].equal(old[:kept]):
                raise ValueError(f"{key}: is not its part's")
            state[key] = tensor
        # Found by the weights before: the biases of a new projector are zeros, and so alike.
        self.key_of = reference.key_map(model, os.path.join(home, "whole"))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(state[self.key_of[name]])

    def config(self, run, steps, *settings):
        """A run's configuration, of steps on the one record that the model can take; `settings` are
        further ones, as --set takes them."""
        path = os.path.join(self.home, run + ".yaml")
        record = "shown" if self.has_pictures else "told"
        window = getattr(self.model.config.get_text_config(), "sliding_window", None)
        with open(path, "w", encoding="utf8") as file:
            file.write(f"""run: {{dir: {self.home}/{run}}}
model: {{{self.model_settings}}}
data:
  train: [{{annotations: {self.home}/{record}.jsonl, images: {self.home}}}]
  template: chatml
  max_tokens: {window or 256}
  tiles: {{max: 1, thumbnail: false}}
train: {{steps: {steps}, seed: {self.seed}, precision: fp32, global_batch: 1, lr: {RECIPE["lr"]},
  schedule: constant, warmup: 0, weight_decay: {RECIPE["weight_decay"]}, clip: {RECIPE["clip"]},
  beta1: {RECIPE["betas"][0]}, beta2: {RECIPE["betas"][1]}, eps: {RECIPE["eps"]}, threads: 1}}
checkpoint: {{every: {steps}}}
""")
        own = self.row.settings
        if self.row.form in ("opengvlab", "internlm2") and self.has_pictures:
            own += ("model.drop_path=0",)  # these forms' config.json has one, and no oracle has it
        return [path, *(word for setting in own + settings for word in ("--set", setting))]

    def train(self, run, steps, *settings):
        """Trains, and exports; the folder."""
        run_program("train", *self.config(run, steps, *settings))
        folder = os.path.join(self.home, run + "-exported")
        run_program("export", os.path.join(self.home, run), "--out", folder)
        return folder

    def shown_sample(self):
        """The record as the program shows it, as inputs of Transformers."""
        path = os.path.join(self.home, "sample.safetensors")
        line = self.config("sample", 1)
        run_program("data", line[0], "show", "0", "--pixels", path, *line[1:])
        return load_file(path)


def run_program(*arguments):
    """Runs a subcommand of the program; what it prints."""
    done = tiny_case.program(*arguments)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"equipoise {arguments[0]}: exit {done.returncode}: {last}")
    return done.stdout
