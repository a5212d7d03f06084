"""LLaVA-1.5 from a folder in Hugging Face's form: Vicuna's template, LLaMA's tokenizer with byte
fallback, the pictures of its image processor. Its samples are those of Transformers; it is trained,
planned, checked, exported, and answers as Transformers does."""
import json
import os
import shutil
import sys
import tempfile

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from transformers import (
    AutoImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

import tiny_case

SPACE = "\u2581"
SIDE, PATCH = 56, 14
TOKENS = (SIDE // PATCH) ** 2  # of a picture
SYSTEM = ("A chat between a curious user and an artificial intelligence assistant. The assistant "
          "gives helpful, detailed, and polite answers to the user's questions.")
# With the texts that tell it; what it renders without a system text is not LLaVA's training form.
JINJA = ("{% for m in messages %}{{ m['role'].upper() + ': ' + m['content'] + ' ' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")


SPECIAL = ["<unk>", "<s>", "</s>", "<image>", "<pad>"]


def write_tokenizer(folder, texts, special=SPECIAL):
    """LLaMA's form: a space before every text, bytes for what the vocabulary lacks, <s> first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", True)
    tokenizer.train_from_iterator(texts * 3, trainers.BpeTrainer(
        vocab_size=160, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    trained = json.loads(tokenizer.to_str())["model"]
    vocabulary = trained["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in trained["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                             special_tokens=[("<s>", 1)])
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf8") as file:
        json.dump({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>",
                   "eos_token": "</s>", "chat_template": JINJA}, file)
    return tokenizer


def write_folder(folder, texts):
    os.makedirs(folder)
    tokenizer = write_tokenizer(folder, texts)
    text = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=96,
                       num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                       max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
                       pad_token_id=tokenizer.token_to_id("<pad>"), initializer_range=0.05)
    vision = CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                              num_attention_heads=4, image_size=SIDE, patch_size=PATCH)
    torch.manual_seed(11)
    model = LlavaForConditionalGeneration(LlavaConfig(
        text_config=text, vision_config=vision, image_seq_length=TOKENS,
        image_token_index=tokenizer.token_to_id("<image>")))
    model.save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=SIDE,
                       image_mean=[0.4, 0.5, 0.6]).save_pretrained(folder)
    return tokenizer


def rendered(conversations, prompt=False):
    """Vicuna's text of a record."""
    text = SYSTEM + " "
    for turn in conversations:
        said = turn["value"].replace("<image>", "<image>" * TOKENS)
        text += f"USER: {said} " if turn["from"] == "human" else f"ASSISTANT: {said}</s>"
    return text + ("ASSISTANT:" if prompt else "")


def check_samples(results, folder, config, records, tokenizer):
    """`data show --pixels` of records with one, two and no pictures."""
    processor = CLIPImageProcessorPil.from_pretrained(f"{folder}/llava")
    for index in (0, 1, 3, 4):
        record, out = records[index], f"{folder}/sample{index}.safetensors"
        done = tiny_case.run(config, 1, "data", "show", str(index), "--pixels", out)
        results.check(f"record {index}: is shown", done.returncode == 0, done.stderr[-300:])
        ours = load_file(out)
        ids = tokenizer.encode(rendered(record["conversations"])).ids
        results.check(f"record {index}: ids of Transformers' text",
                      ours["input_ids"].flatten().tolist() == ids)
        answer = record["conversations"][-1]["value"]
        trained = ours["labels"].flatten()
        trained = trained[trained >= 0].tolist()
        results.check(f"record {index}: the answer and </s> are trained",
                      trained[-1] == 2 and tokenizer.decode(trained[:-1]) == answer, str(trained))
        names = record.get("image", [])
        names = [names] if isinstance(names, str) else names
        if not names:
            continue
        pictures = [Image.open(f"{folder}/images/{name}").convert("RGB") for name in names]
        want = processor(pictures, return_tensors="pt")["pixel_values"]
        error = (ours["pixel_values"] - want).abs().max().item()
        results.check(f"record {index}: pixels of its image processor", error <= 1e-6, error)


def check_padding(results, folder, config, records):
    """data.pad_pictures: pixels of Transformers' processor that pads, here and as exported."""
    with open(f"{folder}/llava/preprocessor_config.json", encoding="utf8") as file:
        settings = {k: v for k, v in json.load(file).items() if not k.endswith("_type")}
    processor = LlavaImageProcessorPil(**dict(settings, do_pad=True))
    record, out = records[0], f"{folder}/padded.safetensors"
    picture = Image.new("RGB", (90, 60), (200, 30, 60))
    name = record["image"] if isinstance(record["image"], str) else record["image"][0]
    picture.save(f"{folder}/images/{name}", quality=92)
    done = tiny_case.run(config, 1, "data", "show", "0", "--pixels", out, data__pad_pictures="true")
    results.check("a padded picture is shown", done.returncode == 0, done.stderr[-300:])
    want = processor([Image.open(f"{folder}/images/{name}").convert("RGB")],
                     return_tensors="pt")["pixel_values"]
    error = (load_file(out)["pixel_values"] - want).abs().max().item()
    results.check("its pixels are those of the processor that pads", error <= 1e-6, error)
    run = f"{folder}/padded"
    done = tiny_case.run(config, 1, data__pad_pictures="true", run__dir=run, train__steps=2)
    results.check("trains on padded pictures", done.returncode == 0, done.stderr[-300:])
    done = tiny_case.program("export", run, "--out", f"{run}_exported")
    exported = AutoImageProcessor.from_pretrained(f"{run}_exported", backend="pil")
    got = exported([Image.open(f"{folder}/images/{name}").convert("RGB")],
                   return_tensors="pt")["pixel_values"]
    results.check("Transformers pads as the exported folder says",
                  done.returncode == 0 and torch.equal(got, want), done.stderr[-300:])


def greedy(model, ids, pixels):
    inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}
    if pixels is not None:
        inputs["pixel_values"] = pixels
    out = model.generate(**inputs, max_new_tokens=16, do_sample=False, eos_token_id=2,
                         pad_token_id=0)
    answer = out[0, len(ids):].tolist()
    return answer[:answer.index(2)] if 2 in answer else answer


def check_answers(results, folder, where, tokenizer):
    """`generate` with a folder alone: its template, its pictures."""
    model = LlavaForConditionalGeneration.from_pretrained(f"{folder}/exported").eval()
    processor = CLIPImageProcessorPil.from_pretrained(f"{folder}/exported")
    picture = f"{folder}/plain.png"
    tiny_case.draw(picture, "red", "disc", (90, 60), 3)
    pixels = processor([Image.open(picture)], return_tensors="pt")["pixel_values"]
    for question, image in (("<image>\nWhat is it?", picture), ("What is 3 plus 2?", None)):
        ids = tokenizer.encode(rendered([{"from": "human", "value": question}], prompt=True)).ids
        want = tokenizer.decode(greedy(model, ids, pixels if image else None))
        done = tiny_case.program("generate", where, "--prompt", question, "--max-new-tokens", "16",
                                 "--set", "train.precision=fp32",
                                 *(("--image", image) if image else ()))
        results.check(f"{os.path.basename(where)}: {question!r} is answered as by Transformers",
                      done.returncode == 0 and done.stdout == want + "\n" != "\n",
                      f"ours {done.stdout!r} theirs {want!r} {done.stderr[-300:]}")


def check_export(results, folder, tokenizer):
    done = tiny_case.program("export", f"{folder}/run", "--out", f"{folder}/exported")
    results.check("export", done.returncode == 0, done.stderr[-300:])
    model, report = LlavaForConditionalGeneration.from_pretrained(f"{folder}/exported",
                                                                  output_loading_info=True)
    results.check("every weight is found and none is left over",
                  not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
    tiny_case.check_names(results, f"{folder}/exported", model, "vision_tower.vision_model.")
    ids = torch.tensor([tokenizer.encode(rendered([{"from": "human", "value": "<image>\na"}])).ids])
    inputs = {"input_ids": ids, "pixel_values": torch.randn(1, 3, SIDE, SIDE)}
    save_file(inputs, f"{folder}/inputs.safetensors")
    done = tiny_case.program("check", f"{folder}/exported", f"{folder}/inputs.safetensors", "--out",
                             f"{folder}/out.safetensors")
    results.check("check", done.returncode == 0, done.stderr[-300:])
    with torch.no_grad():
        want = model.eval()(**inputs).logits
    error = (load_file(f"{folder}/out.safetensors")["logits"] - want).abs().max() / want.abs().max()
    results.check("the logits of Transformers", error <= 1e-5, f"{error:.1e} of the largest")


def write_config(folder):
    config = f"{folder}/llava.yaml"
    with open(config, "w", encoding="utf8") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/llava}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  template: vicuna_v1
  max_tokens: 256
train: {{steps: 12, precision: fp32, global_batch: 4, lr: 3.0e-3, warmup: 2, threads: 1}}
checkpoint: {{every: 12}}
""")
    return config


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="llava")
    records = tiny_case.write_records(folder, 20, seed=2)
    texts = [turn["value"] for record in records for turn in record["conversations"]]
    tokenizer = write_folder(f"{folder}/llava", texts + ["USER: ASSISTANT:", SYSTEM])
    config = write_config(folder)

    check_samples(results, folder, config, records, tokenizer)
    done = tiny_case.run(config, 1, "train", data__template="chatml")
    results.check("another template is refused with the folder's own",
                  done.returncode == 4 and "use data.template=vicuna_v1, the folder's own" in
                  done.stderr.strip().splitlines()[-1], done.stderr[-400:])
    done = tiny_case.run(config, 1, "plan", "--ranks", "4")
    results.check("plan", done.returncode == 0 and "projector" in done.stdout, done.stderr[-300:])
    done = tiny_case.run(config, 2, parallel__pipeline=2, parallel__tensor=1, parallel__data=1)
    results.check("trains on two pipeline ranks", done.returncode == 0, done.stderr[-400:])
    losses = tiny_case.losses(f"{folder}/run")
    results.check("the loss falls", len(losses) == 12 and losses[-1] < 0.8 * losses[0], str(losses))
    done = tiny_case.run(config, 1, data__template="plain", model__freeze="[vision, llm]",
                         run__dir=f"{folder}/first_stage", train__steps=3,
                         train__global_batch=2)
    results.check("the first stage of LLaVA's training", done.returncode == 0,
                  done.stderr.strip()[-400:])
    check_padding(results, folder, config, records)
    check_export(results, folder, tokenizer)
    for where in (f"{folder}/run", f"{folder}/exported"):
        check_answers(results, folder, where, tokenizer)

    with open(f"{folder}/llava/preprocessor_config.json", encoding="utf8") as file:
        settings = json.load(file)
    settings["do_center_crop"] = False
    with open(f"{folder}/llava/preprocessor_config.json", "w", encoding="utf8") as file:
        json.dump(settings, file)
    done = tiny_case.run(config, 1, "data", "show", "0")
    results.check("pictures that are no squares are refused in one line",
                  done.returncode == 4 and "do_center_crop" in done.stderr
                  and len(done.stderr.strip().splitlines()) == 1, done.stderr[-400:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
