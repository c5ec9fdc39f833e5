#!/usr/bin/env python3
"""onnx_ref.py FOLDER...: models of ONNX that libfleet has written, checked by
`onnx` and run by `onnxruntime` on the batches beside them. A line for each
difference; exit status 1 if there is one, 77 without these packages.

A folder has model.onnx and index.txt (test/kit/onnx_kit.c):

    title TEXT
    batch TOLERANCE        then feeds, and what must come out
    bad                    then feeds at which the session must fail
    feed|want TYPE FILE DIMS NAME     with tabs between

The packages are looked for in FLEET_ONNX, or where `make onnx` puts them.
"""
import os
import sys

CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
sys.path.insert(0, os.environ.get("FLEET_ONNX") or CACHE + "/libfleet/onnx-1.23")

try:
    import numpy
    import onnx
    import onnxruntime
except Exception as e:  # a package that is there and does not load, too
    print(e)
    sys.exit(77)


def read_index(folder):
    """The title, and batches: (tolerance or None, feeds, wanted)."""
    title, batches = "", []
    with open(folder + "/index.txt", encoding="utf-8") as f:
        for line in f:
            words = line.rstrip("\n").split("\t")
            if line.startswith("title "):
                title = line[6:-1]
            elif words[0] == "batch":
                batches.append((float(words[1]), {}, {}))
            elif words[0] == "bad":
                batches.append((None, {}, {}))
            else:
                what, kind, file, dims, name = words
                shape = [int(d) for d in dims.split(",") if d]
                array = numpy.fromfile(folder + "/" + file, dtype=kind).reshape(shape)
                batches[-1][1 if what == "feed" else 2][name] = array
    return title, batches


def difference(name, got, want, tolerance):
    if got.shape != want.shape or got.dtype != want.dtype:
        return "%s is %s %s, not %s %s" % (name, got.dtype, got.shape, want.dtype, want.shape)
    off = numpy.abs(got.astype("float64") - want) / numpy.maximum(1, numpy.abs(want))
    if off.size and not off.max() <= tolerance:
        at = numpy.unravel_index(numpy.argmax(numpy.nan_to_num(off, nan=numpy.inf)), off.shape)
        return "%s%s is %r, not %r" % (name, list(map(int, at)), got[at], want[at])
    return None


def check_shapes(session, wanted):
    """Declared dimensions: numbers are those that came, names are free."""
    for output in session.get_outputs():
        came = wanted[output.name].shape
        if len(came) != len(output.shape) or any(
                isinstance(d, int) and d != c for d, c in zip(output.shape, came)):
            yield "%s is declared as %s and is %s" % (output.name, output.shape, came)


def faults(folder):
    title, batches = read_index(folder)
    path = folder + "/model.onnx"
    try:
        onnx.checker.check_model(path, full_check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    except Exception as e:
        yield "%s: %s" % (title, e)
        return
    names = {i.name for i in session.get_inputs()}
    for tolerance, feeds, wanted in batches:
        if set(feeds) != names:
            yield "%s: inputs are %s, not %s" % (title, sorted(names), sorted(feeds))
            continue
        try:
            got = dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds)))
        except Exception as e:
            if tolerance is not None:
                yield "%s: %s" % (title, e)
            continue
        if tolerance is None:
            yield "%s: a batch that is bad was taken" % title
            continue
        if set(got) != set(wanted):
            yield "%s: outputs are %s, not %s" % (title, sorted(got), sorted(wanted))
            continue
        for text in check_shapes(session, wanted):
            yield "%s: %s" % (title, text)
        for name, want in wanted.items():
            text = difference(name, got[name], want, tolerance)
            if text:
                yield "%s: %s" % (title, text)


def main(folders):
    found = [text for folder in folders for text in faults(folder)]
    for text in found:
        print(text)
    print("%d models, %d faults" % (len(folders), len(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
