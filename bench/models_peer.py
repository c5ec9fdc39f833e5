#!/usr/bin/env python3
"""models_peer.py torch|jax --model din|dcn_v2|dlrm|bst|sasrec [--threads 2] [--shortest 50]
[--pairs slices|index]: the peers of rows R12 and R13, the same trainings as bench/models.c: weights and batches are
functions of their names, so that nothing has to be sent.

The whole step is one function that is compiled: gathers, forward, backward, every update; rows
that a batch has are updated alone, gradients of repeated ids summed before. Each model is
written once, and what torch and JAX have of it (attention, norms, softmax) is theirs.

A line of JSON says what the losses of the first steps were; for each line that is then read, a
number of seconds, it trains for as long and says how fast.
"""
import argparse
import json
import os
import sys
import time

import numpy

LONGEST, N_LOSS, N_DENSE, N_ID = 50, 8, 13, 26


# --- numbers from names ---------------------------------------------------------------------

def seed_of(name):
    """FNV-1a."""
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001b3 & 0xffffffffffffffff
    return h


def random(name, n):
    """splitmix64, n numbers of 64 bits."""
    with numpy.errstate(over="ignore"):
        z = numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z += numpy.uint64(seed_of(name))
        z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    return z ^ z >> numpy.uint64(31)


def fill(name, shape, most):
    n = int(numpy.prod(shape))
    x = (random(name, n) >> numpy.uint64(40)).astype(numpy.float32) * numpy.float32(2.0 ** -23)
    return (numpy.float32(most) * (x - numpy.float32(1))).reshape(shape)


# --- models ---------------------------------------------------------------------------------

class Model:
    """weights: shapes by name. tables: the dimension, and the inputs whose ids come side by
    side into one gather. forward(): the loss."""
    adam, batch, rows = False, 1024, 100000
    has_history = has_numbers = False

    def __init__(self):
        self.weights, self.tables = {}, {}

    def layer(self, name, n_in, n_out):
        self.weights[name + ".w"] = (n_in, n_out)
        self.weights[name + ".b"] = (n_out,)

    def layers(self, name, n_in, hidden, out=True):
        for i, n in enumerate(hidden):
            self.layer("%s_%d" % (name, i), n_in, n)
            n_in = n
        if out:
            self.layer(name + "_out", n_in, 1)
        return n_in

    def norm(self, name, n):
        self.weights[name + ".w"] = self.weights[name + ".b"] = (n,)


def dense(b, p, name, x):
    return b.linear(x, p[name + ".w"], p[name + ".b"])


def hidden(b, p, name, x, n, activation):
    for i in range(n):
        x = activation(dense(b, p, "%s_%d" % (name, i), x))
    return x


def log_loss(b, logit, label):
    """As fleet_log_loss() has it, and Paddle."""
    p = b.sigmoid(logit)
    return -(label * b.log(p + 1e-4) + (1 - label) * b.log(1 - p + 1e-4)).mean()


def norm(b, p, name, x):
    return b.norm(x, p[name + ".w"], p[name + ".b"])


class Clicks(Model):
    rows, dim, has_numbers = 1000000, 16, True

    def __init__(self):
        super().__init__()
        self.tables["embedding"] = self.dim, [str(i + 1) for i in range(N_ID)]


class DcnV2(Clicks):
    def __init__(self):
        super().__init__()
        n = (N_ID + N_DENSE) * self.dim
        self.layer("dense", N_DENSE, N_DENSE * self.dim)
        self.layer("cross_0", n, n)
        self.layer("cross_1", n, n)
        self.layers("tower", n, [768, 768])

    def forward(self, b, p, e, x):
        first = b.cat([e["embedding"].reshape(self.batch, -1),
                       dense(b, p, "dense", x["dense_input"])], 1)
        now = first
        for i in range(2):
            now = first * dense(b, p, "cross_%d" % i, now) + now
        now = hidden(b, p, "tower", now, 2, b.relu)
        return log_loss(b, dense(b, p, "tower_out", now)[:, 0], x["label"])


