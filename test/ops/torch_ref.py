#!/usr/bin/python3
"""Computes models of fleet/applications.h in PyTorch, in double precision, each
from the weights and the batch in a folder, and compares forward, loss and
gradients with libfleet's, which lie there too. See torch_kit.h.

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
    """The model's name, its slots, its tasks, its numbers, and all tensors by
    name."""
    model, slots, tasks, options, tensors = None, [], [], {}, {}
    for line in open(os.path.join(folder, "index.txt")):
        word = line.split()
        if word[0] == "model":
            model = word[1]
        elif word[0] == "slot":  # name, ids per sample, combiner, table, role
            slots.append((word[1], int(word[2]) or 1, *word[3:]))
        elif word[0] == "option":
            options[word[1]] = (float if "." in word[2] else int)(word[2])
        elif word[0] == "task":  # label, weight of its loss
            tasks.append((word[1], float(word[2])))
        else:  # tensor, name, dtype, file, dimensions
            data = numpy.fromfile(os.path.join(folder, word[3]),
                                  DTYPES[word[2]])
            tensors[word[1]] = data.reshape([int(d) for d in word[4:]])
    return model, slots, tasks, options, tensors


class Model:
    def __init__(self, slots, tasks, options, tensors):
        self.slots = slots
        self.options = options
        self.no_gradient = []  # parameters whose true one is 0
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
        name, width, combiner, table, _ = slot
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
        return torch.cat([self.embed(s, suffix) for s in self.of("feature")],
                         1)

    def of(self, role):
        return [s for s in self.slots if s[4] == role]

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

    def lenet(self):
        x = self.feed("image").reshape(-1, 2, 12, 12)
        for name, padding in (("conv_0", 2), ("conv_1", 0)):
            x = torch.nn.functional.conv2d(x, self.w(name + ".w"),
                                           self.w(name + ".b"),
                                           padding=padding)
            x = torch.nn.functional.max_pool2d(torch.relu(x), 2)
        return self.classes(self.tower(x.flatten(1)))

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
        """Features and numbers, of which there may be none."""
        parts = [self.embed(s, "") for s in self.of("feature")]
        if "feed.left" in self.t:
            parts.append(self.numbers())
        if not parts:
            parts.append(self.feed("label")[:, :0])
        return torch.cat(parts, 1)

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

    def sequence(self, slot):
        """The rows of the last ids, [B, T, D], and where there are any."""
        name, _, _, table, _ = slot
        n, ids = self.options["max_len"], self.t["feed." + name].ravel()
        offsets, rows, mask = self.t["offsets." + name], [], []
        for a, b in zip(offsets[:-1], offsets[1:]):
            a = max(a, b - n)
            padding = (0, 0, 0, n - (b - a))
            rows.append(torch.nn.functional.pad(self.rows(table, ids[a:b]),
                                                padding))
            mask.append([1.0] * (b - a) + [0.0] * (n - (b - a)))
        return torch.stack(rows), torch.tensor(mask, dtype=torch.float64)

    def history(self):
        """The histories, [B, T, N], their mask, and the items, [B, N]."""
        all = [self.sequence(s) for s in self.of("history")]
        items = [self.embed(s, "") for s in self.of("item")]
        return (torch.cat([rows for rows, _ in all], 2), all[0][1],
                torch.cat(items, 1))

    def softmax(self, x, mask):
        """Of a line without any all are 0."""
        e = torch.exp(x - x.max(-1, keepdim=True)[0].detach()) * mask
        return e / e.sum(-1, keepdim=True).clamp(min=1e-300)

    def scores(self, x, mask, item):
        """Of each place beside the item, as shares."""
        self.no_gradient.append("param.attention_out.b")
        t = item.unsqueeze(1).expand_as(x)
        a = self.hidden("attention", torch.cat([x, t, x - t, x * t], 2))
        a = self.layer("attention_out", a).squeeze(2) / x.shape[2] ** 0.5
        return self.softmax(a, mask)

    def beside_item(self, x, item):
        x = torch.cat([x, item, self.deep_input()], 1)
        return self.binary(self.tower(x) +
                           self.embed(self.of("item")[0], "_bias"))

    def din(self):
        rows, mask, item = self.history()
        a = self.scores(rows, mask, item)
        x = (a.unsqueeze(2) * rows).sum(1)
        return self.beside_item(self.layer("history", x), item)

    def norm(self, name, x):
        return torch.nn.functional.layer_norm(
            x, x.shape[2:], self.w(name + ".w"), self.w(name + ".b"))

    def heads_of(self, name, x, heads):
        x = x @ self.w(name) + self.w(name + "_bias")
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)

    def self_attention(self, name, query, x, mask, heads):
        """mask: [B, L or 1, M], 1 where a key counts."""
        q = self.heads_of(name + ".q", query, heads)
        k = self.heads_of(name + ".k", x, heads)
        v = self.heads_of(name + ".v", x, heads)
        self.no_gradient.append("param." + name + ".k_bias")
        score = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        y = self.softmax(score, mask.unsqueeze(1)) @ v
        y = y.transpose(1, 2).flatten(2)
        if self.has(name + ".out"):
            y = y @ self.w(name + ".out") + self.w(name + ".out_bias")
        return y

    def feed_forward(self, name, x, activation):
        x = activation(self.layer(name + "_ffn_0", x))
        return self.layer(name + "_ffn_1", x)

    def bst(self):
        rows, mask, item = self.history()
        x = torch.cat([rows, item.unsqueeze(1)], 1) + self.w("position")
        mask = torch.nn.functional.pad(mask, (0, 1), value=1.0).unsqueeze(1)
        leaky = torch.nn.LeakyReLU(0.01)
        i = 0
        while self.has("block_%d.q" % i):
            name = "block_%d" % i
            x = x + self.self_attention(name, x, x, mask,
                                        self.options["heads"])
            x = self.norm(name + "_norm_0", x)
            x = self.norm(name + "_norm_1",
                          x + self.feed_forward(name, x, leaky))
            i += 1
        x = torch.cat([x[:, -1], self.deep_input()], 1)
        i = 0
        while self.has("tower_%d.w" % i):
            x = leaky(self.layer("tower_%d" % i, x))
            i += 1
        return self.binary(self.layer("tower_out", x))

    def last(self, x, mask):
        """Of the last place that is there; of none zeros."""
        n = mask.sum(1).long()
        at = (n - 1).clamp(min=0)
        return x[torch.arange(len(n)), at] * (n > 0).unsqueeze(1)

    def next_items(self, x, rows, mask):
        """What each place says of the next id, and of the negative there."""
        drawn = torch.cat([self.sequence(s)[0] for s in self.of("negative")],
                          2)
        softplus = torch.nn.functional.softplus
        loss = (softplus(-(x[:, :-1] * rows[:, 1:]).sum(2)) +
                softplus((x[:, :-1] * drawn[:, 1:]).sum(2))) * mask[:, 1:]
        return (loss.sum(1) / mask[:, 1:].sum(1).clamp(min=1)).mean()

    def sasrec(self):
        rows, mask, item = self.history()
        n = rows.shape[1]
        x = rows * rows.shape[2] ** 0.5 + self.w("position")
        seen = torch.ones(n, n, dtype=torch.float64).tril() * mask.unsqueeze(1)
        i = 0
        while self.has("block_%d.q" % i):
            name = "block_%d" % i
            q = self.norm(name + "_norm_0", x)
            x = q + self.self_attention(name, q, x, seen,
                                        max(self.options["heads"], 1))
            f = self.norm(name + "_norm_1", x)
            x = f + self.feed_forward(name, f, torch.relu)
            i += 1
        x = self.norm("norm", x)
        p, loss = self.binary((self.last(x, mask) * item).sum(1, keepdim=True))
        if self.of("negative"):
            loss = loss + self.next_items(x, rows, mask)
        return p, loss

    def pairs_of(self, user, item):
        """Each item of the batch is a negative of the others."""
        t = self.options["temperature"] or 1
        self.more["user"], self.more["item"] = user, item
        scores = user @ item.T / t
        if "feed.log_q" in self.t:
            scores = scores - self.feed("log_q").T
        name, width = self.of("item")[0][:2]
        if width == 1:
            ids = torch.tensor(self.t["feed." + name].ravel())
            same = ids.unsqueeze(0) == ids.unsqueeze(1)
            same.fill_diagonal_(False)
            scores = scores.masked_fill(same, -float("inf"))
        loss = -torch.log_softmax(scores, 1).diagonal()
        if "feed.label" in self.t:
            loss = loss * self.feed("label").squeeze(1)
        return (torch.sigmoid((user * item).sum(1, keepdim=True) / t),
                loss.mean())

    def vector(self, x, name):
        x = self.tower(x, name)
        if self.options["normalize"]:
            return torch.nn.functional.normalize(x)
        self.no_gradient.append("param.item_out.b")  # a softmax of all items
        return x

    def two_tower(self):
        items = torch.cat([self.embed(s, "") for s in self.of("item")], 1)
        return self.pairs_of(self.vector(self.deep_input(), "user"),
                             self.vector(items, "item"))

    def youtube_dnn(self):
        return self.pairs_of(self.hidden("tower", self.deep_input()),
                             self.embed(self.of("item")[0], "_out"))

    def gru(self, name, x, share):
        """States; share: of each update, [B, T]."""
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            i = x[:, t] @ self.w(name + ".x.w") + self.w(name + ".x.b")
            s = h @ self.w(name + ".h.w") + self.w(name + ".h.b")
            (ir, iz, i_n), (sr, sz, sn) = i.chunk(3, 1), s.chunk(3, 1)
            r, z = torch.sigmoid(ir + sr), torch.sigmoid(iz + sz)
            new = torch.tanh(i_n + r * sn)
            h = h + share[:, t:t + 1] * (1 - z) * (new - h)
            out.append(h)
        return torch.stack(out, 1)

    def dien(self):
        rows, mask, item = self.history()
        states = self.gru("gru", rows, mask)
        share = self.scores(states, mask, item)
        x = self.gru("augru", states, share)[:, -1]
        p, loss = self.beside_item(x, item)
        if self.of("negative"):
            loss = loss + self.next_items(states, rows, mask)
        return p, loss

    def gru4rec(self):
        rows, mask, item = self.history()
        states = self.gru("gru", rows, mask)
        p, loss = self.pairs_of(self.last(states, mask), item)
        if self.of("negative"):
            loss = loss + self.next_items(states, rows, mask)
        return p, loss

    def word2vec(self):
        softplus = torch.nn.functional.softplus
        x = self.embed(self.of("feature")[0], "")
        slot = self.of("item")[0]
        v = self.embed(slot, "_out")
        self.more["user"], self.more["item"] = x, v
        logit = (x * v).sum(1, keepdim=True) + self.embed(slot, "_bias")
        y = self.feed("label") if "feed.label" in self.t else 1
        loss = y * softplus(-logit) + (1 - y) * softplus(logit)
        for slot in self.of("negative"):
            v = self.embed(slot, "_out").reshape(len(x), -1, x.shape[1])
            drawn = (v * x.unsqueeze(1)).sum(2) + self.embed(slot, "_bias")
            loss = loss + softplus(drawn).sum(1, keepdim=True)
        return torch.sigmoid(logit), loss.mean()


def differ(name, got, want, zero=False):
    """Norm-wise, relative; of what is zero absolute."""
    want = want.detach().numpy()
    error = numpy.linalg.norm(got.astype(numpy.float64).ravel() - want.ravel())
    norm = numpy.linalg.norm(want)
    relative = error / norm if norm > 0 and not zero else error
    good = got.shape == want.shape and relative <= TOLERANCE and (
        norm < 1e-12 if zero else norm > 0)
    print("%s %-24s %.2e" % ("ok  " if good else "FAIL", name, relative))
    return not good


def compare(folder):
    name, slots, tasks, options, tensors = read(folder)
    model = Model(slots, tasks, options, tensors)
    prediction, loss = getattr(model, name)()
    loss.backward()
    print(name)
    bad = differ("prediction", tensors["prediction"], prediction)
    bad += differ("loss", tensors["loss"], loss.reshape(1))
    for result, x in model.more.items():
        bad += differ(result, tensors[result], x)
    for leaf, x in model.leaf.items():
        bad += differ(leaf, tensors["grad." + leaf], x.grad,
                      leaf in model.no_gradient)
    return bad


def main():
    return 1 if sum(compare(folder) for folder in sys.argv[1:]) else 0


sys.exit(main())
