#!/usr/bin/python3
"""Weights over 100 updates by PyTorch's own optimizers, in double (printed with
PyTorch 2.15; Debian 12's 1.13 has them, too). What it prints is
test/golden/rules.txt, which rules_ref_test.c reads:

    test/runtime/rules_ref.py >test/golden/rules.txt

A line "case JSON" has the optimizer as a configuration of fleet-train says it;
lines "after T" the weights after T updates. Weights begin with noise(1),
noise(2) ..., the gradient of weight i in update t is noise(1000 + 7 t + i).
PyTorch's weight_decay is l2_decay here, but for AdamW. clip_value is
clip_grad_value_(), and l1_decay what autograd adds for l1_decay times the sum
of |w|, each before the optimizer's step.
"""
import json
import math

import torch

N, STEPS = 7, 100


def noise(i):
    """In [-1, 1), of float32."""
    return torch.tensor(math.sin(i * 12.9898), dtype=torch.float32).mul(
        torch.tensor(0.99, dtype=torch.float32)).double()


def row(first):
    return torch.stack([noise(first + i) for i in range(N)])


OPTIM = torch.optim
CASES = [
    ({"type": "sgd", "learning_rate": 0.1}, OPTIM.SGD, {}),
    ({"type": "momentum", "learning_rate": 0.02, "momentum": 0.9,
      "l2_decay": 0.01}, OPTIM.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    ({"type": "momentum", "learning_rate": 0.02, "momentum": 0.8,
      "nesterov": True}, OPTIM.SGD, {"momentum": 0.8, "nesterov": True}),
    ({"type": "adagrad", "learning_rate": 0.1, "epsilon": 1e-10,
      "l2_decay": 0.01}, OPTIM.Adagrad, {"weight_decay": 0.01}),
    ({"type": "adam", "learning_rate": 0.01, "l2_decay": 0.01}, OPTIM.Adam,
     {"weight_decay": 0.01}),
    ({"type": "adamw", "learning_rate": 0.01, "weight_decay": 0.1},
     OPTIM.AdamW, {"weight_decay": 0.1}),
    ({"type": "adamax", "learning_rate": 0.02, "beta1": 0.8, "beta2": 0.95,
      "l2_decay": 0.01}, OPTIM.Adamax,
     {"betas": (0.8, 0.95), "weight_decay": 0.01}),
    ({"type": "adamax", "learning_rate": 0.002}, OPTIM.Adamax, {}),
    ({"type": "adadelta", "learning_rate": 1}, OPTIM.Adadelta, {}),
    ({"type": "adadelta", "learning_rate": 0.5, "rho": 0.8, "epsilon": 1e-3,
      "l2_decay": 0.01}, OPTIM.Adadelta,
     {"rho": 0.8, "eps": 1e-3, "weight_decay": 0.01}),
    ({"type": "rmsprop", "learning_rate": 0.01}, OPTIM.RMSprop, {}),
    ({"type": "rmsprop", "learning_rate": 0.01, "alpha": 0.9, "epsilon": 0.01,
      "l2_decay": 0.01}, OPTIM.RMSprop,
     {"alpha": 0.9, "eps": 0.01, "weight_decay": 0.01}),
    ({"type": "rmsprop_momentum", "learning_rate": 0.005, "alpha": 0.9,
      "momentum": 0.7}, OPTIM.RMSprop, {"alpha": 0.9, "momentum": 0.7}),
    ({"type": "rmsprop_centered", "learning_rate": 0.005, "alpha": 0.9,
      "epsilon": 0.01}, OPTIM.RMSprop,
     {"alpha": 0.9, "eps": 0.01, "centered": True}),
    ({"type": "sgd", "learning_rate": 0.1, "l1_decay": 0.1}, OPTIM.SGD, {}),
    ({"type": "adam", "learning_rate": 0.01, "l1_decay": 0.1,
      "l2_decay": 0.01}, OPTIM.Adam, {"weight_decay": 0.01}),
    ({"type": "sgd", "learning_rate": 0.1, "clip_value": 0.25}, OPTIM.SGD, {}),
    ({"type": "momentum", "learning_rate": 0.02, "momentum": 0.9,
      "clip_value": 0.25, "l1_decay": 0.2, "l2_decay": 0.01}, OPTIM.SGD,
     {"momentum": 0.9, "weight_decay": 0.01}),
    ({"type": "adagrad", "learning_rate": 0.1, "epsilon": 1e-10,
      "clip_value": 0.5, "l1_decay": 0.2}, OPTIM.Adagrad, {}),
]


def shape(weight, how):
    if "clip_value" in how:
        torch.nn.utils.clip_grad_value_([weight], how["clip_value"])
    if "l1_decay" in how:
        gradient = weight.grad
        weight.grad = None
        (how["l1_decay"] * weight.abs().sum()).backward()
        weight.grad += gradient


for how, rule, numbers in CASES:
    print("case", json.dumps(how))
    weight = torch.nn.Parameter(row(1))
    optimizer = rule([weight], lr=how["learning_rate"], **numbers)
    for t in range(STEPS):
        weight.grad = row(1000 + 7 * t)
        shape(weight, how)
        optimizer.step()
        if t + 1 in (1, 2, 10, 50, STEPS):
            print("after", t + 1, *(f"{x:.9g}" for x in weight.tolist()))
