"""Decoding, resizing and tiling equal Pillow's and torchvision's, byte for byte; squares equal
Transformers' processors."""

import hashlib
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
from PIL import Image, ImageFile
from torchvision import transforms
from transformers import (CLIPImageProcessorPil, LlavaImageProcessorPil, SiglipImageProcessorPil)
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
}


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


    def square(self, path, side, fit):
        mean, deviation = SQUARES[fit][0]
        flat = self.array(np.float32, "square", path, side, fit, *mean, *deviation)
        return flat.reshape(1, 3, side, side)

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


def pack_row(samples, depth):
    if depth == 16:
        return samples.astype(">u2").tobytes()
    bits = "".join(format(int(value), f"0{depth}b") for value in samples.reshape(-1))
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


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


def saved(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def webp_pictures():
    """(name, bytes, lossless) of WebP forms."""
    for width, height in [(1, 1), (7, 3), (16, 16), (33, 50), (101, 64)]:
        label = f"{width}x{height}"
        rgb = Image.fromarray(noise(width, height, 3, width))
        rgba = Image.fromarray(noise(width, height, 4, height))
        for picture in (rgb, rgba):
            for lossless in (True, False):
                name = f"webp-{picture.mode}-{label}-{'lossless' if lossless else 'lossy'}"
                yield name, saved(picture, "WEBP", lossless=lossless, exact=True), lossless
        frames = [Image.fromarray(noise(width, height, 4, seed)) for seed in (1, 2)]
        yield (f"webp-animated-{label}", saved(frames[0], "WEBP", save_all=True, lossless=True,
                                               exact=True, append_images=frames[1:]), True)


def gif_pictures():
    for width, height in [(1, 1), (7, 3), (16, 17), (33, 50), (101, 64)]:
        label = f"{width}x{height}"
        rgb = Image.fromarray(noise(width, height, 3, width))
        for colours in (2, 5, 200):
            palette = rgb.quantize(colours)
            for interlace in (0, 1):
                yield f"gif-P{colours}-{label}-{interlace}", saved(palette, "GIF",
                                                                   interlace=interlace)
            yield f"gif-transparent-{colours}-{label}", saved(palette, "GIF", transparency=1)
        yield f"gif-L-{label}", saved(rgb.convert("L"), "GIF")
        yield f"gif-animated-{label}", saved(rgb, "GIF", save_all=True, append_images=[
            Image.fromarray(noise(width, height, 3, 9)), rgb])
        # A frame inside the screen, and one that reaches beyond it.
        inside = bytearray(saved(rgb.quantize(7), "GIF"))
        for offset, value in ((6, width + 5), (8, height + 3)):
            inside[offset:offset + 2] = value.to_bytes(2, "little")
        at = 13 + (6 << (inside[10] & 7)) if inside[10] & 0x80 else 13
        while inside[at] == 0x21:  # extensions
            at += 2
            while inside[at]:
                at += inside[at] + 1
            at += 1
        assert inside[at] == 0x2C
        inside[at + 1:at + 5] = bytes([2, 0, 1, 0])
        yield f"gif-inside-{label}", bytes(inside)
        inside[at + 1:at + 5] = bytes([9, 0, 0, 0])
        yield f"gif-beyond-{label}", bytes(inside)


def bmp(width, height, bits, rows, compression=0, palette=b"", masks=b"", header=40):
    """BMP bytes from packed rows, for the forms that Pillow does not write."""
    pixels = b"".join(row + b"\0" * (-len(row) % 4) for row in rows) if compression not in (
        1, 2) else rows
    if header == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        head = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(pixels),
                           0, 0, len(palette) // 4, 0)
        head += masks + b"\0" * (header - 40 - len(masks) if header > 40 else 0)
    begin = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", begin + len(pixels), 0, 0, begin) + head + palette + pixels


def bmp_pictures():
    for width, height in [(1, 1), (7, 3), (16, 17), (33, 50)]:
        label = f"{width}x{height}"
        rgb = Image.fromarray(noise(width, height, 3, width))
        for picture in (rgb, rgb.convert("L"), rgb.convert("1"), rgb.quantize(9),
                        rgb.quantize(200), Image.fromarray(noise(width, height, 4, 1))):
            yield f"bmp-{picture.mode}-{label}", saved(picture, "BMP")
        draw = np.random.default_rng(width)
        colours = draw.integers(0, 256, (256, 4), dtype=np.uint8)
        for bits in (1, 4, 8):
            samples = draw.integers(0, 1 << bits, (height, width))
            rows = [pack_row(row, bits) for row in samples]
            yield f"bmp-{bits}-{label}", bmp(width, height, bits, rows,
                                             palette=colours[:1 << bits].tobytes())
            yield f"bmp-core-{bits}-{label}", bmp(
                width, height, bits, rows, palette=colours[:1 << bits, :3].tobytes(), header=12)
        for bits in (16, 24, 32):
            rows = [draw.integers(0, 256, width * bits // 8, dtype=np.uint8).tobytes()
                    for _ in range(height)]
            yield f"bmp-{bits}-{label}", bmp(width, height, bits, rows)
            yield f"bmp-top-down-{bits}-{label}", bmp(width, -height, bits, rows)
        for bits, masks in ((16, (0xF800, 0x7E0, 0x1F)), (16, (0x7C00, 0x3E0, 0x1F)),
                            (32, (0xFF0000, 0xFF00, 0xFF)), (32, (0xFF000000, 0xFF0000, 0xFF00)),
                            (32, (0xFF000000, 0xFF00, 0xFF)),
                            (32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000))):
            rows = [draw.integers(0, 256, width * bits // 8, dtype=np.uint8).tobytes()
                    for _ in range(height)]
            packed = struct.pack(f"<{len(masks)}I", *masks)
            yield f"bmp-masks-{masks[0]:x}-{label}", bmp(
                width, height, bits, rows, 3, masks=packed, header=40 if len(masks) == 3 else 124)
        for bits, kind in ((8, 1), (4, 2)):
            data = b""
            for row in range(height):
                line = draw.integers(0, 1 << bits, width)
                if row % 3 == 0:
                    data += bytes([width, int(draw.integers(0, 256))])
                elif row % 3 == 1 and width > 2:
                    packed = pack_row(line, bits)
                    data += bytes([0, width]) + packed + b"\0" * (len(packed) % 2)
                elif width > 2:
                    data += bytes([1, 5, 0, 2, width - 1, 0])  # a jump to the row's end
                    continue
                else:
                    data += bytes([width, 1])
                data += b"\0\0"
            yield f"bmp-rle{bits}-{label}", bmp(width, height, bits, data + b"\0\1", kind,
                                                palette=colours[:1 << bits].tobytes())


def tiff_pictures():
    for width, height in [(1, 1), (7, 3), (17, 16), (33, 50)]:
        label = f"{width}x{height}"
        rgb = Image.fromarray(noise(width, height, 3, width))
        grey = rgb.convert("L")
        deep = np.random.default_rng(width).integers(0, 65536, (height, width), dtype=np.uint16)
        deep[deep % 3 == 0] %= 300
        pictures = {"1": rgb.convert("1"), "L": grey, "P": rgb.quantize(200), "RGB": rgb,
                    "LA": Image.fromarray(noise(width, height, 2, 5)),
                    "RGBA": Image.fromarray(noise(width, height, 4, 6)),
                    "CMYK": Image.fromarray(noise(width, height, 4, 3), "CMYK"),
                    "I16": Image.fromarray(deep)}
        for name, picture in pictures.items():
            for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
                yield f"tiff-{name}-{compression}-{label}", saved(picture, "TIFF",
                                                                  compression=compression)
        for compression in ("group3", "group4"):
            yield f"tiff-{compression}-{label}", saved(pictures["1"], "TIFF",
                                                       compression=compression)
        yield f"tiff-jpeg-L-{label}", saved(grey, "TIFF", compression="jpeg")
        yield f"tiff-jpeg-RGB-{label}", saved(rgb, "TIFF", compression="jpeg")
        for orientation in range(1, 9):
            for compression in (None, "tiff_lzw"):
                yield (f"tiff-orientation-{orientation}-{compression}-{label}",
                       saved(rgb, "TIFF", tiffinfo={274: orientation}, compression=compression))
        yield f"tiff-pages-{label}", saved(rgb, "TIFF", save_all=True, append_images=[grey])


def tiff_forms():
    """TIFF forms that Pillow does not write: 2, 4, 16 bits, big endian, tiles, planes, alpha."""
    width, height = 19, 13
    draw = np.random.default_rng(7)
    for order in "<>":
        for photometric, bits, extra in ((0, (1,), ()), (1, (2,), ()), (0, (4,), ()),
                                         (1, (8, 8), (0,)), (1, (16,), ()), (2, (16,) * 3, ()),
                                         (2, (8,) * 4, (1,)), (2, (8,) * 5, (2, 0)),
                                         (3, (4,), ()), (3, (1,), ()), (5, (8,) * 5, (0,))):
            samples = draw.integers(0, 1 << bits[0], (height, width, len(bits)))
            if extra[:1] == (1,):  # colours multiplied by alpha are no larger than it
                samples = np.minimum(samples, samples[:, :, 3:4])
            colours = draw.integers(0, 65536, 3 << bits[0]) if photometric == 3 else None
            yield (f"tiff-{'big' if order == '>' else 'little'}-{photometric}-{bits}-{extra}",
                   tiff(order, samples, bits, photometric, extra, colours))
    samples = draw.integers(0, 256, (height, width, 3))
    yield "tiff-planes", tiff("<", samples, (8,) * 3, 2, (), None, planes=True)
    yield "tiff-tiles", tiff("<", samples, (8,) * 3, 2, (), None, tile=16)


def tiff(order, samples, bits, photometric, extra, colours, planes=False, tile=0):
    height, width, count = samples.shape
    def pack(part):
        if bits[0] == 16:
            return part.astype(order + "u2").tobytes()
        return b"".join(pack_row(row, bits[0]) for row in part)
    if tile:
        padded = np.zeros((-(-height // tile) * tile, -(-width // tile) * tile, count), int)
        padded[:height, :width] = samples
        blocks = [pack(padded[y:y + tile, x:x + tile]) for y in range(0, padded.shape[0], tile)
                  for x in range(0, padded.shape[1], tile)]
    elif planes:
        blocks = [pack(samples[:, :, c:c + 1]) for c in range(count)]
    else:
        blocks = [pack(samples)]
    tags = {256: [width], 257: [height], 258: list(bits), 259: [1], 262: [photometric],
            277: [count], 284: [2 if planes else 1]}
    if extra:
        tags[338] = list(extra)
    if colours is not None:
        tags[320] = colours.tolist()
    places = (324, 325) if tile else (273, 279)
    if tile:
        tags[322], tags[323] = [tile], [tile]
    else:
        tags[278] = [height]
    data, offsets = b"", []
    for block in blocks:
        offsets.append(8 + len(data))
        data += block + b"\0" * (len(block) % 2)
    tags[places[0]], tags[places[1]] = offsets, [len(block) for block in blocks]
    entries, more = b"", b""
    begin = 8 + len(data) + 2 + 12 * len(tags) + 4
    for tag, values in sorted(tags.items()):
        kind, code = (4, "I") if tag in places else (3, "H")
        raw = struct.pack(f"{order}{len(values)}{code}", *values)
        entries += struct.pack(order + "HHI", tag, kind, len(values))
        if len(raw) <= 4:
            entries += raw.ljust(4, b"\0")
        else:
            entries += struct.pack(order + "I", begin + len(more))
            more += raw
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 8 + len(data))
    return head + data + struct.pack(order + "H", len(tags)) + entries + b"\0\0\0\0" + more


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


def test_other_kinds_decode_as_pillow(tool, folder):
    count = 0
    for name, data, lossless in webp_pictures():
        # Lossy WebP: libwebp's releases round alike so far, but do not promise to.
        check_decoded(tool, write(folder, name, data), most=0 if lossless else 1)
        count += 1
    for kind in (gif_pictures(), bmp_pictures(), tiff_pictures(), tiff_forms()):
        for name, data in kind:
            check_decoded(tool, write(folder, name, data))
            count += 1
    assert count > 400, count


def test_cut_files_of_other_kinds_are_refused(tool, folder):
    rgb = Image.fromarray(noise(23, 9, 3, 1))
    for kind in ("WEBP", "GIF", "BMP", "TIFF"):
        options = {"compression": "tiff_lzw"} if kind == "TIFF" else {}
        data = saved(rgb, kind, **options)
        end = len(data)
        end -= {"GIF": 1, "BMP": 3}.get(kind, 0)  # its end mark; what fills up the last row
        for length in range(end):
            answer = tool.ask("decode", write(folder, "cut." + kind, data[:length]), tool.out)
            assert answer.startswith("error "), f"{kind} cut at {length} of {len(data)}: {answer}"


class Skipped(Exception):
    """A test that cannot run here; its text is the reason."""


def test_squares_equal_transformers(tool, folder):
    sizes = ((96, 96), (97, 64), (64, 97), (200, 31), (31, 200), (33, 500), (48, 48), (47, 49))
    for seed, (width, height) in enumerate(sizes):
        path = os.path.join(folder, "square.png")
        picture = Image.fromarray(noise(width, height, 3, seed))
        picture.save(path)
        for fit, ((mean, deviation), processor) in SQUARES.items():
            found = tool.square(path, 48, fit)
            expected = processor(48)(images=picture, return_tensors="np")["pixel_values"]
            difference = np.abs(found - expected).max(axis=(0, 2, 3)) * deviation
            # The same bytes; the processor scales and normalises in another order.
            assert difference.max() < 1e-6, f"{width}x{height}, {fit}: {difference}"


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
            found = bytes_of(tool.square(path, side, fit), *SQUARES[fit][0])
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
        if wanted is None or not is_read(path):
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


def main():
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
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


if __name__ == "__main__":
    sys.exit(main())
