"""torch_tasks: the models of several labels of bench/quality_torch in PyTorch, with the data
that torch_rankers reads."""
import numpy
import torch
from torch import nn

import torch_rankers as rankers


class Data(rankers.Data):
    """With a column of labels for each slot that is one."""

    def __init__(self, path, base, train=None):
        labels = [s for s in base["slots"] if s.get("role") == "label"]
        others = [s for s in base["slots"] if s.get("role") != "label"]
        super().__init__(path, dict(base, slots=labels[:1] + others), [], None, train)
        rows = list(rankers.lines(path, base))
        y = [[r[s["columns"][0]] in s["value"] for s in labels] for r in rows]
        self.y = torch.tensor(numpy.array(y, dtype=numpy.float32))
        self.weight = [s.get("loss_weight", 1) for s in labels]

    def shared(self, rows, at, apart, train):
        return None  # there are no histories


class Mixture(nn.Module):
    """Each expert as much as the softmax of a layer says."""

    def __init__(self, width, n):
        super().__init__()
        self.gate = rankers.layers(width, [], n)

    def forward(self, x, experts):
        share = torch.softmax(self.gate(x), 1)
        return (share.unsqueeze(2) * experts).sum(1)


class Experts(nn.Module):
    def __init__(self, width, n, units=16):
        super().__init__()
        self.of = nn.ModuleList(rankers.layers(width, [], units) for _ in range(n))

    def forward(self, x):
        return torch.stack([torch.relu(one(x)) for one in self.of], 1)


class Tasks(rankers.Ranker):
    """Towers of 8 units behind what `mix` makes for each task."""

    def __init__(self, data, base, columns, width=None):
        super().__init__(data, base, columns)
        self.n_task = len(data.weight)
        self.towers = nn.ModuleList(rankers.layers(width or 16, base["model"]["hidden"])
                                    for _ in range(self.n_task))

    def forward(self, x, ids):
        mixed = self.mix(torch.cat(self.parts(x, ids), 1))
        return torch.sigmoid(torch.cat([t(m) for t, m in zip(self.towers, mixed)], 1))


class ShareBottom(Tasks):
    def __init__(self, data, base, columns):
        super().__init__(data, base, columns, 117)
        self.bottom = rankers.layers(self.width(), [], 117)

    def mix(self, x):
        return [torch.relu(self.bottom(x))] * self.n_task


class Mmoe(Tasks):
    def __init__(self, data, base, columns):
        super().__init__(data, base, columns)
        self.experts = Experts(self.width(), 8)
        self.mixtures = nn.ModuleList(Mixture(self.width(), 8) for _ in range(self.n_task))

    def mix(self, x):
        experts = self.experts(x)
        return [m(x, experts) for m in self.mixtures]


class Ple(Tasks):
    """One level: 3 experts of each task, 2 for all."""

    def __init__(self, data, base, columns):
        super().__init__(data, base, columns)
        self.own = nn.ModuleList(Experts(self.width(), 3) for _ in range(self.n_task))
        self.shared = Experts(self.width(), 2)
        self.mixtures = nn.ModuleList(Mixture(self.width(), 5) for _ in range(self.n_task))

    def mix(self, x):
        shared = self.shared(x)
        return [m(x, torch.cat([own(x), shared], 1))
                for m, own in zip(self.mixtures, self.own)]


class Esmm(Tasks):
    """The second probability is that of the first times what is behind it."""

    def __init__(self, data, base, columns):
        super().__init__(data, base, columns, rankers.Ranker(data, base, columns).width())

    def mix(self, x):
        return [x, x]

    def forward(self, x, ids):
        p = super().forward(x, ids)
        return torch.cat([p[:, :1], p[:, :1] * p[:, 1:]], 1)


MODELS = {"share_bottom": ShareBottom, "mmoe": Mmoe, "ple": Ple, "esmm": Esmm}


def train(model, base, rate, train, test, seed):
    """The AUC of each task on the test data."""
    torch.manual_seed(seed)
    columns = sorted(train.ids)
    net = MODELS[model](train, base, columns)
    sparse = [p for m in net.modules() if isinstance(m, nn.Embedding) for p in m.parameters()]
    known = {id(p) for p in sparse}
    dense = [p for p in net.parameters() if id(p) not in known]
    steps = [torch.optim.SparseAdam(sparse, lr=rate), torch.optim.Adam(dense, lr=rate)]
    size, weight = base["dataset"]["batch_size"], torch.tensor(train.weight)

    def part(data, at):
        return data.x[at], {c: ids[at] for c, ids in data.ids.items()}

    for _ in range(base["epochs"]):
        for at in torch.randperm(len(train.y)).split(size):
            for s in steps:
                s.zero_grad()
            loss = nn.functional.binary_cross_entropy(net(*part(train, at)), train.y[at],
                                                      reduction="none")
            (loss.mean(0) * weight).sum().backward()
            for s in steps:
                s.step()
    with torch.no_grad():
        score = net(*part(test, slice(None))).numpy()
    return [float(rankers.auc(score[:, i], test.y[:, i].numpy()))
            for i in range(score.shape[1])]
