"""Decoding, resizing and tiling equal Pillow's and torchvision's, byte for byte; squares equal
Transformers' processors."""

import hashlib
import io
import json
import os
import random
import sys
import zlib

import numpy as np
import torch
from image_check import Skipped, check_decoded, main, noise, pack_row, write
from PIL import Image
from torchvision import transforms
from transformers import (CLIPImageProcessorPil, LlavaImageProcessorPil, SiglipImageProcessorPil)
from transformers.models.llava_next.image_processing_llava_next import LlavaNextImageProcessor
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
PREPROCESS = "preprocess"
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALF = ((0.5,) * 3, (0.5,) * 3)
# How an encoder of whole pictures gets its square: the normalisation, and Transformers' processor.
SQUARES = {
    "crop": (CLIP, lambda side: CLIPImageProcessorPil(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side})),
    "pad": (CLIP, lambda side: LlavaImageProcessorPil(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side}, do_pad=True)),
    "stretch": (HALF, lambda side: SiglipImageProcessorPil(
        size={"height": side, "width": side}, resample=Image.BICUBIC)),
    # SigLIP 2's folders, and the other fits with their filter.
    "bilinear": (HALF, lambda side: SiglipImageProcessorPil(
        size={"height": side, "width": side}, resample=Image.BILINEAR)),
    "bilinear_crop": (CLIP, lambda side: CLIPImageProcessorPil(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side},
        resample=Image.BILINEAR)),
    "bilinear_pad": (CLIP, lambda side: LlavaImageProcessorPil(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side}, do_pad=True,
        resample=Image.BILINEAR)),
}


def png_pictures():
    """(name, picture, options of save) of every PNG mode that Pillow writes."""
    sizes = [(1, 1), (1, 9), (13, 1), (17, 11), (64, 40), (257, 3)]
    for width, height in sizes:
        label = f"{width}x{height}"
        rgb = Image.fromarray(noise(width, height, 3, width))
        grey = Image.fromarray(noise(width, height, 1, width + 1))
        yield f"1-{label}", grey.convert("1"), {}
        yield f"L-{label}", grey, {}
        yield f"L-transparent-{label}", grey, {"transparency": 7}
        yield f"LA-{label}", Image.fromarray(noise(width, height, 2, 5)), {}
        yield f"RGB-{label}", rgb, {}
        yield f"RGB-transparent-{label}", rgb, {"transparency": (1, 2, 3)}
        yield f"RGBA-{label}", Image.fromarray(noise(width, height, 4, 6)), {}
        for colours in (2, 4, 16, 200):
            palette = rgb.quantize(colours)
            yield f"P{colours}-{label}", palette, {}
            alpha = b"\0\x80\xff"[:colours]
            yield f"P{colours}-transparent-{label}", palette, {"transparency": alpha}
        deep = np.random.default_rng(width).integers(0, 65536, (height, width), dtype=np.uint16)
        deep[deep % 3 == 0] %= 300
        yield f"I16-{label}", Image.fromarray(deep), {}


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def raw_png(width, height, depth, colour, rows, interlace=0, extra=b""):
    """PNG bytes from packed rows, for the forms that Pillow does not write."""
    form = bytes([depth, colour, 0, 0, interlace])
    header = chunk(b"IHDR", width.to_bytes(4, "big") + height.to_bytes(4, "big") + form)
    body = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + header + extra + body + chunk(b"IEND", b"")


# First column and row, and the steps, of each pass.
ADAM7 = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]


