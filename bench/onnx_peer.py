#!/usr/bin/env python3
"""onnx_peer.py FOLDER ROWS RUNS: onnxruntime on FOLDER/model.onnx, of bench/serve.c,
one thread, a row at a time: microseconds of a run, and the sum of all scores.

Inputs and outputs are bound once, and a row is copied into their memory, so that
Python's share of a run is one call.
"""
import os
import sys
import time

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path.insert(0, os.environ.get("FLEET_ONNX") or CACHE + "/libfleet/onnx-1.23")

import numpy
import onnxruntime


def main(folder, rows, runs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(folder + "/model.onnx", options, ["CPUExecutionProvider"])
    kind = numpy.dtype([("dense", "f4", (13,)), ("ids", "i8", (26,))])
    row = numpy.fromfile(folder + "/rows", dtype=kind)
    assert len(row) == rows
    dense, ids = numpy.zeros((1, 13), "f4"), [numpy.zeros((1, 1), "i8") for _ in range(26)]
    out = numpy.zeros((1, 2), "f4")
    binding = session.io_binding()
    binding.bind_cpu_input("dense_input", dense)
    for i, a in enumerate(ids):
        binding.bind_cpu_input(str(i + 1), a)
    binding.bind_output(session.get_outputs()[0].name, "cpu", 0, numpy.float32, (1, 2), out.ctypes.data)
    run, bound = session._sess.run_with_iobinding, binding._iobinding

    def set_row(i):
        dense[0] = row["dense"][i]
        for k in range(26):
            ids[k][0, 0] = row["ids"][i][k]

    total = 0.0
    for i in range(rows):  # warm, and the scores
        set_row(i)
        run(bound, None)
        total += float(out[0, 1])
    seconds = 0.0
    for i in range(runs):  # a row is set before its time begins
        set_row(i % rows)
        begin = time.perf_counter()
        run(bound, None)
        seconds += time.perf_counter() - begin
    print("us %.3f sum %.6f" % (seconds / runs * 1e6, total))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
