#!/usr/bin/env python3
"""read_events.py FOLDER: what is in the event files of a folder, read by code of
its own: the framing of TFRecord with its masked CRC-32C, and protobuf's wire
format. A line for each event, in the order in which TensorBoard reads files:

    file N                    the N-th file begins
    version TEXT
    start STEP                a process begins: what came before it from that
                              step on does not count any more
    scalar STEP TAG VALUE     9 digits
    histogram STEP TAG NUM MIN MAX SUM SQUARES BUCKETS COUNTED
                              COUNTED: the sum of all buckets' counts
    torn N                    so many bytes behind the last whole record

With the `tensorboard` package of PyPI the same numbers are read by it, too, and
the last line is "tensorboard: same" or what differs; else "tensorboard: absent".
A sum that is wrong, or bytes that are no event, end it with status 1.
"""
import os
import struct
import sys


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            break
        (size,) = struct.unpack_from("<Q", data, at)
        if struct.unpack_from("<I", data, at + 8)[0] != \
                masked(data[at:at + 8]):
            sys.exit(f"the sum of a size is wrong at byte {at}")
        if len(data) - at < 16 + size:
            break
        body = data[at + 12:at + 12 + size]
        if struct.unpack_from("<I", data, at + 12 + size)[0] != masked(body):
            sys.exit(f"the sum of a record is wrong at byte {at}")
        yield body
        at += 16 + size
    if at < len(data):
        yield len(data) - at


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif kind == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                sys.exit("a field is longer than its message")
            value, at = data[at:at + size], at + size
        else:
            sys.exit(f"kind {kind} of a field is none of protobuf's")
        yield key >> 3, value


def doubles(packed):
    return struct.unpack(f"<{len(packed) // 8}d", packed)


def histogram(data):
    parts = dict(fields(data))
    limits, counts = doubles(parts[6]), doubles(parts[7])
    assert list(limits) == sorted(set(limits)), "limits grow"
    assert len(limits) == len(counts) and limits[-1] == parts[2]
    return (parts[3], parts[1], parts[2], parts[4], parts[5], limits, counts)


def values(summary):
    for number, value in fields(summary):
        assert number == 1, "a summary has values alone"
        parts = dict(fields(value))
        yield parts[1].decode(), \
            parts[2] if 2 in parts else histogram(parts[5])


def show(body, seen):
    parts = dict(fields(body))
    step = parts.get(2, 0)
    assert parts[1] > 1.6e9, "seconds since 1970"
    if 3 in parts:
        print("version", parts[3].decode())
    if 7 in parts:
        assert dict(fields(parts[7])) == {1: 1}, "a session that starts"
        print("start", step)
    for tag, value in values(parts.get(5, b"")):
        if isinstance(value, tuple):
            num, low, high, total, squares, limits, counts = value
            print(f"histogram {step} {tag} {num:.9g} {low:.9g} {high:.9g} "
                  f"{total:.9g} {squares:.9g} {len(limits)} {sum(counts):.9g}")
        else:
            print(f"scalar {step} {tag} {value:.9g}")
        seen.append((step, tag, value))


def by_tensorboard(folder):
    try:
        from tensorboard.backend.event_processing import event_file_loader
    except ImportError:
        return None
    found = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        for event in event_file_loader.LegacyEventFileLoader(path).Load():
            found += [(event.step, v.tag, v.simple_value
                       if v.HasField("simple_value") else
                       (v.histo.num, v.histo.min, v.histo.max, v.histo.sum,
                        v.histo.sum_squares, tuple(v.histo.bucket_limit),
                        tuple(v.histo.bucket)))
                      for v in event.summary.value]
    return found


def main(folder):
    seen = []
    for i, name in enumerate(sorted(os.listdir(folder))):
        assert ".tfevents." in name, name
        print("file", i)
        with open(os.path.join(folder, name), "rb") as f:
            for body in records(f.read()):
                if isinstance(body, int):
                    print("torn", body)
                else:
                    show(body, seen)
    other = by_tensorboard(folder)
    print("tensorboard:", "absent" if other is None else
          "same" if other == seen else f"{other} are not {seen}")


main(sys.argv[1])
