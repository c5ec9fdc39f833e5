"""torch_rankers: the models of bench/quality_torch in PyTorch, which read the files, number the
categories and initialize their weights by themselves."""
import csv
import gzip

import numpy
import torch
from torch import nn

def lines(path, base):
    separator = base["dataset"].get("separator", ",")
    comment = base["dataset"].get("comment", "\0")
    with gzip.open(path, "rt") as f:
        for row in csv.reader((x for x in f if not x.startswith(comment)),
                              delimiter=separator):
            if row:
                yield [cell.strip() for cell in row]


class Data:
    """Labels, numbers and categories of a file, as tensors."""

    def __init__(self, path, base, history, item, train=None):
        rows = list(lines(path, base))
        label = base["slots"][0]
        wanted = label.get("value")
        at = label["columns"][0]
        y = [(r[at] in wanted) if wanted else float(r[at]) for r in rows]
        self.y = torch.tensor(numpy.array(y, dtype=numpy.float32))
        self.ids = {}
        self.of_column = train.of_column if train else {}
        self.x = self.numbers(rows, base, train)
        for slot in base["slots"][1:]:
            if slot["type"] == "uint64":
                self.categories(rows, slot["columns"][0], train)
        self.keys = train.keys if train else {}
        texts = bool(base["dataset"].get("missing"))
        self.items = {c: self.shared(rows, c, texts and c == item, train)
                      for c in history + [item]}

    def shared(self, rows, at, apart, train):
        """Din's items: one row for equal cells of all columns, but that texts of the item's
        slot are hashed apart."""
        if not train:
            for r in rows:
                self.keys.setdefault((apart, r[at]), len(self.keys) + 1)
        return torch.tensor([self.keys.get((apart, r[at]), 0) for r in rows])

    def numbers(self, rows, base, train):
        parts = []
        self.scale = train.scale if train else []
        for slot in base["slots"][1:]:
            if slot["type"] != "float":
                continue
            for i, at in enumerate(slot["columns"]):
                x = numpy.array([float(r[at]) for r in rows])
                if slot["transform"][i].startswith("log1p"):
                    x = numpy.log1p(x)
                if not train:
                    self.scale.append((x.mean(), x.std() or 1.0))
                mean, deviation = self.scale[len(parts)]
                parts.append((x - mean) / deviation)
        return torch.tensor(numpy.array(parts, dtype=numpy.float32).T) if parts else None

    def categories(self, rows, at, train):
        """0 is what the training data do not have."""
        place = self.of_column.setdefault(at, {})
        if not train:
            for r in rows:
                place.setdefault(r[at], len(place) + 1)
        self.ids[at] = torch.tensor([place.get(r[at], 0) for r in rows])


def layers(width, hidden, out=1):
    stack = []
    for units in hidden:
        stack += [nn.Linear(width, units), nn.ReLU()]
        width = units
    stack.append(nn.Linear(width, out))
    for one in stack:
        if isinstance(one, nn.Linear):
            nn.init.normal_(one.weight, 0, one.in_features ** -0.5)
            nn.init.zeros_(one.bias)
    return nn.Sequential(*stack)


def rows_of(n, dim, deviation):
    table = nn.Embedding(n + 1, dim, sparse=True)
    nn.init.normal_(table.weight, 0, deviation)
    return table


class Ranker(nn.Module):
    """What the models have in common: a table for each column of categories."""

    def __init__(self, data, base, columns):
        super().__init__()
        self.columns, self.dim = columns, base["model"]["embedding_dim"]
        self.hidden = base["model"]["hidden"]
        self.n_number = data.x.shape[1] if data.x is not None else 0
        self.table = self.tables(data, self.dim, 0.1 / self.dim ** 0.5)

    def tables(self, data, dim, deviation):
        return nn.ModuleDict({str(c): rows_of(len(data.of_column[c]), dim, deviation)
                              for c in self.columns})

    def rows(self, tables, ids):
        return [tables[str(c)](ids[c]) for c in self.columns]

    def parts(self, x, ids):
        return self.rows(self.table, ids) + ([x] if self.n_number else [])

    def width(self):
        return len(self.columns) * self.dim + self.n_number


class WideDeep(Ranker):
    def __init__(self, data, base, columns):
        super().__init__(data, base, columns)
        self.tower = layers(self.width(), self.hidden)
        self.wide = layers(self.n_number, []) if self.n_number else None

    def forward(self, x, ids):
        deep = self.tower(torch.cat(self.parts(x, ids), 1))
        return deep + self.wide(x) if self.wide else deep


