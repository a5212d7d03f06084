"""What the tests of pictures against Pillow share: the program under test, pictures, the run."""

import io
import os
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageFile


class Skipped(Exception):
    """A test that cannot run here; its text is the reason."""


class Tool:
    """image_tool as a process that answers one command after the other."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.out = os.path.join(folder, "out.raw")

    def ask(self, *words):
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        assert answer, f"the tool died on {words}"
        return answer

    def array(self, dtype, *words):
        answer = self.ask(*words, self.out)
        assert answer.startswith("ok "), f"{words}: {answer}"
        return np.fromfile(self.out, dtype)

    def decode(self, path):
        return self.array(np.uint8, "decode", path)

    def tiles(self, path, least, most, thumbnail, side):
        flat = self.array(np.float32, "tiles", path, least, most, int(thumbnail), side)
        return flat.reshape(-1, 3, side, side)

    def square(self, path, side, fit, mean, deviation):
        flat = self.array(np.float32, "square", path, side, fit, *mean, *deviation)
        return flat.reshape(1, 3, side, side)

    def anyres(self, path, side, resolutions):
        tiles = [length // side for size in resolutions for length in size]
        return self.array(np.float32, "anyres", path, side, *tiles).reshape(-1, 3, side, side)

    def patches(self, path, least, most):
        return self.array(np.float32, "patches", path, least, most).reshape(-1, 3 * 2 * 14 * 14)


def noise(width, height, channels, seed):
    """A picture with edges and smooth parts, so that filters and overshoot show."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (3 + c) + y * (5 - c)) % 256 for c in range(channels)]
    picture = np.stack(planes, axis=-1)
    speckle = generator.integers(0, 256, picture.shape)
    picture = np.where(generator.random((height, width, 1)) < 0.3, speckle, picture)
    return picture.astype(np.uint8).squeeze(-1) if channels == 1 else picture.astype(np.uint8)


def pack_row(samples, depth):
    if depth == 16:
        return samples.astype(">u2").tobytes()
    bits = "".join(format(int(value), f"0{depth}b") for value in samples.reshape(-1))
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def saved(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def write(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def check_decoded(tool, path, most=0):
    """`most`: the largest difference that is allowed, where another release of a codec reads."""
    with Image.open(path) as opened:
        expected = np.asarray(opened.convert("RGB"))
    height, width = expected.shape[:2]
    assert tool.ask("size", path) == f"ok {width} {height}", path
    found = tool.decode(path).reshape(height, width, 3)
    difference = np.abs(found.astype(int) - expected.astype(int)).max()
    assert difference <= most, f"{path}: differs from Pillow by {difference}"


def main(tests):
    """Runs the functions of a module's `tests` that are named test_*."""
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    tests = {name: test for name, test in tests.items() if name.startswith("test_")}
    failed = skipped = 0
    for name, test in tests.items():
        with tempfile.TemporaryDirectory() as folder:
            tool = Tool(sys.argv[1], folder)
            try:
                test(tool, folder)
            except Skipped as reason:
                skipped += 1
                print(f"skipped: {name}: {reason}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED {name}: {error}")
            finally:
                tool.process.stdin.close()
                tool.process.wait()
    print(f"{len(tests) - failed - skipped} passed, {failed} failed")
    return 1 if failed else 0
