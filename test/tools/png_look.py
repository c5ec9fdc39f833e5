#!/usr/bin/env python3
"""png_look.py FILE RRGGBB...: a picture by its width and height, and for each
colour how many pixels have it, or nearly so, as a line of which a little is
beside them, and from which to which column and row.

Reads PNG of 8 bits, RGB, by itself: signature, sums of chunks, zlib, and the
five filters of rows (RFC 2083)."""
import functools
import struct
import sys
import zlib


def chunks(data):
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        sys.exit("no PNG")
    at = 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] != \
                zlib.crc32(kind + body):
            sys.exit("a chunk's sum is wrong")
        yield kind, body
        at += 12 + size


def paeth(a, b, c):
    p = a + b - c
    near = (abs(p - a), abs(p - b), abs(p - c))
    return (a, b, c)[near.index(min(near))]


def rows(width, height, data):
    size, before = 3 * width, bytearray(3 * width)
    for y in range(height):
        kind, row = data[y * (size + 1)], bytearray(
            data[y * (size + 1) + 1:(y + 1) * (size + 1)])
        for i in range(size if kind else 0):
            a = row[i - 3] if i >= 3 else 0
            b, c = before[i], before[i - 3] if i >= 3 else 0
            row[i] = (row[i] + (a, b, (a + b) // 2, paeth(a, b, c))[kind - 1]) \
                & 255
        before = row
        yield y, row


def main(path, colours):
    packed, head = b"", None
    for kind, body in chunks(open(path, "rb").read()):
        head = struct.unpack(">IIBBBBB", body) if kind == b"IHDR" else head
        packed += body if kind == b"IDAT" else b""
    width, height, bits, colour = head[:4]
    if (bits, colour) != (8, 2):
        sys.exit("expected RGB of 8 bits")
    seen = {bytes.fromhex(c): [] for c in colours}
    near = functools.lru_cache(None)(lambda pixel: next(
        (at for c, at in seen.items()
         if max(abs(a - b) for a, b in zip(pixel, c)) <= 40), None))
    for y, row in rows(width, height, zlib.decompress(packed)):
        for x in range(width):
            at = near(bytes(row[3 * x:3 * x + 3]))
            if at is not None:
                at.append((x, y))
    print(f"{width} x {height}")
    for name in colours:
        at = seen[bytes.fromhex(name)]
        xs, ys = [x for x, _ in at] or [-1], [y for _, y in at] or [-1]
        print(f"{name} {len(at)} columns {min(xs)} {max(xs)} "
              f"rows {min(ys)} {max(ys)}")


main(sys.argv[1], sys.argv[2:])