class DeepFm(Ranker):
    def __init__(self, data, base, columns):
        super().__init__(data, base, columns)
        self.first = self.tables(data, 1, 0.1 / self.dim ** 0.5)
        self.tower = layers((len(columns) + self.n_number) * self.dim, self.hidden)
        if self.n_number:
            self.of_number = nn.Parameter(torch.randn(self.n_number, self.dim) * 0.03)
            self.first_number = nn.Parameter(torch.randn(self.n_number) * 0.03)

    def forward(self, x, ids):
        fields = torch.stack(self.rows(self.table, ids), 1)
        first = torch.cat(self.rows(self.first, ids), 1).sum(1, keepdim=True)
        if self.n_number:
            fields = torch.cat([fields, x.unsqueeze(2) * self.of_number], 1)
            first = first + (x * self.first_number).sum(1, keepdim=True)
        pairs = (fields.sum(1) ** 2 - (fields ** 2).sum(1)).sum(1, keepdim=True) / 2
        return self.tower(fields.flatten(1)) + pairs + first


class DcnV2(Ranker):
    def __init__(self, data, base, columns):
        super().__init__(data, base, columns)
        width = (len(columns) + self.n_number) * self.dim
        if self.n_number:
            self.dense = layers(self.n_number, [], self.n_number * self.dim)
        self.cross = nn.ModuleList(layers(width, [], width) for _ in range(2))
        self.tower = layers(width, self.hidden)

    def forward(self, x, ids):
        parts = self.rows(self.table, ids) + ([self.dense(x)] if self.n_number else [])
        first = now = torch.cat(parts, 1)
        for cross in self.cross:
            now = first * cross(now) + now
        return self.tower(now)


class Din(Ranker):
    """Items of the history and the one that is scored are in one table."""

    def __init__(self, data, base, columns, history, item):
        super().__init__(data, base, [c for c in columns if c not in history + [item]])
        self.history, self.item = history, item
        self.items = rows_of(len(data.keys), self.dim, 0.1 / self.dim ** 0.5)
        self.bias = rows_of(len(data.keys), 1, 0)
        self.attention = layers(4 * self.dim, [16])
        self.behind = layers(self.dim, [], self.dim)
        self.tower = layers(self.width() + 2 * self.dim, self.hidden)

    def forward(self, x, ids):
        of_item = ids["items"][self.item]
        item = self.items(of_item)
        past = torch.stack([self.items(ids["items"][c]) for c in self.history], 1)
        one = item.unsqueeze(1).expand_as(past)
        score = self.attention(torch.cat([past, one, past - one, past * one], 2))
        share = torch.softmax(score / self.dim ** 0.5, 1)
        seen = self.behind((share * past).sum(1))
        logit = self.tower(torch.cat([seen, item] + self.parts(x, ids), 1))
        return logit + self.bias(of_item)


def auc(score, label):
    """By ranks; ties count half."""
    order = numpy.argsort(score, kind="mergesort")
    s = score[order]
    rank = numpy.empty(len(s))
    begin = numpy.flatnonzero(numpy.r_[True, s[1:] != s[:-1]])
    end = numpy.r_[begin[1:], len(s)]
    for a, b in zip(begin, end):
        rank[order[a:b]] = (a + b + 1) / 2
    positive = label > 0.5
    n = positive.sum()
    return (rank[positive].sum() - n * (n + 1) / 2) / (n * (len(s) - n))


def train(model, base, rate, train, test, history, item, seed):
    """The AUC on the test data."""
    torch.manual_seed(seed)
    columns = sorted(train.ids)
    net = (Din(train, base, columns, history, item) if model == "din" else
           {"wide_deep": WideDeep, "deepfm": DeepFm, "dcn_v2": DcnV2}[model](train, base,
                                                                            columns))
    sparse = [p for m in net.modules() if isinstance(m, nn.Embedding) for p in m.parameters()]
    known = {id(p) for p in sparse}
    dense = [p for p in net.parameters() if id(p) not in known]
    steps = [torch.optim.SparseAdam(sparse, lr=rate), torch.optim.Adam(dense, lr=rate)]
    loss_of, size = nn.BCEWithLogitsLoss(), base["dataset"]["batch_size"]

    def part(data, at):
        return (data.x[at] if data.x is not None else None,
                {"items": {c: ids[at] for c, ids in data.items.items()},
                 **{c: ids[at] for c, ids in data.ids.items()}})

    for _ in range(base["epochs"]):
        for at in torch.randperm(len(train.y)).split(size):
            for s in steps:
                s.zero_grad()
            loss_of(net(*part(train, at)).squeeze(1), train.y[at]).backward()
            for s in steps:
                s.step()
    with torch.no_grad():
        score = net(*part(test, slice(None))).squeeze(1)
    return float(auc(score.numpy(), test.y.numpy()))
