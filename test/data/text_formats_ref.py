#!/usr/bin/env python3
"""text_formats_ref.py FORMAT FILE: the values of a file of lines, read by
nothing of libfleet's: json of Python for JSON lines, splits for the others. What
text_formats_test.c prints of its own reading must be the same.

Slots: label (float), dense (3 floats), tags (weighted ids), words (ids), query
(an id). A line of output has for each its values: ids in decimal, the bits of
floats in hex, weights behind their ids.
"""
import json
import struct
import sys

FIXED = {"label": 1, "dense": 3, "query": 1}


def bits(x):
    return struct.pack(">f", float(x)).hex()


def row_of_slots(slots):
    out = []
    for name in ("label", "dense", "tags", "words", "query"):
        values = slots.get(name, [])
        if not values and name in FIXED:
            values = [0] * FIXED[name]
        for v in values:
            if name in ("label", "dense"):
                out.append(bits(v))
            elif name == "tags":
                out += [str(int(v[0])), bits(v[1])]
            else:
                out.append(str(int(v)))
        out.append(";")
    return " ".join(out)


def slot_text(line):
    slots = {}
    for token in line.split():
        name, _, value = token.partition(":")
        if name == "tags":
            id_, _, weight = value.partition(":")
            value = (id_, weight or 1)
        slots.setdefault(name, []).append(value)
    return row_of_slots(slots)


def json_line(line):
    slots = {}
    for name, value in json.loads(line).items():
        values = [] if value is None else \
            value if isinstance(value, list) else [value]
        if name == "tags":
            values = [v if isinstance(v, list) else [v, 1] for v in values]
        slots[name] = values
    return row_of_slots(slots)


def libsvm(line):
    words = line.split("#")[0].split()
    return row_of_slots({
        "label": words[:1], "query": [words[1][len("qid:"):]],
        "tags": [w.split(":") for w in words[2:]]})


def main():
    read = {"slot_text": slot_text, "json_lines": json_line,
            "libsvm": libsvm}[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                print(read(line))


main()
