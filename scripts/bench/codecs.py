"""Writes folders of images anew as an image codec leaves them, and prints their mean bytes; see scripts/bench/codecs.

codecs.py FROM TO CODEC QUALITY SIDE    CODEC: jpeg, webp or webp-lossless; SIDE: pixels that a view is made smaller to before it is coded

Bytes are of the coded image alone, as two programs that have agreed on everything else would send them: of a JPEG what follows its last header (no
tables, no sizes), of a WebP what follows the containers and the frame's fixed header.
"""

import io
import multiprocessing
import os
import sys

from PIL import Image


def jpeg_bytes(coded):
    """Bytes between the header of the scan and the end marker."""
    at = 2
    while coded[at + 1] != 0xDA:
        at += 2 + int.from_bytes(coded[at + 2 : at + 4], "big")
    at += 2 + int.from_bytes(coded[at + 2 : at + 4], "big")
    return len(coded) - at - 2


def webp_bytes(coded):
    """Bytes after the RIFF header (12), the header of the chunk (8), and the frame's: of VP8 10 bytes, of VP8L 5."""
    kind = coded[12:16]
    assert kind in (b"VP8 ", b"VP8L"), kind
    size = int.from_bytes(coded[16:20], "little")
    return size - (10 if kind == b"VP8 " else 5)


def code(view, codec, quality, side):
    """The bytes of a view, and the view as it is read again."""
    small = view.resize((side, side), Image.LANCZOS) if side < view.width else view
    out = io.BytesIO()
    if codec == "jpeg":
        small.save(out, "JPEG", quality=quality)
        count = jpeg_bytes(out.getvalue())
    else:
        lossless = codec == "webp-lossless"
        small.save(out, "WEBP", quality=quality, method=6, lossless=lossless, exact=lossless)
        count = webp_bytes(out.getvalue())
    read = Image.open(io.BytesIO(out.getvalue())).convert("RGB")
    return count, read.resize(view.size, Image.BICUBIC) if side < view.width else read


def sample_folder(job):
    """One folder of a sample: its views and their bytes."""
    source, target, codec, quality, side = job
    os.makedirs(target, exist_ok=True)
    counts = []
    for name in sorted(os.listdir(source)):
        with Image.open(os.path.join(source, name)) as view:
            count, read = code(view.convert("RGB"), codec, quality, side)
        # Weak but fast compression: these files are read once.
        read.save(os.path.join(target, name), "PNG", compress_level=1)
        counts.append(count)
    return counts


def main():
    source, target, codec, quality, side = sys.argv[1:]
    jobs = []
    for folder, inner, files in os.walk(source):
        if not inner and files and all(name.startswith("cam") for name in files):
            there = os.path.join(target, os.path.relpath(folder, source))
            jobs.append((folder, there, codec, int(quality), int(side)))
    with multiprocessing.Pool() as pool:
        counts = [count for found in pool.imap_unordered(sample_folder, jobs, 64) for count in found]
    classes = os.path.join(source, "classes.txt")
    if os.path.exists(classes):
        with open(classes, "rb") as read, open(os.path.join(target, "classes.txt"), "wb") as written:
            written.write(read.read())
    print(f"{sum(counts) / len(counts):.1f}")


main()
