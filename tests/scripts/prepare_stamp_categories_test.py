"""scripts/prepare-stamp-categories on stamps made here."""

import os
import sys
import tempfile
import unittest

from PIL import Image

import prepared_set
from prepared_set import read_records, save_stamp

SCRIPT = "scripts/prepare-stamp-categories"
SIZES = {"cars": 20, "trees": 10, "rare": 4}


def make_stamps(folder):
    for seed, (kind, count) in enumerate(SIZES.items()):
        for i in range(count):
            picture = Image.new("RGB", (30, 30), (80 * seed, 9 * i, 7))
            picture.putpixel((3, 4), (255 - i, i, 200))
            save_stamp(folder, f"{kind}/of{i % 2}/stamp{i:02}", picture, f"Thing {i}.\n")
    for kind in ("cars", "trees"):  # one picture, of two kinds
        save_stamp(folder, f"{kind}/same", Image.linear_gradient("L").convert("RGB"), "Same.\n")


def kind_of(record):
    return record["conversations"][1]["value"]


class PrepareStampCategoriesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.stamps = os.path.join(self.folder, "stamps")
        make_stamps(self.stamps)

    def prepare(self, name, *more):
        out = os.path.join(self.folder, name)
        return out, prepared_set.run(SCRIPT, out, "--stamps", self.stamps, *more)

    def test_pictures_are_split_by_kind(self):
        out, done = self.prepare("out", "--least", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        train, held_out = read_records(out, "train.jsonl"), read_records(out, "heldout.jsonl")
        images = [record["image"] for record in train + held_out]
        self.assertEqual(len(images), len(set(images)))
        self.assertEqual(len(images), 32)
        for record in train + held_out:
            self.assertEqual(kind_of(record), record["image"].split("/")[0])
        self.assertEqual({kind_of(record) for record in held_out}, {"cars", "trees"})
        self.assertNotIn(len(held_out), (0, 1, 2))
        self.assertLessEqual(len(held_out), 6)
        sides = {record["image"]: record in train for record in train + held_out}
        self.assertTrue(sides["cars/same.png"] and sides["trees/same.png"]
                        or not (sides["cars/same.png"] or sides["trees/same.png"]))
        self.assertIn("chance gets 50.0%", done.stdout)

    def test_the_same_stamps_give_the_same_files(self):
        files = []
        for name in ("a", "b"):
            out, _ = self.prepare(name, "--least", "8")
            files.append([read_records(out, side) for side in ("train.jsonl", "heldout.jsonl")])
        self.assertEqual(*files)

    def test_too_few_pictures_and_no_folder_are_refused(self):
        self.assertIn("fewer than two categories", self.prepare("out", "--least", "15")[1].stderr)
        self.stamps = "/nowhere"
        self.assertIn("/nowhere", self.prepare("out")[1].stderr)


if __name__ == "__main__":
    sys.exit(prepared_set.run_tests())
