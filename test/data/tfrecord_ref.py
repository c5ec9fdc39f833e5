#!/usr/bin/env python3
"""tfrecord_ref.py PACKAGES LINES OUT: writes lines of JSON as TFRecord of
tf.Example: integers as int64_list, floats as float_list, strings as bytes_list.

Examples are made by PyPI's protobuf, with TensorFlow's schema, if it is in
PACKAGES or where `make onnx` puts it; else by hand. With it, what is written by
hand is compared, too. OUT that ends in .gz is packed.
"""
import gzip
import json
import os
import struct
import sys

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path.insert(0, sys.argv[1] or CACHE + "/libfleet/onnx-1.23")

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except Exception:
    descriptor_pb2 = None

FIELDS = {"BytesList": [("value", 1, 12, None)],
          "FloatList": [("value", 1, 2, None)],
          "Int64List": [("value", 1, 3, None)],
          "Feature": [("bytes_list", 1, 11, "BytesList"),
                      ("float_list", 2, 11, "FloatList"),
                      ("int64_list", 3, 11, "Int64List")],
          "Features": [("feature", 1, 11, "Features.FeatureEntry")],
          "Example": [("features", 1, 11, "Features")]}


def add_fields(message, fields, repeated, oneof=False):
    for name, number, kind, of in fields:
        f = message.field.add(name=name, number=number, type=kind,
                              label=3 if repeated else 1)
        if of:
            f.type_name = ".tensorflow." + of
        if oneof:
            f.oneof_index = 0


def example_class():
    """tensorflow/core/example/example.proto and feature.proto."""
    f = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3")
    for name, fields in FIELDS.items():
        m = f.message_type.add(name=name)
        if name == "Feature":
            m.oneof_decl.add(name="kind")
        if name == "Features":
            entry = m.nested_type.add(name="FeatureEntry")
            entry.options.map_entry = True
            add_fields(entry, [("key", 1, 9, None),
                               ("value", 2, 11, "Feature")], False)
        add_fields(m, fields, name.endswith("List") or name == "Features",
                   name == "Feature")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(f)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tensorflow.Example"))


def signed(x):
    return x - (1 << 64) if x >= 1 << 63 else x


def list_of(value):
    """The kind of list, and its values."""
    values = value if isinstance(value, list) else [value]
    if any(isinstance(v, str) for v in values):
        return "bytes_list", [v.encode() for v in values]
    if any(isinstance(v, float) for v in values):
        return "float_list", values
    return "int64_list", [signed(v) for v in values]


# --- by hand -----------------------------------------------------------------

def varint(x):
    x &= (1 << 64) - 1
    out = bytearray()
    while x >= 128:
        out.append(x & 127 | 128)
        x >>= 7
    out.append(x)
    return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def by_hand(row):
    features = b""
    for name, value in row.items():
        kind, values = list_of(value)
        if kind == "bytes_list":
            inner = b"".join(field(1, v) for v in values)
        elif kind == "float_list":
            inner = field(1, struct.pack(f"<{len(values)}f", *values))
        else:
            inner = field(1, b"".join(varint(v) for v in values))
        feature = field(("", "bytes_list", "float_list",
                         "int64_list").index(kind), inner)
        features += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, features)


# --- files -------------------------------------------------------------------

def table():
    out = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
        out.append(i)
    return out


TABLE = table()


def masked_sum(data):
    s = 0xffffffff
    for byte in data:
        s = s >> 8 ^ TABLE[(s ^ byte) & 255]
    s ^= 0xffffffff
    return ((s >> 15 | s << 17) + 0xa282ead8) & 0xffffffff


def example_of(row, cls):
    if not cls:
        return by_hand(row)
    e = cls()
    for name, value in row.items():
        kind, values = list_of(value)
        getattr(e.features.feature[name], kind).value.extend(values)
    if cls.FromString(by_hand(row)) != e:
        sys.exit(f"protobuf reads {row} otherwise")
    return e.SerializeToString()


def main():
    _, _, lines, out = sys.argv
    cls = example_class() if descriptor_pb2 else None
    with open(lines, encoding="utf-8") as f, \
            (gzip.open if out.endswith(".gz") else open)(out, "wb") as to:
        for line in f:
            data = example_of(json.loads(line), cls)
            size = struct.pack("<Q", len(data))
            to.write(size + struct.pack("<I", masked_sum(size)) + data +
                     struct.pack("<I", masked_sum(data)))


main()
