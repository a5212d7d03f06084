"""Reads Tux Paint's stamps: pictures, their names in several languages, their sizes."""

import hashlib
import os
import warnings

from PIL import Image

LANGUAGES = {
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
    "pl": "Polish",
    "cs": "Czech",
    "sv": "Swedish",
    "da": "Danish",
    "tr": "Turkish",
    "ru": "Russian",
    "el": "Greek",
    "uk": "Ukrainian",
    "ja": "Japanese",
    "ko": "Korean",
    "zh_CN": "Chinese",
}


def captions(path):
    """The texts of a stamp: {"en": line 1, "de": ..., ...}."""
    with open(path, encoding="utf8", errors="replace") as file:
        lines = [line.strip() for line in file]
    texts = {"en": lines[0] if lines else ""}
    for line in lines[1:]:
        language, mark, text = line.partition(".utf8=")
        if mark and text:
            texts[language] = text
    return texts


def pixels(path, size):
    """A picture as training sees it: alpha dropped, scaled to one tile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as picture:
            return picture.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)


def read_stamps(root, size):
    """All usable stamps in the order of a hash of their names; and why others are left out.

    Those that are of one colour as a tile of `size` x `size` pixels are not usable.
    """
    stamps, left_out = [], {
        "mirror variants": 0,
        "without text": 0,
        "of one colour when alpha is dropped": 0,
    }
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            text = path[:-4] + ".txt"
            if not name.endswith(".png"):
                continue
            if name.endswith("_mirror.png"):
                left_out["mirror variants"] += 1
                continue
            texts = captions(text) if os.path.exists(text) else {"en": ""}
            if not texts["en"]:
                left_out["without text"] += 1
                continue
            picture = pixels(path, size)
            if all(low == high for low, high in picture.getextrema()):
                left_out["of one colour when alpha is dropped"] += 1
                continue
            with Image.open(path) as original:
                width, height = original.size
            stamps.append(
                {
                    "image": os.path.relpath(path, root).replace(os.sep, "/"),
                    "texts": texts,
                    "width": width,
                    "height": height,
                    "pixels": hashlib.sha256(picture.tobytes()).hexdigest(),
                }
            )
    stamps.sort(key=lambda stamp: hashlib.sha256(stamp["image"].encode()).digest())
    return stamps, left_out
