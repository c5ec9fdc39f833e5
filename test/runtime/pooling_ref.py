#!/usr/bin/python3
"""Pools rows, and works out their gradients, in double precision and by the
formulas of PyTorch's EmbeddingBag and Paddle's sequence_pool alone. What it
prints is test/golden/pooling.txt, which pooling_test.c reads:

    test/runtime/pooling_ref.py >test/golden/pooling.txt

A case has a combiner, says whether ids have weights, and has rows of three
numbers, and samples: their ids with weights, what the loss multiplies their
output by, and the output. The loss is the mean of all products; its gradients by
row end the case. Rows are eighths, so that many are equal; weights are exact in
float32.
"""
DIM = 3
BELOW = 7


class Noise:
    """A generator of its own: the same numbers with every Python."""

    def __init__(self, seed):
        self.state = seed * 7919 + 1

    def below(self, n):
        self.state = (self.state * 6364136223846793005 +
                      1442695040888963407) % 2 ** 64
        return (self.state >> 33) % n


def pool(combiner, rows):
    """The output by column, and the share of each row's gradient in it."""
    n = len(rows)
    if n == 0:
        return [0.0] * DIM, []
    if combiner == "max":
        out, share = [], [[0.0] * DIM for _ in rows]
        for c in range(DIM):
            column = [row[c] for row in rows]
            first = column.index(max(column))
            out.append(column[first])
            share[first][c] = 1.0
        return out, share
    by = {"sum": 1.0, "mean": 1.0 / n, "sqrt": n ** -0.5}[combiner]
    return ([by * sum(row[c] for row in rows) for c in range(DIM)],
            [[by] * DIM for _ in rows])


def case(combiner, weighted, seed):
    noise = Noise(seed)
    table = [[noise.below(9) / 8 - 0.5 for _ in range(DIM)]
             for _ in range(BELOW)]
    batch = 9
    gradient = [[0.0] * DIM for _ in range(BELOW)]
    used = [False] * BELOW
    print(f"case {combiner} {int(weighted)} {BELOW} {batch}")
    for row in table:
        print("row", *row)
    for sample in range(batch):
        ids = [noise.below(BELOW) for _ in range(sample % 5)]
        weights = [noise.below(17) / 8 - 1 if weighted else 1.0 for _ in ids]
        by = [noise.below(33) / 8 - 2 for _ in range(DIM)]
        rows = [[w * x for x in table[i]] for i, w in zip(ids, weights)]
        out, share = pool(combiner, rows)
        for i, w, s in zip(ids, weights, share):
            used[i] = True
            for c in range(DIM):
                gradient[i][c] += w * s[c] * by[c] / (batch * DIM)
        print("sample", len(ids), *(f"{i} {w}" for i, w in zip(ids, weights)),
              *by, *(f"{x:.17g}" for x in out))
    for i in range(BELOW):
        print("gradient", int(used[i]), *(f"{x:.17g}" for x in gradient[i]))


for number, combiner in enumerate(["sum", "mean", "sqrt", "max"]):
    for weighted in (False, True):
        for again in range(3):
            case(combiner, weighted, number * 10 + weighted * 5 + again)
print("end")
