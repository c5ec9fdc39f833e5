#!/usr/bin/python3
"""Computes a model of fleet/applications.h in PyTorch, in double precision, from
the weights and the batch in a folder, and compares forward, loss and gradients
with libfleet's, which lie there too. See torch_test.c.

    torch_ref.py FOLDER

Exit status 0: all agree; 1: they do not; 77: there is no PyTorch.
"""
import os
import sys

try:
    import numpy
    import torch
except ImportError as e:
    print(e)
    sys.exit(77)

TOLERANCE = 1e-5
DTYPES = {"f": numpy.float32, "i": numpy.int64}


def read(folder):
    """The model's name, its slots, and all tensors by name."""
    model, slots, tensors = None, [], {}
    for line in open(os.path.join(folder, "index.txt")):
        word = line.split()
        if word[0] == "model":
            model = word[1]
        elif word[0] == "slot":  # name, ids per sample, combiner, table
            slots.append((word[1], int(word[2]), word[3], word[4]))
        else:  # tensor, name, dtype, file, dimensions
            data = numpy.fromfile(os.path.join(folder, word[3]),
                                  DTYPES[word[2]])
            tensors[word[1]] = data.reshape([int(d) for d in word[4:]])
    return model, slots, tensors


class Model:
    def __init__(self, slots, tensors):
        self.slots = slots
        self.t = tensors
        self.leaf = {}  # weights and rows, with gradients
        self.place = {}  # of each key in its table
        for name, x in tensors.items():
            if name.startswith("param.") or name.startswith("rows."):
                self.leaf[name] = torch.tensor(x.astype(numpy.float64),
                                               requires_grad=True)
            if name.startswith("keys."):
                self.place[name[5:]] = {int(k): i for i, k in enumerate(x)}

    def w(self, name):
        return self.leaf["param." + name]

    def feed(self, name):
        return torch.tensor(self.t["feed." + name].astype(numpy.float64))

    def numbers(self):
        return torch.cat([self.feed("left"), self.feed("right")], 1)

    def rows(self, table, ids):
        place = self.place[table]
        at = torch.tensor([place[int(i)] for i in ids], dtype=torch.long)
        return self.leaf["rows." + table][at]

    def embed(self, slot, suffix):
        """[B, L dim], or [B, dim] of a ragged slot."""
        name, width, combiner, table = slot
        ids = self.t["feed." + name].ravel()
        rows = self.rows(table + suffix, ids)
        if width > 0:
            return rows.reshape(len(ids) // width, -1)
        offsets = self.t["offsets." + name]
        out = []
        for a, b in zip(offsets[:-1], offsets[1:]):
            total = rows[a:b].sum(0)
            out.append(total / (b - a) if combiner == "mean" and b > a
                       else total)
        return torch.stack(out)

    def embeddings(self, suffix=""):
        return torch.cat([self.embed(s, suffix) for s in self.slots], 1)

    def tower(self, x):
        i = 0
        while "param.tower_%d.w" % i in self.leaf:
            name = "tower_%d" % i
            x = torch.relu(x @ self.w(name + ".w") + self.w(name + ".b"))
            i += 1
        return x @ self.w("tower_out.w") + self.w("tower_out.b")

    def binary(self, logit):
        p, y, e = torch.sigmoid(logit), self.feed("label"), 1e-4
        loss = -y * torch.log(p + e) - (1 - y) * torch.log(1 - p + e)
        return p, loss.mean()

    def classes(self, logits):
        label = torch.tensor(self.t["feed.label"].ravel())
        loss = torch.nn.functional.cross_entropy(logits, label)
        return torch.softmax(logits, 1), loss

    def mlp(self):
        return self.classes(self.tower(self.feed("image")))

    def wide_deep(self):
        x = self.numbers()
        deep = self.tower(torch.cat([self.embeddings(), x], 1))
        wide = x @ self.w("wide.w") + self.w("wide.b")
        ids = self.embeddings("_wide").sum(1, keepdim=True)
        return self.binary(deep + wide + ids)

    def ctr_dnn(self):
        return self.classes(
            self.tower(torch.cat([self.embeddings(), self.numbers()], 1)))

    def fields(self, suffix, numbers):
        """Vectors of all fields side by side."""
        x = self.numbers().unsqueeze(2) * self.w(numbers)
        return torch.cat([self.embeddings(suffix), x.flatten(1)], 1)

    def deepfm(self):
        first = self.fields("_first", "dense_first").sum(1, keepdim=True)
        e = self.fields("", "dense_second")
        dim = self.w("dense_second").shape[1]
        v = e.reshape(e.shape[0], -1, dim)
        pairs = (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(1, keepdim=True) / 2
        return self.binary(self.tower(e) + pairs + first)


def differ(name, got, want):
    """Norm-wise, relative."""
    want = want.detach().numpy()
    error = numpy.linalg.norm(got.astype(numpy.float64).ravel() - want.ravel())
    norm = numpy.linalg.norm(want)
    relative = error / norm if norm > 0 else error
    good = got.shape == want.shape and norm > 0 and relative <= TOLERANCE
    print("%s %-24s %.2e" % ("ok  " if good else "FAIL", name, relative))
    return not good


def main():
    name, slots, tensors = read(sys.argv[1])
    model = Model(slots, tensors)
    prediction, loss = getattr(model, name)()
    loss.backward()
    bad = differ("prediction", tensors["prediction"], prediction)
    bad += differ("loss", tensors["loss"], loss.reshape(1))
    for leaf, x in model.leaf.items():
        bad += differ(leaf, tensors["grad." + leaf], x.grad)
    return 1 if bad else 0


sys.exit(main())
