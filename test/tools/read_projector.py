#!/usr/bin/env python3
"""read_projector.py FOLDER: what TensorBoard's projector finds in a folder, read by
code of its own. It says "points ROWS DIM"; then, with the `tensorboard` package of
PyPI, which reads the same by its plug-in's own code, "tensorboard: same" or what
differs; else "tensorboard: absent". What does not fit ends it with status 1."""
import os
import re
import sys


def read(folder):
    with open(os.path.join(folder, "projector_config.pbtxt")) as f:
        config = f.read()
    path = {k: re.search(k + r'_path: "(.*)"', config)[1]
            for k in ("tensor", "metadata")}
    shape = [int(n) for n in re.findall(r"tensor_shape: (\d+)", config)]
    with open(os.path.join(folder, path["tensor"])) as f:
        rows = [[float(x) for x in line.split("\t")] for line in f]
    with open(os.path.join(folder, path["metadata"])) as f:
        about = [line.rstrip("\n").split("\t") for line in f]
    assert shape == [len(rows), len(rows[0])], shape
    assert len(about) == len(rows) + 1, "a head, and a line for each row"
    assert len({len(line) for line in about}) == 1, "as many columns"
    return shape, rows


def by_tensorboard(folder):
    try:
        from google.protobuf import text_format
        from tensorboard.plugins.projector import (projector_config_pb2,
                                                   projector_plugin)
    except ImportError:
        return None
    config = projector_config_pb2.ProjectorConfig()
    with open(os.path.join(folder, "projector_config.pbtxt")) as f:
        text_format.Parse(f.read(), config)
    one = config.embeddings[0]
    tensor = projector_plugin._read_tensor_tsv_file(
        os.path.join(folder, one.tensor_path))
    return list(one.tensor_shape), tensor.tolist()


def main(folder):
    mine = read(folder)
    print("points", *mine[0])
    other = by_tensorboard(folder)
    if other is not None:  # it reads as 32-bit floats
        import numpy
        mine = mine[0], numpy.array(mine[1], numpy.float32).tolist()
    print("tensorboard:", "absent" if other is None else
          "same" if other == mine else f"{other} are not {mine}")


main(sys.argv[1])
