#!/usr/bin/env python3
"""parquet_ref.py HOW LINES OUT: the same made-up rows as lines of JSON and, by
pyarrow, as a Parquet file: HOW 0 to 3 differ in codec, encoding, version of pages,
and the size of row groups and pages. The exit status is 77 without pyarrow.
"""
import json
import os
import random
import sys

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path.insert(0, CACHE + "/libfleet/pyarrow-26.0")
try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except Exception as why:
    print("no pyarrow:", why)
    sys.exit(77)

ROWS = 3000
HOWS = [dict(compression="snappy"),
        dict(compression="zstd", data_page_version="2.0", row_group_size=700,
             data_page_size=2000),
        dict(compression="gzip", use_dictionary=False, row_group_size=999,
             write_page_checksum=True),
        dict(compression="lz4", use_dictionary=False, data_page_size=500,
             column_encoding={"i8": "DELTA_BINARY_PACKED",
                              "u32": "DELTA_BINARY_PACKED",
                              "text": "DELTA_BYTE_ARRAY",
                              "f32": "BYTE_STREAM_SPLIT"})]


def maybe(random, value):
    return None if random.random() < 0.2 else value


def rows():
    r = random.Random(5)
    texts = ["", "red", "blue", "a longer one, with a comma", "\u00e9\u4e2d"]
    for i in range(ROWS):
        n = 300 if i % 500 == 7 else r.randrange(5)
        yield {"flag": maybe(r, r.random() < 0.5),
               "f32": r.randrange(-1000, 1000) / 8,
               "f64": r.uniform(-1, 1),
               "i8": maybe(r, r.randrange(-128, 128)),
               "u32": r.choice([0, 7, 2**31, 2**32 - 1, i]),
               "u64": r.choice([2**63, 2**64 - 1, i]),
               "text": r.choice(texts) + str(i % 50),
               "word": r.choice(texts[1:]),
               "ints": maybe(r, [r.randrange(2**40) for _ in range(n)]),
               "texts": maybe(r, [maybe(r, r.choice(texts[1:]))
                                  for _ in range(n)]),
               "outer": maybe(r, {"member": maybe(r, i / 4)})}


def line(row):
    """What slots of JSON lines have: no nulls in lists, one value of a pair."""
    outer = row["outer"] or {}
    out = {k: row[k] for k in ("flag", "u32", "u64", "text", "word", "ints")}
    out["reals"] = [row["f32"], row["f64"]]
    out["small"] = row["i8"]
    out["texts"] = [t for t in row["texts"] or [] if t is not None]
    out["member"] = outer.get("member")
    return json.dumps(out)


how, lines, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
data = list(rows())
schema = pa.schema([
    ("flag", pa.bool_()), ("f32", pa.float32()),
    pa.field("f64", pa.float64(), nullable=False), ("i8", pa.int8()),
    ("u32", pa.uint32()), pa.field("u64", pa.uint64(), nullable=False),
    ("text", pa.large_string()),
    ("word", pa.dictionary(pa.int32(), pa.string())),
    ("ints", pa.list_(pa.int64())), ("texts", pa.large_list(pa.string())),
    ("outer", pa.struct([("member", pa.float64())]))])
pq.write_table(pa.Table.from_pylist(data, schema=schema), path, **HOWS[how])
with open(lines, "w", encoding="utf-8") as f:
    for row in data:
        f.write(line(row) + "\n")
