"""scripts/prepare-stamps on stamps made here: records, split, control, model, what is left out."""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest

from PIL import Image
from tokenizers import Tokenizer

import prepared_set
from prepared_set import read_records, save_stamp

SCRIPT = "scripts/prepare-stamps"
PICTURES = 760


def load_script():
    sys.path.insert(0, "scripts")
    loader = importlib.machinery.SourceFileLoader("prepare_stamps", SCRIPT)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("prepare_stamps", loader)
    )
    loader.exec_module(module)
    return module


def make_stamps(folder):
    for i in range(PICTURES):
        picture = Image.new("RGB", (20 + i % 7, 30), (i % 251, i % 13, 7))
        picture.putpixel((3, 4), (255 - i % 256, i // 256, 200))
        save_stamp(
            folder,
            f"kind{i % 3}/stamp{i:03}",
            picture,
            f"Thing number {i}.\nde.utf8=Ding Nummer {i}.\nxx.utf8=\n",
        )
    save_stamp(folder, "kind0/stamp000_mirror", Image.new("RGB", (5, 5)), "A mirror.")
    save_stamp(folder, "kind0/silent", Image.new("RGB", (5, 5)), None)
    save_stamp(folder, "kind0/flat", Image.new("RGBA", (5, 5), (0, 0, 0, 9)), "Drawn in alpha.")


def run(*arguments):
    return prepared_set.run(SCRIPT, *arguments)


class PrepareStampsTest(unittest.TestCase):
    def read(self, *names):
        return [read_records(self.out, name) for name in names]

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.stamps = os.path.join(cls.temporary.name, "stamps")
        cls.out = os.path.join(cls.temporary.name, "out")
        make_stamps(cls.stamps)
        cls.result = run(cls.out, "--stamps", cls.stamps, "--languages", "de")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_split_and_records(self):
        self.assertEqual(self.result.returncode, 0, self.result.stderr)
        train, held_out = self.read("train.jsonl", "heldout.jsonl")
        self.assertEqual((len(train), len(held_out)), (PICTURES - 40, 40))
        self.assertFalse({r["image"] for r in train} & {r["image"] for r in held_out})
        for record in train + held_out:
            with Image.open(os.path.join(self.stamps, record["image"])) as picture:
                self.assertEqual(picture.size, (record["width"], record["height"]))
            number = int(record["image"][-7:-4])
            self.assertEqual([turn["from"] for turn in record["conversations"]], ["human", "gpt"])
            self.assertEqual(record["conversations"][0]["value"].count("<image>"), 1)
            self.assertEqual(record["conversations"][1]["value"], f"Thing number {number}.")
        for line in ("1 mirror variants", "1 without text", "1 of one colour"):
            self.assertIn(line, self.result.stdout)

    def test_control_moves_every_picture(self):
        train, control = self.read("train.jsonl", "permuted.jsonl")
        self.assertEqual([r["conversations"] for r in train], [r["conversations"] for r in control])
        self.assertEqual(sorted(r["image"] for r in train), sorted(r["image"] for r in control))
        self.assertTrue(all(a["image"] != b["image"] for a, b in zip(train, control)))

    def test_other_languages(self):
        (records,) = self.read("multilingual.jsonl")
        self.assertEqual(len(records), PICTURES - 40)
        self.assertIn("in German", records[0]["conversations"][0]["value"])
        self.assertTrue(records[0]["conversations"][1]["value"].startswith("Ding Nummer "))

    def test_the_same_stamps_give_the_same_files(self):
        again = os.path.join(self.temporary.name, "again")
        run(again, "--stamps", self.stamps, "--languages", "de")
        for folder, _, files in os.walk(self.out):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as one, open(
                    os.path.join(again, os.path.relpath(path, self.out)), "rb"
                ) as two:
                    self.assertEqual(one.read(), two.read(), name)

    def test_bound_of_exact_match(self):
        script = load_script()
        stamps = [
            {"pixels": p, "texts": {"en": n}}
            for p, n in [("a", "x"), ("a", "y"), ("a", "x"), ("b", "z")]
        ]
        self.assertEqual(script.best_exact_match(stamps), 0.75)

    def test_transformers_reads_the_model_folder(self):
        from transformers import AutoProcessor, AutoConfig, InternVLForConditionalGeneration

        folder = os.path.join(self.out, "model")
        config = AutoConfig.from_pretrained(folder)
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.assertEqual(config.text_config.vocab_size, tokenizer.get_vocab_size())
        self.assertEqual(config.image_token_id, tokenizer.token_to_id("<IMG_CONTEXT>"))
        model = InternVLForConditionalGeneration(config)
        count = sum(p.numel() for p in model.parameters())
        self.assertTrue(8e6 < count < 13e6, count)
        processor = AutoProcessor.from_pretrained(folder)
        messages = [
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}],
            }
        ]
        text = processor.apply_chat_template(messages, add_generation_prompt=True)
        record = self.read("train.jsonl")[0][0]
        with Image.open(os.path.join(self.stamps, record["image"])) as picture:
            inputs = processor(images=picture, text=text, return_tensors="pt")
        rendered = (
            "<|im_start|>user\n<img>" + "<IMG_CONTEXT>" * 16 + "</img>\nWhat is this?<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        self.assertEqual(inputs["input_ids"][0].tolist(), tokenizer.encode(rendered).ids)
        self.assertEqual(tuple(inputs["pixel_values"].shape), (1, 3, 112, 112))

    def test_bad_use_is_refused(self):
        self.assertIn("unknown", run(self.out, "--languages", "tlh").stderr)
        missing = run(self.out, "--stamps", "/nonexistent")
        self.assertIn("tuxpaint-stamps-default", missing.stderr)
        self.assertNotEqual(missing.returncode, 0)
        few = os.path.join(self.temporary.name, "few")
        save_stamp(few, "a/b", Image.new("RGB", (2, 2)), "One.")
        self.assertIn("too few", run(self.out + "2", "--stamps", few).stderr)


if __name__ == "__main__":
    sys.exit(prepared_set.run_tests())
