"""role.py: one process of a job of Paddle Fleet, as job.py starts it. What it
trains stands in PADDLE_ROWS_JOB, its role in Paddle's own variables. A worker does
what its standard input says, a JSON object a line, or what the job's "do" lists, and
tells of each by a line that begins with "@".
"""
import ctypes
import json
import os
import signal
import sys
import time

# a launcher's processes must not outlive it; 1 is PR_SET_PDEATHSIG
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)

import numpy  # noqa: E402
import paddle  # noqa: E402
import paddle.distributed.fleet as fleet  # noqa: E402

JOB = json.loads(os.environ["PADDLE_ROWS_JOB"])
STATIC = paddle.static
OPTIMIZERS = {"sgd": paddle.optimizer.SGD, "adam": paddle.optimizer.Adam, "adagrad": paddle.optimizer.Adagrad}


def say(event, **facts):
    print("@" + json.dumps(dict(facts, event=event)), flush=True)


def resident_gb():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1e6


# --- what is trained ----------------------------------------------------------

def numbers(name, size):
    return STATIC.data(name, [-1, size], "float32")


def slots(n):
    return [STATIC.data(str(i + 1), [-1, 1], "int64", lod_level=1) for i in range(n)]


def rows(slot, dim, initializer):
    attr = paddle.ParamAttr(name="table", initializer=initializer)
    found = STATIC.nn.sparse_embedding(slot, size=[JOB.get("keys", 100), dim], param_attr=attr)
    return STATIC.nn.sequence_lod.sequence_pool(found, "sum")


def weight(size):
    zero = paddle.nn.initializer.Constant(0.0)
    return paddle.create_parameter([size], "float32", name="w", default_initializer=zero)


def constant():
    """A dense parameter; each element's gradient is the number in the text."""
    x = numbers("x", 1)
    return paddle.mean(paddle.sum(x * weight(JOB["size"]), axis=1)), [x], None


def row():
    """Rows of three columns, to begin with 0.5, and one dense weight; each
    element's gradient is the number in the text."""
    x, slot = numbers("x", 1), slots(1)[0]
    found = rows(slot, 3, paddle.nn.initializer.Constant(0.5))
    return paddle.mean(x * (paddle.sum(found, axis=1, keepdim=True) + weight(1))), [x, slot], found


def wide_deep(n_numbers, n_slots, dim, hidden):
    """A linear model of the numbers and a tower over numbers and rows."""
    label, dense, ids = STATIC.data("label", [-1, 1], "int64"), numbers("dense", n_numbers), slots(n_slots)
    start = paddle.nn.initializer.Uniform(-0.01, 0.01)
    x = paddle.concat([rows(s, dim, start) for s in ids] + [dense], axis=1)
    for size in hidden:
        x = STATIC.nn.fc(x, size, activation="relu")
    p = paddle.nn.functional.sigmoid(STATIC.nn.fc(x, 1) + STATIC.nn.fc(dense, 1))
    truth = paddle.cast(label, "float32")
    return paddle.mean(paddle.nn.functional.binary_cross_entropy(p, truth, reduction="none")), [label, dense] + ids, p


MODELS = {"constant": constant, "row": row,
          "adult": lambda: wide_deep(6, 8, 8, [100, 50]),
          "ctr": lambda: wide_deep(13, 26, 9, [128, 64])}


def minimize(loss):
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = JOB.get("a_sync", True)  # first: it sets k_steps to 0
    if "a_sync_configs" in JOB:
        strategy.a_sync_configs = JOB["a_sync_configs"]
    if "table" in JOB:
        strategy.fleet_desc_configs = {"use_cvm": False, "table": JOB["table"]}
    kind, rate = JOB.get("optimizer", ["sgd", 1.0])
    fleet.distributed_optimizer(OPTIMIZERS[kind](rate), strategy).minimize(loss)
    return strategy


# --- roles --------------------------------------------------------------------

def serve():
    fleet.init_server()
    say("run_server")
    fleet.run_server()
    say("left run_server")


