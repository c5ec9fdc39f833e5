#!/usr/bin/python3
"""The learning rates of 100 updates, by PyTorch's own schedulers (printed with
PyTorch 2.15; Debian 12's 1.13 has them, too). What PyTorch does not have is the
formula of Paddle's scheduler, or of its paper, in PyTorch's LambdaLR. What it
prints is test/golden/schedules.txt, which schedule_test.c reads:

    test/runtime/schedule_ref.py >test/golden/schedules.txt

A line "case LR JSON" has the learning rate and the schedule as a configuration
of fleet-train says it; the line after it has the rates, the first update's
first. Behind "plateau LR MODE JSON" are a line of metrics and one of the rates
after each.
"""
import json
import math
import warnings

import torch
from torch.optim import lr_scheduler as sched

warnings.filterwarnings("ignore")
N = 100


def rates(lr, make):
    """make gives a scheduler of the optimizer."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=lr)
    scheduler = make(optimizer)
    got = [optimizer.param_groups[0]["lr"]]
    for _ in range(N - 1):
        optimizer.step()
        scheduler.step()
        got.append(optimizer.param_groups[0]["lr"])
    return got


def by_formula(f):
    return lambda o: sched.LambdaLR(o, f)


def warm(o, w, start, then):
    """`then` begins when the warm-up of w steps ends."""
    first = sched.LinearLR(o, start_factor=start, end_factor=1.0,
                           total_iters=w)
    return sched.SequentialLR(o, [first, then(o)], milestones=[w])


def paddle_polynomial(lr, steps, end, power, cycle):
    def factor(t):
        total = steps * max(1, math.ceil(t / steps)) if cycle else steps
        t = min(t, total)
        return ((lr - end) * (1 - t / total) ** power + end) / lr
    return by_formula(factor)


def noam(steps, width):
    """With the paper's first step, 1, where Paddle's is 0."""
    return by_formula(lambda t: width ** -0.5 * min(
        (t + 1) ** -0.5, (t + 1) * steps ** -1.5))


CASES = [
    (0.1, {"type": "constant"}, by_formula(lambda t: 1)),
    (0.1, {"type": "constant", "warmup_steps": 10},
     lambda o: sched.LinearLR(o, total_iters=10)),
    (0.1, {"type": "piecewise", "boundaries": [7, 40],
           "values": [0.5, 0.25, 0.01]},
     by_formula(lambda t: 5 if t < 7 else 2.5 if t < 40 else 0.1)),
    (0.1, {"type": "exponential", "rate": 0.95, "steps": 1},
     lambda o: sched.ExponentialLR(o, 0.95)),
    (0.1, {"type": "exponential", "rate": 0.5, "steps": 30},
     by_formula(lambda t: 0.5 ** (t / 30))),
    (0.1, {"type": "natural_exponential", "rate": 0.03},
     by_formula(lambda t: math.exp(-0.03 * t))),
    (0.1, {"type": "natural_exponential", "rate": 0.5, "steps": 20,
           "staircase": True},
     by_formula(lambda t: math.exp(-0.5 * (t // 20)))),
    (0.1, {"type": "inverse_time", "rate": 0.2},
     by_formula(lambda t: 1 / (1 + 0.2 * t))),
    (0.1, {"type": "inverse_time", "rate": 0.7, "steps": 15},
     by_formula(lambda t: 1 / (1 + 0.7 * t / 15))),
    (0.1, {"type": "polynomial", "steps": 60, "power": 2},
     lambda o: sched.PolynomialLR(o, total_iters=60, power=2.0)),
    (0.1, {"type": "polynomial", "steps": 60},
     lambda o: sched.PolynomialLR(o, total_iters=60)),
    (0.1, {"type": "polynomial", "steps": 30, "end": 0.01, "power": 1.5,
           "cycle": True},
     paddle_polynomial(0.1, 30, 0.01, 1.5, True)),
    (0.1, {"type": "cosine", "steps": 40, "end": 0.001, "cycle": True},
     lambda o: sched.CosineAnnealingLR(o, 40, eta_min=0.001)),
    (0.1, {"type": "cosine", "steps": 99},
     lambda o: sched.CosineAnnealingLR(o, 99)),
    (0.1, {"type": "step", "steps": 30, "rate": 0.3},
     lambda o: sched.StepLR(o, 30, gamma=0.3)),
    (0.1, {"type": "step", "steps": 45}, lambda o: sched.StepLR(o, 45)),
    (0.1, {"type": "multi_step", "boundaries": [10, 11, 70], "rate": 0.5},
     lambda o: sched.MultiStepLR(o, [10, 11, 70], gamma=0.5)),
    (0.1, {"type": "one_cycle", "steps": 100},
     lambda o: sched.OneCycleLR(o, 0.1, total_steps=100)),
    (0.1, {"type": "one_cycle", "steps": 100, "rise": 0.45,
           "start_divisor": 10, "end_divisor": 50, "linear": True},
     lambda o: sched.OneCycleLR(o, 0.1, total_steps=100, pct_start=0.45,
                                anneal_strategy="linear", div_factor=10,
                                final_div_factor=50)),
    (2.0, {"type": "noam", "steps": 25, "width": 512}, noam(25, 512)),
    (0.1, {"type": "step", "steps": 20, "rate": 0.5, "warmup_steps": 15,
           "warmup_start": 0.01},
     lambda o: warm(o, 15, 0.01, lambda p: sched.StepLR(p, 20, gamma=0.5))),
    (0.1, {"type": "cosine", "steps": 80, "warmup_steps": 20},
     lambda o: warm(o, 20, 1 / 3, lambda p: sched.CosineAnnealingLR(p, 80))),
]


for lr, how, make in CASES:
    print("case", lr, json.dumps(how))
    print(" ".join(f"{x:.9g}" for x in rates(lr, make)))


def metrics(mode):
    """They improve, stop, improve a little, get worse, improve again."""
    sign = 1 if mode == "min" else -1
    base = [1 / (1 + t) for t in range(8)] + [0.126] * 9 + [0.1249] * 5 + \
        [0.124 - t / 1000 for t in range(6)] + [0.5] * 12 + \
        [0.1 - t / 1e5 for t in range(20)]
    return [round(1 + sign * x, 6) for x in base]


PLATEAUS = [
    ("min", {"patience": 3}, {}),
    ("min", {"patience": 0, "factor": 0.5, "cooldown": 2, "least": 0.001},
     {"min_lr": 0.001}),
    ("min", {"patience": 2, "factor": 0.3, "threshold": 0.001,
             "absolute": True}, {"threshold_mode": "abs"}),
    ("max", {"patience": 4, "factor": 0.5, "threshold": 0.01}, {}),
    ("max", {"patience": 4, "factor": 0.5, "threshold": 0.01,
             "absolute": True}, {"threshold_mode": "abs"}),
]

for mode, how, numbers in PLATEAUS:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    same = {k: v for k, v in how.items() if k not in ("least", "absolute")}
    scheduler = sched.ReduceLROnPlateau(optimizer, mode, **same, **numbers)
    seen, got = metrics(mode), []
    for x in seen:
        scheduler.step(x)
        got.append(optimizer.param_groups[0]["lr"])
    print("plateau", 0.1, mode, json.dumps(how))
    print(" ".join(f"{x:.9g}" for x in seen))
    print(" ".join(f"{x:.9g}" for x in got))
