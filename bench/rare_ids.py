#!/usr/bin/python3
"""rare_ids: how well ids that are rare are learnt under Adam, in libfleet and in
PyTorch, where a row's bias corrections follow the number of the update or the
row's own count.

  rare_ids.py [--seeds 3] [--fleet_train build/release/fleet-train]

A seeded generator makes 57,722 samples to train on and 20,000 to test, with 10
fields of 957, 4,082, 7, 7, 2, 3, 2, 9, 80 and 233 ids; users and items are drawn by
Zipf's law, so half of them come up a few times at most. The label follows hidden
vectors of the ids. wide_deep with wide_ids, dimension 10, tower 200-100, Adam of
1e-3, batches of 256, 12 epochs. A line of JSON per training, then the mean AUC of
each kind:

  fleet update   fleet-train as it is
  fleet row      fleet-train with "row_steps": true
  torch update   torch.optim.SparseAdam for rows, Adam for the rest
  torch row      the same formulas with a count per row
  torch dense    Adam for all: rows that a batch has not touched move, too

PyTorch's models begin with the first values of libfleet's of the same seed, which
decide more about the AUC than anything else that differs, and share nothing with them
from then on but the data. Needs PyTorch 1.13 and NumPy.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TRAIN, TEST = 57722, 20000
FIELDS = [957, 4082, 7, 7, 2, 3, 2, 9, 80, 233]
DIM, HIDDEN, BATCH, EPOCHS, RATE = 10, [200, 100], 256, 12, 1e-3
HIDDEN_DIM = 2  # of the generator's vectors


def make_data(seed):
    """ids [n, 10], numbered through all fields; labels [n]."""
    rng = np.random.default_rng(seed)
    n, column, logit = TRAIN + TEST, [], 0.0
    vectors = []
    for rows in FIELDS:
        p = 1.0 / np.arange(1, rows + 1) ** (0.9 if rows > 100 else 0.5)
        column.append(rng.choice(rows, n, p=p / p.sum()))
        vectors.append(rng.normal(0, 1, (rows, HIDDEN_DIM)))
        logit = logit + rng.normal(0, 0.9, rows)[column[-1]]
    user, item = vectors[0][column[0]], vectors[1][column[1]]
    logit = logit + 1.5 * (user * item).sum(1) / np.sqrt(HIDDEN_DIM)
    for context in (2, 7, 9):
        logit = logit + 0.7 * (item * vectors[context][column[context]]).sum(1)
    logit = 4 * logit - 2
    label = rng.random(n) < 1 / (1 + np.exp(-logit))
    first = np.cumsum([0] + FIELDS[:-1])
    return np.stack(column, 1) + first, label.astype(np.float32)


def auc_of(score, label):
    """By ranks; equal scores share theirs."""
    _, group, count = np.unique(score, return_inverse=True,
                                return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]
    good = label > 0.5
    n = good.sum()
    return float((rank[good].sum() - n * (n + 1) / 2) / (n * (len(label) - n)))


# --- PyTorch -----------------------------------------------------------------


class Model(nn.Module):
    """first: values by name, as read_save() gives them; rows that no sample to
    train on has are drawn alike."""

    def __init__(self, sparse, first):
        super().__init__()
        self.rows = nn.Embedding(sum(FIELDS), DIM, sparse=sparse)
        self.wide = nn.Embedding(sum(FIELDS), 1, sparse=sparse)
        nn.init.uniform_(self.rows.weight, -DIM ** -0.5, DIM ** -0.5)
        nn.init.zeros_(self.wide.weight)
        keys, values = first["embedding"]
        with torch.no_grad():
            self.rows.weight[torch.tensor(keys)] = torch.tensor(values)
        sizes = [len(FIELDS) * DIM] + HIDDEN
        layers = []
        for i, o in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(i, o), nn.ReLU()]
        self.tower = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
        linear = [x for x in self.tower if isinstance(x, nn.Linear)]
        for name, layer in zip(["tower_0", "tower_1", "tower_out"], linear):
            with torch.no_grad():
                layer.weight.copy_(torch.tensor(first[name + ".w"].T.copy()))
                layer.bias.zero_()

    def forward(self, ids):
        deep = self.tower(self.rows(ids).flatten(1))
        return (deep + self.wide(ids).sum(1)).squeeze(1)


class RowAdam:
    """Adam of embeddings, each row with its own t."""

    def __init__(self, params):
        self.all = [(p, torch.zeros_like(p), torch.zeros_like(p),
                     torch.zeros(len(p), 1)) for p in params]

    @torch.no_grad()
    def step(self):
        for p, m, v, t in self.all:
            at = p.grad.coalesce()
            row, g = at.indices()[0], at.values()
            t[row] += 1
            m[row] = 0.9 * m[row] + 0.1 * g
            v[row] = 0.999 * v[row] + 0.001 * g * g
            mean = m[row] / (1 - 0.9 ** t[row])
            square = v[row] / (1 - 0.999 ** t[row])
            p[row] -= RATE * mean / (square.sqrt() + 1e-8)

    def zero_grad(self):
        for p, _, _, _ in self.all:
            p.grad = None


def optimizers_of(model, kind):
    rows = [model.rows.weight, model.wide.weight]
    if kind == "dense":
        return [torch.optim.Adam(model.parameters(), RATE)]
    return [torch.optim.Adam(model.tower.parameters(), RATE),
            RowAdam(rows) if kind == "row" else
            torch.optim.SparseAdam(rows, RATE)]


def train_torch(kind, seed, ids, label, first):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Model(kind != "dense", first)
    optimizers = optimizers_of(model, kind)
    x, y = torch.tensor(ids), torch.tensor(label)
    for _ in range(EPOCHS):
        for batch in torch.randperm(TRAIN).split(BATCH):
            for o in optimizers:
                o.zero_grad()
            F.binary_cross_entropy_with_logits(model(x[batch]),
                                               y[batch]).backward()
            for o in optimizers:
                o.step()
    with torch.no_grad():
        return auc_of(model(x[TRAIN:]).numpy(), label[TRAIN:])


# --- libfleet ----------------------------------------------------------------


def write_lines(path, ids, label):
    with open(path, "w") as out:
        for row, y in zip(ids, label):
            out.write("%d\t%s\n" % (y, "\t".join(map(str, row))))


def read_save(folder):
    """Parameters as arrays, tables as (keys, rows), of a save without states:
    docs/formats.md."""
    with open(folder + "/manifest.json") as f:
        manifest = json.load(f)
    found = {}
    for part in manifest["parts"]:
        with open(os.path.join(folder, part["file"]), "rb") as f:
            data = f.read()
        at = 0
        while at < len(data):
            _, kind, item, _, n = struct.unpack_from("<IIIIQ", data, at)
            at += 24
            keys = np.zeros(0, np.int64)
            width = 1
            if kind == 2:
                keys = np.frombuffer(data, np.int64, n, at)
                at += 12 * n  # and the steps
                width = manifest["tables"][item]["dim"]
            values = np.frombuffer(data, np.float32, n * width, at)
            at += 4 * n * width
            of = manifest["tables" if kind == 2 else "params"][item]
            found.setdefault(of["name"], []).append((keys, values))
    joined = {}
    for of in manifest["params"] + manifest["tables"]:
        keys, values = (np.concatenate(x) for x in zip(*found[of["name"]]))
        joined[of["name"]] = ((keys, values.reshape(-1, of["dim"]))
                              if "dim" in of else values.reshape(of["shape"]))
    return joined


def first_values(seed, folder, program):
    """Of a training whose rate is too small to change a weight."""
    save = os.path.join(folder, "first")
    run_fleet({"type": "sgd", "learning_rate": 1e-30}, seed, folder, program,
              {"epochs": 1, "save": save})
    return read_save(save)


def train_fleet(kind, seed, folder, program):
    optimizer = {"type": "adam", "learning_rate": RATE}
    if kind == "row":
        optimizer["row_steps"] = True
    return run_fleet(optimizer, seed, folder, program, {})["auc"]


def run_fleet(optimizer, seed, folder, program, also):
    config = {
        "model": {"type": "wide_deep", "embedding_dim": DIM, "hidden": HIDDEN,
                  "wide_ids": True},
        "optimizer": optimizer,
        "epochs": EPOCHS, "seed": seed,
        "dataset": {"format": "csv", "separator": "\t",
                    "train": [os.path.join(folder, "train.tsv")],
                    "test": [os.path.join(folder, "test.tsv")],
                    "batch_size": BATCH, "shuffle": TRAIN},
        "slots": [{"name": "label", "type": "float", "role": "label",
                   "columns": [0]}] +
                 [{"name": "field%d" % i, "type": "uint64", "columns": [i + 1],
                   "transform": "none"} for i in range(len(FIELDS))]}
    config.update(also)
    path = os.path.join(folder, "config.json")
    with open(path, "w") as out:
        json.dump(config, out)
    lines = subprocess.run([program, path], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return json.loads(lines[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--fleet_train", default="build/release/fleet-train")
    p.add_argument("--kinds", default="fleet update,fleet row,torch update,"
                   "torch row,torch dense")
    a = p.parse_args()
    ids, label = make_data(1)
    count = np.bincount(ids[:TRAIN].ravel(), minlength=sum(FIELDS))
    print(json.dumps({"ids": int((count > 0).sum()),
                      "ids_seen_up_to_5_times": int(((count > 0) &
                                                     (count <= 5)).sum()),
                      "clicks": round(float(label.mean()), 3)}), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write_lines(folder + "/train.tsv", ids[:TRAIN], label[:TRAIN])
        write_lines(folder + "/test.tsv", ids[TRAIN:], label[TRAIN:])
        first = [first_values(seed, folder, a.fleet_train)
                 for seed in range(a.seeds)]
        for name in a.kinds.split(","):
            who, kind = name.split()
            all_auc = []
            for seed in range(a.seeds):
                auc = (train_torch(kind, seed, ids, label, first[seed]) if who == "torch"
                       else train_fleet(kind, seed, folder, a.fleet_train))
                all_auc.append(auc)
                print(json.dumps({"kind": name, "seed": seed,
                                  "auc": round(auc, 4)}), flush=True)
            print(json.dumps({"kind": name,
                              "mean_auc": round(float(np.mean(all_auc)), 4)}),
                  flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