def text_columns(path, inputs):
    """The values of a text whose slots have one length each, as feeds."""
    values = {v.name: [] for v in inputs}
    with open(path) as f:
        for line in f:
            words = line.split()
            for v in inputs:
                n = int(words[0])
                values[v.name].append(words[1:1 + n])
                words = words[1 + n:]
    feed = {}
    for v in inputs:
        a = numpy.array(values[v.name], dtype="int64" if v.dtype == paddle.int64 else "float32")
        feed[v.name] = paddle.base.create_lod_tensor(a, [[1] * len(a)], paddle.CPUPlace()) if v.lod_level else a
    return feed


def auc(score, label):
    """The share of pairs in the right order; equal scores count a half."""
    _, place, count = numpy.unique(score, return_inverse=True, return_counts=True)
    rank = (numpy.cumsum(count) - (count - 1) / 2.0)[place]
    ones = int(label.sum())
    return float((rank[label == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(label) - ones)))


class Worker:
    def __init__(self, loss, inputs, out):
        self.loss, self.inputs, self.out = loss, inputs, out
        self.exe = STATIC.Executor(paddle.CPUPlace())
        self.exe.run(STATIC.default_startup_program())
        fleet.init_worker()

    def train(self, files, epochs=1):
        data = paddle.distributed.QueueDataset()
        data.init(batch_size=JOB.get("batch", 1), thread_num=1, use_var=self.inputs, pipe_command="cat", input_type=0)
        data.set_filelist(files)
        for epoch in range(epochs):
            self.exe.train_from_dataset(STATIC.default_main_program(), data, thread=1, fetch_list=[self.loss],
                                        fetch_info=["loss"], print_period=1000000)
            say("epoch", number=epoch + 1, gb=resident_gb())
        # what is still queued counts as trained
        fleet.fleet._runtime_handle._worker.client_flush()

    def save(self, folder):
        begun = time.time()
        fleet.save_persistables(self.exe, folder)
        return {"seconds": time.time() - begun}

    def score(self, path):
        """AUC of the servers' parameters on a text."""
        # pulls the dense parameters
        fleet.save_dense_params(self.exe, os.devnull, STATIC.global_scope(), STATIC.default_main_program())
        feed = text_columns(path, self.inputs)
        label = feed.pop("label").ravel()
        p = self.forward(feed)
        return {"auc": auc(p.ravel(), label), "rows": len(label)}

    def row(self, id):
        """A row as the server has it."""
        ids = paddle.base.create_lod_tensor(numpy.array([[id]]), [[1]], paddle.CPUPlace())
        return {"columns": self.forward({"1": ids})[0].tolist()}

    def forward(self, feed):
        """The model's output from all inputs but the first, nothing trained."""
        program = STATIC.normalize_program(STATIC.default_main_program(), self.inputs[1:], [self.out])
        return self.exe.run(program, feed=feed, fetch_list=[self.out])[0]

    def dense(self):
        """The worker's own copy of the dense parameter."""
        w = STATIC.global_scope().find_var("w").get_tensor()
        return {"w": numpy.array(w).tolist()}

    def stop(self):
        fleet.stop_worker()


def work(model):
    worker = Worker(*model)
    say("ready")
    for command in JOB.get("do") or map(json.loads, sys.stdin):
        name = command.pop("do")
        say(name, **(getattr(worker, name)(**command) or {}))


def all_reduce():
    paddle.distributed.init_parallel_env()
    mine = paddle.to_tensor([paddle.distributed.get_rank() + 1.0])
    paddle.distributed.all_reduce(mine)
    say("sum", value=float(mine), backend=paddle.distributed.get_backend())


def main():
    if JOB["model"] == "all_reduce":
        return all_reduce()
    paddle.enable_static()
    say("imported")
    fleet.init(is_collective=False)
    model = MODELS[JOB["model"]]()
    strategy = minimize(model[0])
    context = fleet.fleet._runtime_handle.context
    say("built", mode=context["ps_mode"], a_sync_configs={k: strategy.a_sync_configs[k] for k in JOB.get("a_sync_configs", {})})
    serve() if fleet.is_server() else work(model)


main()