def raw_pngs():
    """Every colour type and depth of the format, plain and interlaced, at odd sizes."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    for colour, width, height, interlace in (
        (c, w, h, i) for c in depths for w, h in ((1, 1), (3, 7), (19, 10)) for i in (0, 1)
    ):
        for depth in depths[colour]:
            generator = np.random.default_rng(depth * 10 + colour)
            samples = generator.integers(0, 1 << depth, (height, width, channels[colour]))
            # A palette shorter than the indices.
            entries = max(1, (1 << depth) * 3 // 4)
            colours = bytes(generator.integers(0, 256, 3 * entries).tolist())
            extra = chunk(b"PLTE", colours) if colour == 3 else b""
            passes = ADAM7 if interlace else [(0, 0, 1, 1)]
            rows = []
            for x, y, step_x, step_y in passes:
                part = samples[y::step_y, x::step_x]
                if part.size:
                    rows += [pack_row(row, depth) for row in part]
            order = "adam7" if interlace else "plain"
            name = f"raw-colour{colour}-depth{depth}-{width}x{height}-{order}"
            yield name, raw_png(width, height, depth, colour, rows, interlace, extra)


def jpeg_pictures():
    """(name, bytes) of the JPEG forms met in the wild."""
    for width, height in [(1, 1), (7, 3), (16, 16), (33, 50), (101, 64)]:
        rgb = Image.fromarray(noise(width, height, 3, width))
        forms = {
            "L": (rgb.convert("L"), {}),
            "CMYK": (Image.fromarray(noise(width, height, 4, 3), "CMYK"), {}),
            "optimized": (rgb, {"optimize": True}),
            "restart": (rgb, {"restart_marker_blocks": 1}),
            "rgb": (rgb, {"keep_rgb": True}),
        }
        for sampling in ("4:4:4", "4:2:2", "4:2:0", "4:1:1"):
            for progressive in (False, True):
                options = {"subsampling": sampling, "progressive": progressive}
                forms[f"{sampling}-{'progressive' if progressive else 'baseline'}"] = (rgb, options)
        for orientation in (3, 6, 8):
            exif = Image.Exif()
            exif[0x0112] = orientation
            forms[f"orientation-{orientation}"] = (rgb, {"exif": exif})
        for name, (picture, options) in forms.items():
            for quality in (30, 95):
                buffer = io.BytesIO()
                picture.save(buffer, "JPEG", quality=quality, **options)
                yield f"jpeg-{name}-{width}x{height}-{quality}", buffer.getvalue()


def ycck(data):
    """A CMYK JPEG's Adobe marker changed to say YCCK, which the decoder has to convert back."""
    at = data.index(b"Adobe")
    assert data[at - 2 : at] == b"\0\x0e"
    return data[: at + 11] + b"\2" + data[at + 12 :]


def unmarked(data):
    """A JPEG without its Adobe marker."""
    at = data.index(b"Adobe")
    return data[: at - 4] + data[at + 12 :]


def turned_sampling(data):
    """4:2:2 made 4:4:0: in a square picture both have as many blocks in the same order."""
    at = data.index(b"\xff\xc0") + 11
    assert data[at] == 0x21
    return data[:at] + b"\x12" + data[at + 1 :]


def test_png_decodes_as_pillow(tool, folder):
    count = 0
    for name, picture, options in png_pictures():
        path = os.path.join(folder, name + ".png")
        picture.save(path, **options)
        check_decoded(tool, path)
        count += 1
    for name, data in raw_pngs():
        check_decoded(tool, write(folder, name + ".png", data))
        count += 1
    assert count > 150


def test_jpeg_decodes_as_pillow(tool, folder):
    names = set()
    for name, data in jpeg_pictures():
        check_decoded(tool, write(folder, name + ".jpg", data))
        names.add(name.split("-")[1])
        if "CMYK" in name:
            check_decoded(tool, write(folder, name + ".ycck.jpg", ycck(data)))
            check_decoded(tool, write(folder, name + ".unmarked.jpg", unmarked(data)))
        check_decoded(tool, write(folder, name + ".misnamed.png", data + b"trailing bytes"))
    buffer = io.BytesIO()
    Image.fromarray(noise(48, 48, 3, 2)).save(buffer, "JPEG", subsampling="4:2:2")
    check_decoded(tool, write(folder, "440.jpg", turned_sampling(buffer.getvalue())))
    assert {"L", "CMYK", "4:2:0", "4:1:1", "orientation"} <= names, names


