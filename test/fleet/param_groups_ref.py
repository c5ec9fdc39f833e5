#!/usr/bin/python3
"""Weights of a small network over 100 updates by PyTorch with param_groups and a
second optimizer, in double. What it prints is test/golden/param_groups.txt, which
param_groups_test.c reads:

    test/fleet/param_groups_ref.py >test/golden/param_groups.txt

A line "after T NAME" has a parameter's weights after T updates. All numbers come
from noise(): weight i of parameter k begins with noise(100 k + i), the batches of
update t are 4 samples of 3 numbers from noise(1000 + 20 t) on, and 4 targets
behind them.
"""
import math

import torch

STEPS, BATCH = 100, 4


def noise(i):
    """In [-1, 1), of float32."""
    return torch.tensor(math.sin(i * 12.9898), dtype=torch.float32).mul(
        torch.tensor(0.99, dtype=torch.float32)).double()


def numbers(first, *shape):
    n = math.prod(shape)
    return torch.stack([noise(first + i) for i in range(n)]).reshape(shape)


SHAPES = {"a.w": (3, 5), "a.b": (5,), "b.w": (5, 4), "b.b": (4,), "c.w": (4, 1),
          "c.b": (1,)}
W = {name: numbers(100 * k, *shape).requires_grad_()
     for k, (name, shape) in enumerate(SHAPES.items())}

OPTIMIZERS = [
    torch.optim.Adam([
        {"params": [W["a.w"]], "lr": 0.02, "weight_decay": 0.01},
        {"params": [W["c.w"]], "lr": 0.005},
    ]),
    torch.optim.SGD([
        {"params": [W["a.b"], W["b.b"], W["c.b"]], "lr": 0.01, "momentum": 0.8},
        {"params": [W["b.w"]], "lr": 0.05, "weight_decay": 0.02},
    ]),
]

for t in range(STEPS):
    x = numbers(1000 + 20 * t, BATCH, 3)
    y = numbers(1000 + 20 * t + 12, BATCH, 1)
    h = torch.tanh(x @ W["a.w"] + W["a.b"])
    h = torch.tanh(h @ W["b.w"] + W["b.b"])
    loss = ((h @ W["c.w"] + W["c.b"] - y) ** 2).mean()
    for o in OPTIMIZERS:
        o.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_([W["b.w"]], 0.05)
    for o in OPTIMIZERS:
        o.step()
    if t + 1 in (1, 10, 100):
        for name, w in W.items():
            print("after", t + 1, name,
                  *("%.12g" % v for v in w.detach().flatten().tolist()))
