#!/usr/bin/python3
"""Computes models of fleet/applications.h in PyTorch, in double precision, each
from the weights and the batch in a folder, and compares forward, loss and
gradients with libfleet's, which lie there too. See torch_test.c.

    torch_ref.py FOLDER...

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
    """The model's name, its slots, its tasks, and all tensors by name."""
    model, slots, tasks, tensors = None, [], [], {}
    for line in open(os.path.join(folder, "index.txt")):
        word = line.split()
        if word[0] == "model":
            model = word[1]
        elif word[0] == "slot":  # name, ids per sample, combiner, table
            slots.append((word[1], int(word[2]), word[3], word[4]))
        elif word[0] == "task":  # label, weight of its loss
            tasks.append((word[1], float(word[2])))
        else:  # tensor, name, dtype, file, dimensions
            data = numpy.fromfile(os.path.join(folder, word[3]),
                                  DTYPES[word[2]])
            tensors[word[1]] = data.reshape([int(d) for d in word[4:]])
    return model, slots, tasks, tensors


class Model:
    def __init__(self, slots, tasks, tensors):
        self.slots = slots
        self.tasks = tasks
        self.more = {}  # results beside prediction and loss
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

    def has(self, name):
        return "param." + name in self.leaf

    def layer(self, name, x):
        x = x @ self.w(name + ".w")
        return x + self.w(name + ".b") if self.has(name + ".b") else x

    def hidden(self, name, x):
        i = 0
        while self.has("%s_%d.w" % (name, i)):
            x = torch.relu(self.layer("%s_%d" % (name, i), x))
            i += 1
        return x

    def tower(self, x, name="tower"):
        return self.layer(name + "_out", self.hidden(name, x))

    def log_loss(self, p, label):
        y, e = self.feed(label), 1e-4
        loss = -y * torch.log(p + e) - (1 - y) * torch.log(1 - p + e)
        return loss.mean()

    def binary(self, logit):
        p = torch.sigmoid(logit)
        return p, self.log_loss(p, "label")

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

    def first_order(self):
        return self.fields("_first", "dense_first").sum(1, keepdim=True)

    def vectors(self):
        """[B, F, D]."""
        dim = self.w("dense_second").shape[1]
        e = self.fields("", "dense_second")
        return e.reshape(e.shape[0], -1, dim)

    def pairs(self, v):
        return (v.sum(1) ** 2 - (v ** 2).sum(1)) / 2

    def logistic_regression(self):
        return self.binary(self.first_order() + self.w("bias"))

    def fm(self):
        pairs = self.pairs(self.vectors()).sum(1, keepdim=True)
        return self.binary(pairs + self.first_order() + self.w("bias"))

    def ffm(self):
        v = self.vectors()  # of F D numbers each
        n = v.shape[1]
        v = v.reshape(v.shape[0], n, n, -1)
        pairs = sum((v[:, i, j] * v[:, j, i]).sum(1, keepdim=True)
                    for i in range(n) for j in range(i))
        return self.binary(pairs + self.first_order() + self.w("bias"))

    def nfm(self):
        deep = self.tower(self.pairs(self.vectors()))
        return self.binary(deep + self.first_order())

    def deepfm(self):
        v = self.vectors()
        pairs = self.pairs(v).sum(1, keepdim=True)
        return self.binary(self.tower(v.flatten(1)) + pairs +
                           self.first_order())

    def xdeepfm(self):
        v = x = self.vectors()
        i, sums = 0, []
        while self.has("cin_%d.w" % i):
            w = self.w("cin_%d.w" % i).reshape(v.shape[1], x.shape[1], -1)
            x = torch.einsum("bjd,bid,jih->bhd", v, x, w)
            sums.append(x.sum(2))
            i += 1
        cin = self.layer("cin_out", torch.cat(sums, 1))
        return self.binary(self.tower(v.flatten(1)) + cin + self.first_order())

    def beside(self, deep, cross):
        return self.binary(self.layer("tower_out",
                                      torch.cat([deep, cross], 1)))

    def dcn(self):
        x0 = x = torch.cat([self.embeddings(), self.numbers()], 1)
        i = 0
        while self.has("cross_%d.w" % i):
            name = "cross_%d" % i
            x = x0 * (x @ self.w(name + ".w")) + self.w(name + ".b") + x
            i += 1
        return self.beside(self.hidden("tower", x0), x)

    def matrix(self, name, x):
        if self.has(name + ".w"):
            return x @ self.w(name + ".w")
        if self.has(name + ".v"):
            return x @ self.w(name + ".v") @ self.w(name + ".u")
        gates = torch.softmax(x @ self.w(name + ".gate"), 1)
        n = gates.shape[1]
        us = self.w(name + ".u").reshape(n, -1, x.shape[1])
        y = 0
        for i in range(n):
            low = torch.tanh(x @ self.w("%s.v_%d" % (name, i)))
            low = torch.tanh(low @ self.w("%s.c_%d" % (name, i)))
            y = y + gates[:, i:i + 1] * (low @ us[i])
        return y

    def dcn_v2(self):
        x0 = x = torch.cat([self.embeddings(),
                            self.layer("dense", self.numbers())], 1)
        i = 0
        while self.has("cross_%d.b" % i):
            name = "cross_%d" % i
            x = x0 * (self.matrix(name, x) + self.w(name + ".b")) + x
            i += 1
        last = self.w("tower_1.w").shape[1]
        if self.w("tower_out.w").shape[0] == last:
            return self.binary(self.tower(x))
        return self.beside(self.hidden("tower", x0), x)

    def dlrm(self):
        e, x = self.embeddings(), None
        if self.has("bottom_out.w"):
            x = self.hidden("bottom", self.numbers())
            x = torch.relu(self.layer("bottom_out", x))
            e = torch.cat([e, x], 1)
        dim = x.shape[1]
        v = e.reshape(e.shape[0], -1, dim)
        n = v.shape[1]
        wide = self.w("tower_0.w").shape[0] - dim
        i, j = torch.tril_indices(n, n, 0 if wide > n * (n - 1) // 2 else -1)
        dots = (v @ v.transpose(1, 2))[:, i, j]
        return self.binary(self.tower(torch.cat([x, dots], 1)))

    def attend(self, name, x, heads):
        q, k, v = (torch.relu(x @ self.w("%s.%s" % (name, s)))
                   .reshape(x.shape[0], x.shape[1], heads, -1)
                   .transpose(1, 2) for s in "qkv")
        score = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        y = torch.softmax(score, 3) @ v
        return y.transpose(1, 2).flatten(2)

    def autoint(self):
        v = x = self.vectors()
        i = 0
        while self.has("attention_%d.q" % i):
            name = "attention_%d" % i
            y = self.attend(name, x, 2)
            if self.has(name + "_residual.w"):
                y = y + torch.relu(x @ self.w(name + "_residual.w"))
            y = torch.relu(y)
            x = torch.nn.functional.layer_norm(
                y, y.shape[2:], self.w(name + "_norm.w"),
                self.w(name + "_norm.b"), 1e-8)
            i += 1
        logit = self.layer("attention_out", x.flatten(1))
        if self.has("tower_out.w"):
            logit = logit + self.tower(v.flatten(1))
        return self.binary(logit)

    def of_tasks(self, p):
        loss = 0
        for i, (label, weight) in enumerate(self.tasks):
            one = self.log_loss(p[i], label)
            loss = loss + weight * one
            self.more["task_%d" % i] = p[i]
            self.more["task_%d.loss" % i] = one.reshape(1)
        return p[0], loss

    def towers(self, x):
        return self.of_tasks([torch.sigmoid(self.tower(x[i], "task_%d" % i))
                              for i in range(len(self.tasks))])

    def deep_input(self):
        return torch.cat([self.embeddings(), self.numbers()], 1)

    def share_bottom(self):
        x = self.hidden("bottom", self.deep_input())
        return self.towers([x] * len(self.tasks))

    def mixture(self, experts, gate, x):
        g = torch.softmax(self.layer(gate, x), 1)
        e = experts.reshape(x.shape[0], g.shape[1], -1)
        return (e * g.unsqueeze(2)).sum(1)

    def mmoe(self):
        x = self.deep_input()
        experts = torch.relu(self.layer("experts", x))
        return self.towers([self.mixture(experts, "gate_%d" % i, x)
                            for i in range(len(self.tasks))])

    def ple(self):
        n = len(self.tasks)
        x = [self.deep_input()] * (n + 1)
        level = 0
        while self.has("level_%d_shared.w" % level):
            at = "level_%d_" % level
            part = [torch.relu(self.layer(at + "experts_%d" % i, x[i]))
                    for i in range(n)]
            part.append(torch.relu(self.layer(at + "shared", x[n])))
            new = [self.mixture(torch.cat([part[i], part[n]], 1),
                                at + "gate_%d" % i, x[i]) for i in range(n)]
            if self.has(at + "gate_shared.w"):
                new.append(self.mixture(torch.cat(part, 1),
                                        at + "gate_shared", x[n]))
            x = new
            level += 1
        return self.towers(x)

    def esmm(self):
        x = self.deep_input()
        click, then = (torch.sigmoid(self.tower(x, "task_%d" % i))
                       for i in range(2))
        self.more["conversion"] = then
        return self.of_tasks([click, click * then])


def differ(name, got, want):
    """Norm-wise, relative."""
    want = want.detach().numpy()
    error = numpy.linalg.norm(got.astype(numpy.float64).ravel() - want.ravel())
    norm = numpy.linalg.norm(want)
    relative = error / norm if norm > 0 else error
    good = got.shape == want.shape and norm > 0 and relative <= TOLERANCE
    print("%s %-24s %.2e" % ("ok  " if good else "FAIL", name, relative))
    return not good


def compare(folder):
    name, slots, tasks, tensors = read(folder)
    model = Model(slots, tasks, tensors)
    prediction, loss = getattr(model, name)()
    loss.backward()
    print(name)
    bad = differ("prediction", tensors["prediction"], prediction)
    bad += differ("loss", tensors["loss"], loss.reshape(1))
    for result, x in model.more.items():
        bad += differ(result, tensors[result], x)
    for leaf, x in model.leaf.items():
        bad += differ(leaf, tensors["grad." + leaf], x.grad)
    return bad


def main():
    return 1 if sum(compare(folder) for folder in sys.argv[1:]) else 0


sys.exit(main())