def test_jpeg_with_bytes_left_over_decodes_as_pillow(tool, folder):
    """Bytes before the end of a scan, or of a part of it, are behind its pixels."""
    picture = Image.fromarray(noise(64, 48, 3, 3))
    for progressive in (False, True):
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=90, progressive=progressive)
        data = buffer.getvalue()
        left = data[:-2] + b"abc" + data[-2:]
        check_decoded(tool, write(folder, f"left-{progressive}.jpg", left))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90, restart_marker_rows=1)
    data = buffer.getvalue()
    assert b"\xff\xd1" in data
    check_decoded(tool, write(folder, "restarts.jpg", data))
    first = b"\xff\xd1"
    for left in (b"abc", bytes(range(1, 200))):
        check_decoded(tool, write(folder, "left.jpg", data.replace(first, left + first)))
    other = write(folder, "other.jpg", data.replace(first, b"\xff\xd3"))  # rows are missing
    answer = tool.ask("decode", other, tool.out)
    assert answer.startswith("error "), answer


def test_resize_equals_pillow(tool, folder):
    generator = random.Random(0)
    sizes = [(5, 333, 333, 16), (50, 20000, 40, 100), (600, 300, 480, 59), (600, 300, 480, 60)]
    for case in range(150):
        size = tuple(generator.choice([1, 2, 3, 5, 16, 48, 100, 333]) for _ in range(4))
        if case % 5 == 0:
            size = size[:2] + (generator.randint(1, 900), generator.randint(1, 900))
        if case % 7 == 0:
            size = size[:2] + (size[0], size[3])
        sizes.append(size)
    for case, (width, height, to_width, to_height) in enumerate(sizes):
        picture = Image.fromarray(noise(width, height, 3, case))
        path = os.path.join(folder, "resize.png")
        picture.save(path)
        expected = np.asarray(picture.resize((to_width, to_height), Image.Resampling.BICUBIC))
        found = tool.array(np.uint8, "resize", path, to_width, to_height).reshape(expected.shape)
        assert (found == expected).all(), f"{width}x{height} -> {to_width}x{to_height}"


def grid_of(width, height, least, most, side):
    """The published algorithm in its own order."""
    grids = sorted(
        {(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if least <= i * j <= most},
        key=lambda grid: grid[0] * grid[1],
    )
    best, nearest = (1, 1), float("inf")
    for columns, rows in grids:
        distance = abs(width / height - columns / rows)
        if distance < nearest:
            best, nearest = (columns, rows), distance
        elif distance == nearest and width * height > 0.5 * side * side * columns * rows:
            best = (columns, rows)
    return best


def crops_of(picture, most, thumbnail, side):
    columns, rows = grid_of(*picture.size, 1, most, side)
    resized = picture.resize((columns * side, rows * side))
    corners = [(x * side, y * side) for y in range(rows) for x in range(columns)]
    crops = [resized.crop((x, y, x + side, y + side)) for x, y in corners]
    if thumbnail and len(crops) > 1:
        crops.append(picture.resize((side, side)))
    return crops


def test_tiles_equal_torchvision(tool, folder):
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])
    generator = random.Random(1)
    for case in range(25):
        width, height = generator.randint(1, 700), generator.randint(1, 700)
        side, most = generator.choice([(28, 12), (112, 6), (56, 1), (448, 4)])
        thumbnail = case % 4 != 0
        picture = Image.fromarray(noise(width, height, 3, case))
        path = os.path.join(folder, "tiles.png")
        picture.save(path)
        crops = crops_of(picture, most, thumbnail, side)
        expected = torch.stack([transform(crop) for crop in crops]).numpy()
        found = tool.tiles(path, 1, most, thumbnail, side)
        assert found.shape == expected.shape, f"{width}x{height}: {found.shape}"
        assert found.tobytes() == expected.tobytes(), f"{width}x{height}, {most} tiles of {side}"


def test_bombs_are_refused(tool, folder):
    rows = [bytes(2500)] * 20000
    bomb = write(folder, "bomb.png", raw_png(20000, 20000, 1, 0, rows))
    assert os.path.getsize(bomb) < 100_000
    for command in (("size", bomb), ("decode", bomb, tool.out)):
        answer = tool.ask(*command)
        assert answer.startswith("error "), answer
        assert "20000 x 20000" in answer and "limit" in answer, answer
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(200 << 20)))
    path = write(folder, "text.png", raw_png(2, 1, 8, 0, [b"\1\2"], extra=text))
    assert tool.decode(path).tolist() == [1, 1, 1, 2, 2, 2]


