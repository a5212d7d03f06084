"""scripts/prepare-mixed on stamps made here, and on records made here."""

import json
import os
import sys
import tempfile
import unittest

from PIL import Image
from tokenizers import Tokenizer

import prepared_set
from prepared_set import read_records, save_stamp

SCRIPT = "scripts/prepare-mixed"
PICTURES = 30


def make_stamps(folder):
    for i in range(PICTURES):
        picture = Image.new("RGB", (20 + 10 * (i % 7), 30), (i * 8, 90, 7))
        picture.putpixel((3, 4), (255 - i, i, 200))
        text = f"Thing number {i}.\nde.utf8=Ding Nummer {i}.\n"
        save_stamp(folder, f"kind{i % 3}/stamp{i:02}", picture, text)


def run(*arguments):
    return prepared_set.run(SCRIPT, *arguments)


class PrepareMixedTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.stamps = os.path.join(self.folder, "stamps")
        self.out = os.path.join(self.folder, "out")
        make_stamps(self.stamps)

    def split(self, out):
        names = ("pictures.jsonl", "text.jsonl", "heldout.jsonl")
        return [read_records(out, name) for name in names]

    def test_stamps_become_a_mixed_set(self):
        done = run(self.out, "--stamps", self.stamps)
        self.assertEqual(done.returncode, 0, done.stderr)
        pictures, text, held_out = self.split(self.out)
        records = pictures + text + held_out
        self.assertEqual(len(records), 30 + 15 + 7 + 60)
        self.assertEqual(len({record["id"] for record in records}), len(records))
        self.assertEqual(len(held_out), len(records) // 20)
        self.assertFalse(any("image" in record for record in text))
        counts = set()
        for record in pictures:
            images = record["image"] if isinstance(record["image"], list) else [record["image"]]
            widths = record["width"] if isinstance(record["width"], list) else [record["width"]]
            counts.add(len(images))
            self.assertEqual(
                record["conversations"][0]["value"].count("<image>"), len(images), record
            )
            for name, width in zip(images, widths):
                with Image.open(os.path.join(self.out, "images", name)) as picture:
                    self.assertEqual(picture.size[0], width)
        self.assertEqual(counts, {1, 2, 4})
        with open(os.path.join(self.out, "model", "config.json"), encoding="utf8") as file:
            config = json.load(file)
        tokenizer = Tokenizer.from_file(os.path.join(self.out, "model", "tokenizer.json"))
        self.assertEqual(config["text_config"]["vocab_size"], tokenizer.get_vocab_size())

    def test_records_are_taken_as_they_are(self):
        given = [
            {
                "id": f"r{i}",
                "conversations": [{"from": "human", "value": "<image>\nWhat?"},
                                  {"from": "gpt", "value": f"number {i}"}],
            }
            for i in range(40)
        ]
        for record in given[::2]:
            record["image"] = "kind0/stamp00.png"
        path = os.path.join(self.folder, "given.jsonl")
        with open(path, "w", encoding="utf8") as file:
            file.writelines(json.dumps(record) + "\n" for record in given)
        for out in ("one", "two"):  # the same input gives the same files
            done = run(
                os.path.join(self.folder, out), "--records", path, "--images", self.stamps
            )
            self.assertEqual(done.returncode, 0, done.stderr)
        one, two = (self.split(os.path.join(self.folder, out)) for out in ("one", "two"))
        self.assertEqual(one, two)
        back = sorted(sum(one, []), key=lambda record: int(record["id"][1:]))
        self.assertEqual(back, given)

    def test_bad_use_is_refused(self):
        self.assertIn("belong together", run(self.out, "--records", "x").stderr)
        missing = run(self.out, "--stamps", "/nonexistent")
        self.assertIn("scripts/setup", missing.stderr)
        self.assertNotEqual(missing.returncode, 0)


if __name__ == "__main__":
    sys.exit(prepared_set.run_tests())
