#!/usr/bin/env python3
"""gpu_peer: PyTorch's training step on one GPU, the peer of bench/step --device.

  gpu_peer.py [--runs mlp:sgd,ctr_dnn:sgd,ctr_dnn:adagrad] [--batch 512,1024,8192]
              [--dim 16] [--rows 1000000] [--device cuda:0] [--windows 9]

Models and batches are those of bench/model.h: float32 parameters, products in
TF32 as ours, batches that lie in the device's memory already. One line of JSON
per batch size and way:

  eager   what a user writes: nn.Embedding(sparse=True), torch.optim
  graph   the whole step captured as a CUDA graph, tables updated by hand, which
          is what an expert writes: no shape depends on the data

step_us is the median over windows, by the device's events.
"""
import argparse
import itertools
import json
import statistics

import torch
import torch.nn as nn
import torch.nn.functional as F

SLOTS, DENSE, MLP_IN, BATCHES = 26, 13, 32, 16


def tower(a):
    sizes = [MLP_IN, 128, 128, 2] if a.model == "mlp" else [SLOTS * a.dim + DENSE, *a.fc, 2]
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.Linear(i, o), nn.Tanh() if a.model == "mlp" else nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(a.device)


def batches(a, n):
    made = []
    for _ in range(BATCHES):
        x = torch.rand(n, MLP_IN if a.model == "mlp" else DENSE, device=a.device)
        y = torch.randint(2, (n,), device=a.device)
        made.append((x, y, torch.randint(a.rows, (n, SLOTS), device=a.device)))
    return made


def optimizer(a, parameters):
    if a.opt == "sgd" or a.model == "mlp":
        return torch.optim.SGD(parameters, 0.01)
    return torch.optim.Adagrad(parameters, 0.01)


def eager(a):
    """step(x, y, ids) with torch.optim alone."""
    net, tables = tower(a), []
    if a.model != "mlp":
        tables = [nn.Embedding(a.rows, a.dim, sparse=True, device=a.device)]
    o = optimizer(a, [p for m in [net, *tables] for p in m.parameters()])

    def step(x, y, ids):
        o.zero_grad()
        if tables:
            x = torch.cat([tables[0](ids).flatten(1), x], 1)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        o.step()
        return loss
    return step


class Table:
    """Rows with SGD or Adagrad by hand, in shapes that no data changes."""

    def __init__(self, a):
        self.rate, self.adagrad = 0.01, a.opt == "adagrad"
        self.w = torch.empty(a.rows, a.dim, device=a.device).uniform_(-0.01, 0.01)
        self.sum, self.state = torch.zeros_like(self.w), torch.zeros_like(self.w)

    @torch.no_grad()
    def update(self, ids, g):
        g = g.reshape(-1, self.w.shape[1])
        if not self.adagrad:
            self.w.index_add_(0, ids, g, alpha=-self.rate)
            return
        self.sum.index_add_(0, ids, g)
        g = self.sum[ids]
        s = self.state[ids] + g * g
        self.state[ids] = s  # a row that occurs twice is written twice, the same
        self.w[ids] = self.w[ids] - self.rate * g / (s.sqrt() + 1e-10)
        self.sum.index_fill_(0, ids, 0)


def by_hand(a):
    """step(x, y, ids) that can be captured."""
    net = tower(a)
    table = Table(a) if a.model != "mlp" else None
    parameters = list(net.parameters())

    def step(x, y, ids):
        flat = ids.flatten()
        rows = table.w[flat].requires_grad_() if table else None
        if table:
            x = torch.cat([rows.reshape(len(y), -1), x], 1)
        loss = F.cross_entropy(net(x), y)
        wanted = parameters + ([rows] if table else [])
        for p, g in zip(wanted, torch.autograd.grad(loss, wanted)):
            p.grad = g
        if table:
            table.update(flat, rows.grad)
        if a.opt == "sgd" or a.model == "mlp":
            with torch.no_grad():
                torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-0.01)
        else:
            adagrad(step, parameters)
        return loss
    return step


def adagrad(step, parameters):
    """torch.optim.Adagrad counts its steps on the host: not in a graph."""
    if not hasattr(step, "state"):
        step.state = [torch.zeros_like(p) for p in parameters]
    with torch.no_grad():
        g = [p.grad for p in parameters]
        torch._foreach_addcmul_(step.state, g, g, 1)
        root = torch._foreach_sqrt(step.state)
        torch._foreach_add_(root, 1e-10)
        torch._foreach_addcdiv_(parameters, g, root, -0.01)


def captured(a, n):
    step, made = by_hand(a), batches(a, n)
    static = [torch.clone(t) for t in made[0]]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*static)

    def run(*batch):
        for to, of in zip(static, batch):
            to.copy_(of)
        graph.replay()
    return run, made


def time_step(run, made, windows):
    """Microseconds per step, one for each window."""
    count, times = 0, []
    for _ in range(64):
        run(*made[count % BATCHES])
        count += 1
    for _ in range(windows):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        begin.record()
        for _ in range(200):
            run(*made[count % BATCHES])
            count += 1
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / 200)
    return times


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--runs", default="mlp:sgd,ctr_dnn:sgd,ctr_dnn:adagrad")
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--rows", type=int, default=1000000)
    p.add_argument("--batch", default="512,1024,8192")
    p.add_argument("--fc", default="400,400,400")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--windows", type=int, default=9)
    a = p.parse_args()
    a.fc = [int(x) for x in a.fc.split(",")]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    for run, n in itertools.product(a.runs.split(","), map(int, a.batch.split(","))):
        a.model, a.opt = run.split(":")
        for way in ("eager", "graph"):
            run, made = captured(a, n) if way == "graph" else (eager(a), batches(a, n))
            times = time_step(run, made, a.windows)
            print(json.dumps({"model": a.model, "opt": a.opt, "batch": n, "way": way,
                              "step_us": round(statistics.median(times), 2),
                              "best": round(min(times), 2), "worst": round(max(times), 2),
                              "torch": torch.__version__,
                              "gpu": torch.cuda.get_device_name()}), flush=True)


if __name__ == "__main__":
    main()