def test_damage_is_refused_wherever_it_is(tool, folder):
    buffer = io.BytesIO()
    Image.fromarray(noise(40, 30, 3, 1)).save(buffer, "JPEG", progressive=True)
    png = raw_png(19, 3, 8, 0, [bytes(range(19))] * 3)
    for kind, data in (("jpg", buffer.getvalue()), ("png", png)):
        for length in range(len(data)):
            answer = tool.ask("decode", write(folder, "cut." + kind, data[:length]), tool.out)
            assert answer.startswith("error "), f"{kind} cut at {length} of {len(data)}: {answer}"


def test_squares_equal_transformers(tool, folder):
    sizes = ((96, 96), (97, 64), (64, 97), (200, 31), (31, 200), (33, 500), (48, 48), (47, 49))
    for seed, (width, height) in enumerate(sizes):
        path = os.path.join(folder, "square.png")
        picture = Image.fromarray(noise(width, height, 3, seed))
        picture.save(path)
        for fit, ((mean, deviation), processor) in SQUARES.items():
            found = tool.square(path, 48, fit, mean, deviation)
            expected = processor(48)(images=picture, return_tensors="np")["pixel_values"]
            difference = np.abs(found - expected).max(axis=(0, 2, 3)) * deviation
            # The same bytes; the processor scales and normalises in another order.
            assert difference.max() < 1e-6, f"{width}x{height}, {fit}: {difference}"


def test_any_resolution_equals_transformers(tool, folder):
    sizes = [(1, 1), (56, 56), (41, 43), (170, 42), (300, 111), (13, 700), (56, 57), (198, 126),
             (400, 400), (9, 31), (640, 480)]
    for number, (width, height) in enumerate(sizes):
        path = os.path.join(folder, "anyres.png")
        picture = Image.fromarray(noise(width, height, 3, number))
        picture.save(path)
        for resolutions in ([[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]], [[112, 168]]):
            settings = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56},
                        "image_grid_pinpoints": resolutions}
            found = tool.anyres(path, 56, resolutions)
            made = LlavaNextImageProcessorPil(**settings)([picture], return_tensors="np")
            expected = made["pixel_values"][0]
            assert made["image_sizes"].tolist() == [[height, width]]
            assert found.shape == expected.shape, (width, height, found.shape, expected.shape)
            difference = (np.abs(found - expected).max(axis=(0, 2, 3)) * CLIP[1]).max()
            assert difference <= 1e-6, (width, height, resolutions, difference)
            # The processor that resizes with torchvision, whose filter rounds otherwise, has as
            # many tiles.
            other = LlavaNextImageProcessor(**settings)([picture], return_tensors="pt")
            assert other["pixel_values"][0].shape == expected.shape, (width, height)


def test_patches_equal_transformers(tool, folder):
    sizes = [(1, 1), (28, 28), (41, 43), (70, 42), (300, 111), (13, 700), (56, 57), (98, 126)]
    for number, (width, height) in enumerate(sizes):
        path = os.path.join(folder, "patches.png")
        Image.fromarray(noise(width, height, 3, number)).save(path)
        for least, most in ((3136, 12845056), (3136, 20000), (40000, 80000)):
            processor = Qwen2VLImageProcessorPil(
                size={"shortest_edge": least, "longest_edge": most})
            made = processor([Image.open(path)], return_tensors="np")
            found = tool.patches(path, least, most)
            expected = made["pixel_values"]
            assert found.shape == expected.shape, (width, height, least, most, found.shape,
                                                   made["image_grid_thw"])
            difference = float(np.abs(found - expected).max())
            assert difference <= 1e-6, (width, height, least, most, difference)


def fixtures():
    root = os.environ.get("EQUIPOISE_FIXTURES", "")
    if not os.path.isdir(os.path.join(root, PREPROCESS)):
        raise Skipped("no fixtures")
    return root


def most_difference(path):
    """WebP may be read by another release than Pillow's."""
    with open(path, "rb") as file:
        return 1 if file.read(4) == b"RIFF" else 0