class Dlrm(Clicks):
    def __init__(self):
        super().__init__()
        n = self.layers("bottom", N_DENSE, [512, 256, 64], out=False)
        self.layer("bottom_out", n, self.dim)
        self.layers("tower", self.dim + (N_ID + 1) * N_ID // 2, [512, 256])

    def forward(self, b, p, e, x):
        low = b.relu(dense(b, p, "bottom_out",
                           hidden(b, p, "bottom", x["dense_input"], 3, b.relu)))
        v = b.cat([e["embedding"], low[:, None]], 1)
        dots = v @ b.turn(v)
        if PAIRS == "slices":
            pairs = [dots[:, i, :i] for i in range(1, N_ID + 1)]
        else:
            i, j = numpy.tril_indices(N_ID + 1, -1)
            pairs = [b.pick(dots, i * (N_ID + 1) + j)]
        now = hidden(b, p, "tower", b.cat([low] + pairs, 1), 2, b.relu)
        return log_loss(b, dense(b, p, "tower_out", now)[:, 0], x["label"])


class Interests(Model):
    has_history = True

    def __init__(self):
        super().__init__()
        self.tables["item_emb"] = self.dim, ["hist_item_seq", "target_item"]
        self.tables["cat_emb"] = self.dim, ["hist_cat_seq", "target_cat"]

    def both(self, b, e, x):
        """Histories and item, [B, 50, 2 dim] and [B, 2 dim]."""
        rows = b.cat([e["item_emb"], e["cat_emb"]], 2)
        past = rows[:, :LONGEST]
        if "mask" in x:
            past = past * x["mask"][:, :, None]
        return past, rows[:, LONGEST]


class Din(Interests):
    dim = 16

    def __init__(self):
        super().__init__()
        self.tables["item_emb_bias"] = 1, ["target_item"]
        n = 2 * self.dim
        self.layers("attention", 4 * n, [80, 40])
        self.layer("history", n, n)
        self.layers("tower", 2 * n, [80, 40])

    def forward(self, b, p, e, x):
        past, item = self.both(b, e, x)
        one = b.expand(item[:, None], past)
        z = b.cat([past, one, past - one, past * one], 2)
        z = hidden(b, p, "attention", z, 2, b.relu)
        score = dense(b, p, "attention_out", z)[:, :, 0] * (2 * self.dim) ** -0.5
        share = b.softmax(score, x.get("mask"))
        seen = (share[:, None] @ past)[:, 0]
        now = b.cat([dense(b, p, "history", seen), item], 1)
        now = dense(b, p, "tower_out", hidden(b, p, "tower", now, 2, b.relu))
        return log_loss(b, (now + e["item_emb_bias"][:, 0])[:, 0], x["label"])


def attention(b, p, name, query, x, heads, mask, causal=False, out=True):
    def part(kind, of):
        y = b.linear(of, p["%s.%s" % (name, kind)], p["%s.%s_bias" % (name, kind)])
        return b.heads(y, heads)

    y = b.attention(part("q", query), part("k", x), part("v", x), mask, causal)
    y = b.one_head(y)
    return b.linear(y, p[name + ".out"], p[name + ".out_bias"]) if out else y


class Attentive(Model):
    adam, batch = True, 256

    def attention(self, name, n, out):
        for kind in ["q", "k", "v"] + ["out"] * out:
            self.weights["%s.%s" % (name, kind)] = (n, n)
            self.weights["%s.%s_bias" % (name, kind)] = (n,)


class Bst(Attentive, Interests):
    dim, heads, inner = 96, 6, 512

    def __init__(self):
        super().__init__()
        n = 2 * self.dim
        self.tables["user_emb"] = self.dim, ["userid"]
        self.weights["position"] = (LONGEST + 1, n)
        self.attention("block_0", n, True)
        for i in range(2):
            self.norm("block_0_norm_%d" % i, n)
        self.layer("block_0_ffn_0", n, self.inner)
        self.layer("block_0_ffn_1", self.inner, n)
        self.layers("tower", n + self.dim, [1024, 512, 256])

    def forward(self, b, p, e, x):
        past, item = self.both(b, e, x)
        rows = b.cat([past, item[:, None]], 1) + p["position"]
        mask = b.cat([x["mask"], x["mask"][:, :1] * 0 + 1], 1) if "mask" in x else None
        query = rows[:, LONGEST:]
        now = query + attention(b, p, "block_0", query, rows, self.heads, mask)
        now = norm(b, p, "block_0_norm_0", now)
        inner = b.leaky(dense(b, p, "block_0_ffn_0", now))
        now = norm(b, p, "block_0_norm_1", now + dense(b, p, "block_0_ffn_1", inner))
        now = hidden(b, p, "tower", b.cat([now[:, 0], e["user_emb"][:, 0]], 1), 3, b.leaky)
        return log_loss(b, dense(b, p, "tower_out", now)[:, 0], x["label"])


class Sasrec(Attentive):
    dim, has_history = 64, True

    def __init__(self):
        super().__init__()
        n = self.dim
        self.tables["item_emb"] = n, ["hist_item_seq", "target_item", "negative"]
        self.weights["position"] = (LONGEST, n)
        for i in range(2):
            self.attention("block_%d" % i, n, False)
            for k in range(2):
                self.norm("block_%d_norm_%d" % (i, k), n)
                self.layer("block_%d_ffn_%d" % (i, k), n, n)
        self.norm("norm", n)

    def forward(self, b, p, e, x):
        rows, mask = e["item_emb"], x.get("mask")
        past, item, other = rows[:, :LONGEST], rows[:, LONGEST], rows[:, LONGEST + 1:]
        if mask is not None:
            past, other = past * mask[:, :, None], other * mask[:, :, None]
        now = past * self.dim ** 0.5 + p["position"]
        for i in range(2):
            name = "block_%d" % i
            n = norm(b, p, name + "_norm_0", now)
            now = n + attention(b, p, name, n, now, 1, mask, causal=True, out=False)
            f = norm(b, p, name + "_norm_1", now)
            now = f + dense(b, p, name + "_ffn_1", b.relu(dense(b, p, name + "_ffn_0", f)))
        now = norm(b, p, "norm", now)
        here, right, wrong = now[:, :-1], past[:, 1:], other[:, 1:]
        loss = b.softplus(-(here * right).sum(2)) + b.softplus((here * wrong).sum(2))
        if mask is None:
            last = now[:, LONGEST - 1]
            places = loss.mean()
        else:
            edge = mask - b.cat([mask[:, 1:], mask[:, :1] * 0], 1)
            last = (now * edge[:, :, None]).sum(1)
            places = ((loss * mask[:, 1:]).sum(1) / mask[:, 1:].sum(1)).mean()
        return log_loss(b, (last * item).sum(1), x["label"]) + places


MODELS = {"din": Din, "dcn_v2": DcnV2, "dlrm": Dlrm, "bst": Bst, "sasrec": Sasrec}


# --- torch ----------------------------------------------------------------------------------

class Torch:
    def __init__(self, threads):
        import torch
        import torch.nn.functional as F
        torch.set_num_threads(threads)
        self.torch, self.F = torch, F
        self.relu, self.softplus, self.cat = torch.relu, F.softplus, torch.cat
        self.sigmoid, self.log = torch.sigmoid, torch.log
        self.array = lambda x: torch.from_numpy(x.astype("i8") if x.dtype.kind == "i" else x)
        self.version = torch.__version__

    def leaky(self, x):
        return self.F.leaky_relu(x, 0.01)

    def linear(self, x, w, b):
        y = self.torch.addmm(b, x.reshape(-1, x.shape[-1]), w)
        return y.reshape(*x.shape[:-1], w.shape[1])

    def norm(self, x, w, b):
        return self.F.layer_norm(x, (x.shape[-1],), w, b, 1e-5)

    def softmax(self, x, mask):
        if mask is not None:
            x = x.masked_fill(mask == 0, float("-inf"))
        return self.torch.softmax(x, -1)

    def turn(self, x):
        return x.transpose(1, 2)

    def pick(self, x, at):
        return x.flatten(1)[:, self.torch.from_numpy(at)]

    def expand(self, x, as_):
        return x.expand_as(as_)

    def heads(self, x, n):
        return x.reshape(x.shape[0], x.shape[1], n, -1).transpose(1, 2)

    def one_head(self, x):
        return x.transpose(1, 2).flatten(2)

    def attention(self, q, k, v, mask, causal):
        if mask is not None:
            mask = (mask != 0)[:, None, None]
            if causal:
                n = k.shape[2]
                mask = mask & self.torch.ones(n, n, dtype=self.torch.bool).tril()
            causal = False
        return self.F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    def step_of(self, model):
        """step(batch, number): the loss. The gradients of a row's uses are summed in a scratch
        table, which is all zero between steps, so that repeated ids then write equal values."""
        torch, adam = self.torch, model.adam
        p = {k: self.array(v) for k, v in first_weights(model).items()}
        t = {k: self.array(v) for k, v in first_rows(model).items()}
        n_state = 2 if adam else 1
        ps = [{k: torch.zeros_like(v) for k, v in p.items()} for _ in range(n_state)]
        ts = [{k: torch.zeros_like(v) for k, v in t.items()} for _ in range(n_state)]
        scratch = {k: torch.zeros_like(v) for k, v in t.items()}

        def rule(w, s, g, lr, last):
            """The new states and what the weight loses."""
            if not adam:
                s = [s[0] + g * g]
                return s, 0.01 * g / (s[0].sqrt() + 1e-6)
            s = [0.9 * s[0] + 0.1 * g, 0.999 * s[1] + 0.001 * (g * g)]
            return s, lr * s[0] / ((s[1] * last).sqrt() + 1e-8)

        gv = torch.func.grad_and_value(
            lambda p, e, x: model.forward(self, p, e, x), argnums=(0, 1))

        @torch.compile(dynamic=False)
        def whole(p, ps, t, ts, scratch, x, lr, last):
            e = {k: w[x["ids " + k]] for k, w in t.items()}
            (gp, ge), loss = gv(p, e, x)
            for k, w in p.items():
                s, less = rule(w, [s[k] for s in ps], gp[k], lr, last)
                for old, new in zip(ps, s):
                    old[k].copy_(new)
                w.sub_(less)
            for k, w in t.items():
                ids = x["ids " + k].reshape(-1)
                scratch[k].index_put_((ids,), ge[k].reshape(-1, w.shape[1]), accumulate=True)
                s, less = rule(w, [s[k][ids] for s in ts], scratch[k][ids], lr, last)
                for old, new in zip(ts, s):
                    old[k].index_put_((ids,), new)
                w.index_put_((ids,), w[ids] - less)
                scratch[k].index_put_((ids,), torch.zeros_like(less))
            return loss

        def step(x, n):
            with torch.no_grad():
                return whole(p, ps, t, ts, scratch, x, *map(torch.tensor, rates(n)))
        return step

    def wait(self, loss):
        return float(loss)


# --- JAX ------------------------------------------------------------------------------------

class Jax:
    def __init__(self, threads):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
        import jax
        import jax.numpy as jnp
        self.jax, self.jnp = jax, jnp
        self.relu, self.softplus = jax.nn.relu, jax.nn.softplus
        self.cat, self.sigmoid, self.log = jnp.concatenate, jax.nn.sigmoid, jnp.log
        self.array = lambda x: jnp.asarray(x.astype("i4") if x.dtype.kind == "i" else x)
        self.version = jax.__version__

    def leaky(self, x):
        return self.jax.nn.leaky_relu(x, 0.01)

    def linear(self, x, w, b):
        return x @ w + b

    def norm(self, x, w, b):
        mean = x.mean(-1, keepdims=True)
        x = x - mean
        return x * self.jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w + b

    def softmax(self, x, mask):
        if mask is not None:
            x = self.jnp.where(mask == 0, -self.jnp.inf, x)
        return self.jax.nn.softmax(x, -1)

    def turn(self, x):
        return x.swapaxes(1, 2)

    def pick(self, x, at):
        return x.reshape(x.shape[0], -1)[:, at]

    def expand(self, x, as_):
        return self.jnp.broadcast_to(x, as_.shape)

    def heads(self, x, n):
        return x.reshape(x.shape[0], x.shape[1], n, -1).swapaxes(1, 2)

    def one_head(self, x):
        x = x.swapaxes(1, 2)
        return x.reshape(x.shape[0], x.shape[1], -1)

    def attention(self, q, k, v, mask, causal):
        jnp = self.jnp
        score = q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5
        if mask is not None:
            score = jnp.where(mask[:, None, None] == 0, -jnp.inf, score)
        if causal:
            n = k.shape[2]
            score = jnp.where(numpy.tril(numpy.ones((n, n), bool)), score, -jnp.inf)
        return self.jax.nn.softmax(score, -1) @ v

    def step_of(self, model):
        """step(batch, number): the loss. The state is donated, so that tables are updated in
        their place; gradients of repeated ids are summed by jnp.unique()."""
        jax, jnp, adam = self.jax, self.jnp, model.adam
        p = {k: self.array(v) for k, v in first_weights(model).items()}
        t = {k: self.array(v) for k, v in first_rows(model).items()}
        n_state = 2 if adam else 1
        state = [p, [jax.tree.map(jnp.zeros_like, p) for _ in range(n_state)], t,
                 [jax.tree.map(jnp.zeros_like, t) for _ in range(n_state)]]

        def rule(s, g, lr, last):
            if not adam:
                s = [s[0] + g * g]
                return s, 0.01 * g / (jnp.sqrt(s[0]) + 1e-6)
            s = [0.9 * s[0] + 0.1 * g, 0.999 * s[1] + 0.001 * (g * g)]
            return s, lr * s[0] / (jnp.sqrt(s[1] * last) + 1e-8)

        def one(state, x, lr, last):
            p, ps, t, ts = state
            e = {k: w.at[x["ids " + k]].get(mode="promise_in_bounds") for k, w in t.items()}
            loss, (gp, ge) = jax.value_and_grad(
                lambda p, e: model.forward(self, p, e, x), (0, 1))(p, e)
            p, ps, t, ts = dict(p), [dict(s) for s in ps], dict(t), [dict(s) for s in ts]
            for k in p:
                new, less = rule([s[k] for s in ps], gp[k], lr, last)
                p[k] = p[k] - less
                for s, n in zip(ps, new):
                    s[k] = n
            for k in t:
                ids = x["ids " + k].reshape(-1)
                g = ge[k].reshape(-1, t[k].shape[1])
                u, back = jnp.unique(ids, return_inverse=True, size=ids.shape[0],
                                     fill_value=model.rows)
                g = jnp.zeros_like(g).at[back].add(g)
                new, less = rule([s[k].at[u].get(mode="clip") for s in ts], g, lr, last)
                for s, n in zip(ts, new):
                    s[k] = s[k].at[u].set(n, mode="drop")
                t[k] = t[k].at[u].add(-less, mode="drop")
            return [p, ps, t, ts], loss

        whole = jax.jit(one, donate_argnums=0)

        def step(x, n):
            nonlocal state
            state, loss = whole(state, x, *rates(n))
            return loss
        return step

    def wait(self, loss):
        return float(loss)


# --- data, steps ----------------------------------------------------------------------------

def first_weights(model):
    """As models.c sets them: of norms the scale is 1, other vectors are 0."""
    return {name: fill(name, shape, shape[0] ** -0.5) if len(shape) == 2 else
            numpy.full(shape, "norm" in name and name.endswith(".w"), "f4")
            for name, shape in model.weights.items()}


def first_rows(model):
    return {name: fill(name, (model.rows, dim), 0.1) for name, (dim, _) in model.tables.items()}


def rates(n):
    """Adam's: the rate over the first correction, and the second one."""
    return numpy.float32(0.001 / (1 - 0.9 ** n)), numpy.float32(1 / (1 - 0.999 ** n))


def batch_of(b, model, i, shortest):
    size, masked = model.batch, model.has_history and shortest < LONGEST
    x = {"label": (random("label/%d" % i, size) & numpy.uint64(1)).astype("f4")}
    place = numpy.arange(LONGEST)
    length = numpy.full(size, LONGEST)
    if masked:
        more = random("length/%d" % i, size) % numpy.uint64(LONGEST - shortest + 1)
        length = shortest + more.astype("i8")
        x["mask"] = (place < length[:, None]).astype("f4")
    if model.has_numbers:
        z = random("dense_input/%d" % i, size * N_DENSE) >> numpy.uint64(40)
        x["dense_input"] = (z.astype("f4") * numpy.float32(2.0 ** -24)).reshape(size, N_DENSE)

    def ids_of(name):
        if not ("seq" in name or name == "negative"):
            return (random("%s/%d" % (name, i), size) % numpy.uint64(model.rows))[:, None]
        ids = numpy.zeros((size, LONGEST), numpy.uint64)
        ids[place < length[:, None]] = (random("%s/%d" % (name, i), int(length.sum()))
                                        % numpy.uint64(model.rows))
        return ids

    for table, (_, inputs) in model.tables.items():
        x["ids " + table] = numpy.concatenate([ids_of(n) for n in inputs], 1).astype("i8")
    return {k: b.array(numpy.ascontiguousarray(v)) for k, v in x.items()}


def busy():
    """Processor seconds of the machine, and of this process."""
    with open("/proc/stat", encoding="ascii") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return (sum(v) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK"), time.process_time()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("by", choices=["torch", "jax"])
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shortest", type=int, default=LONGEST)
    parser.add_argument("--pairs", choices=["index", "slices"], default="slices")
    args = parser.parse_args()
    global PAIRS
    PAIRS = args.pairs
    b = {"torch": Torch, "jax": Jax}[args.by](args.threads)
    model = MODELS[args.model]()
    data = [batch_of(b, model, i, args.shortest) for i in range(16384 // model.batch)]
    step, n = b.step_of(model), 0

    def train():
        nonlocal n
        n += 1
        return step(data[(n - 1) % len(data)], n)

    losses = [round(b.wait(train()), 7) for _ in range(N_LOSS)]
    print(json.dumps({"model": args.model, "batch": model.batch, "losses": losses,
                      "version": b.version}), flush=True)
    for line in sys.stdin:
        seconds, steps, before = float(line), 0, busy()
        begin = time.perf_counter()
        last = loss = train()
        while time.perf_counter() - begin < seconds:
            last, loss, steps = loss, train(), steps + 1
            b.wait(last)  # one step behind: a step may be queued while the one before runs
        b.wait(loss)
        steps += 1
        passed = time.perf_counter() - begin
        after = busy()
        print(json.dumps({"samples_per_s": round(steps * model.batch / passed, 1),
                          "samples_per_cpu_s": round(steps * model.batch / (after[1] - before[1]), 1),
                          "foreign": round((after[0] - before[0] - after[1] + before[1]) / passed,
                                           2)}), flush=True)


if __name__ == "__main__":
    main()