def test_fixture_pictures_decode_as_pillow(tool, folder):
    root = fixtures()
    images = os.path.join(root, "real", "images")
    names = sorted(os.listdir(images))
    for place, name in enumerate(names):
        path = os.path.join(images, name)
        if os.path.getsize(path) > 500_000 and place % 5 != 0:
            continue  # large ones take long, a part of them will do
        check_decoded(tool, path, most_difference(path))


def sha256(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def bytes_of(tiles, mean=MEAN, deviation=DEVIATION):
    """[tile, y, x, channel] bytes of normalised [tile, channel, y, x] floats."""
    deviation, mean = (np.float32(v).reshape(3, 1, 1) for v in (deviation, mean))
    return np.rint((tiles * deviation + mean) * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def test_fixture_tiles(tool, folder):
    root = fixtures()
    with open(os.path.join(root, PREPROCESS, "images.json")) as file:
        listing = json.load(file)
    checked = 0
    for entry in listing["images"]:
        path = os.path.join(root, "real", "images", entry["image"])
        pixels = tool.decode(path)
        assert sha256(pixels) == entry["rgb_sha256"], f"{path}: the decoder differs"
        for recipe, most in (("internvl12", 12), ("internvl6", 6)):
            wanted = entry["recipes"][recipe]["tile_sha256"]
            found = tool.tiles(path, 1, most, True, 448)
            assert len(found) == len(wanted), path
            for tile, sha in zip(bytes_of(found), wanted):
                assert sha256(tile) == sha, f"{path}, {recipe}: the resizer differs"
                checked += 1
        for recipe, fit, side in (("clip336", "crop", 336), ("llava_pad336", "pad", 336),
                                  ("siglip384", "stretch", 384)):
            found = bytes_of(tool.square(path, side, fit, *SQUARES[fit][0]), *SQUARES[fit][0])
            assert [sha256(tile) for tile in found] == entry["recipes"][recipe]["tile_sha256"], (
                f"{path}, {recipe}: the resizer differs")
            checked += 1
    assert checked > 50, checked


def test_fixture_patches(tool, folder):
    root = fixtures()
    with open(os.path.join(root, PREPROCESS, "images.json")) as file:
        listing = json.load(file)
    checked = 0
    for entry in listing["images"]:
        path = os.path.join(root, "real", "images", entry["image"])
        wanted = entry["recipes"].get("qwen2vl")
        if wanted is None:
            continue
        _, rows, columns = wanted["grid_thw"]
        found = tool.patches(path, 56 * 56, 28 * 28 * 1280)
        assert len(found) == rows * columns, (path, found.shape, wanted["grid_thw"])
        squares = found.reshape(rows // 2, columns // 2, 2, 2, 3, 2, 14, 14)
        assert (squares[:, :, :, :, :, 0] == squares[:, :, :, :, :, 1]).all(), path
        picture = squares[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6)
        picture = bytes_of(picture.reshape(1, 3, 14 * rows, 14 * columns), *CLIP)
        assert [sha256(picture[0])] == wanted["tile_sha256"], f"{path}: the resizer differs"
        checked += 1
    assert checked > 5, checked


def test_fixture_floats(tool, folder):
    root = fixtures()
    from safetensors.numpy import load_file

    with open(os.path.join(root, PREPROCESS, "images.json")) as file:
        name = json.load(file)["pixel_values_image"]
    values = load_file(os.path.join(root, PREPROCESS, "pixel_values.safetensors"))
    expected = values["internvl6_112"]
    found = tool.tiles(os.path.join(root, "real", "images", name), 1, 6, True, 112)
    # The Hugging Face processor scales in another order: the floats may differ in their last bits.
    assert found.shape == expected.shape
    difference = float(np.abs(found - expected).max())
    assert difference <= 5e-7, difference


def test_fixture_hard_files(tool, folder):
    root = fixtures()
    edge = os.path.join(root, "real", "edge")
    for name in sorted(os.listdir(edge)):
        if name.endswith(".jsonl"):
            continue
        path = os.path.join(edge, name)
        if name == "sharp_full-transparent.png":
            check_decoded(tool, path)
        else:
            assert tool.ask("decode", path, tool.out).startswith("error "), name


if __name__ == "__main__":
    sys.exit(main(globals()))
