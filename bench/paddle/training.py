"""training.py: the rows of bench/paddle_rows in which nothing is broken on purpose.

A row is a function: its docstring says what is run, it returns what was seen, in
words and in numbers.
"""
import gzip
import os
import random
import re
import subprocess

from job import ROLE, START, Ended, Job, Late, complaint, how, table

ONE_ID = "1 %g 1 7\n"  # a gradient, the id of a row


def ctr_lines(lines, keys):
    """A label, 13 numbers and 26 of `keys` ids per line, as lists of slots."""
    rng, each = random.Random(1), keys // 26
    numbers = ["13" + "".join(" %.4f" % rng.random() for _ in range(13)) for _ in range(1000)]
    for _ in range(lines):
        yield ["1 %d" % (rng.random() < 0.3), rng.choice(numbers)] + \
            ["1 %d" % (rng.randrange(each) + slot * each + 1) for slot in range(26)]


def ctr_text(bench, lines, keys):
    return bench.write("ctr.txt", (" ".join(slots) + "\n" for slots in ctr_lines(lines, keys)))


def sync(bench):
    """a_sync = False, 1 and then 2 workers, each with a text of one line, so that
    the first step is the only one; how they end."""
    text, observed, words = bench.write("one.txt", [ONE_ID % 1]), {}, []
    for n in (1, 2):
        with Job(bench, n, {"model": "row", "a_sync": False}) as j:
            workers = j.ready(n)[1:]
            for w in workers:
                w.tell("train", files=[text])
            ended = [w.status(bench.wait) for w in workers]
            observed["%d_workers" % n] = {
                "status": ended, "in_SendBarrierOp": ["SendBarrierOp" in w.text() for w in workers]}
            words.append("%d workers: %s" % (n, ", ".join("runs on" if e is None else how(e) for e in ended)))
    return "in the first step of " + "; of ".join(words), observed


def lost(bench):
    """2 workers train 500 lines each, batch 1, a dense parameter of
    100,000 weights whose gradients are always 1, SGD with rate 1; 10 times in one job. After
    each, both have flushed what they queued, and the table is saved: each
    weight should have moved by 1,000."""
    text, rounds, before = bench.write("ones.txt", ["1 1\n"] * 500), [], [0.0] * 100000
    with Job(bench, 2, {"model": "constant", "size": 100000}) as j:
        workers = j.ready(2)[1:]
        for i in range(10):
            for w in workers:
                w.tell("train", files=[text])
            for w in workers:
                w.until("train")
            workers[0].ask("save", folder=bench.path("model%d" % i))
            after = [float(line[0]) for line in table(bench.path("model%d" % i), 0)]
            missing = [1000 - (b - a) for a, b in zip(after, before)]
            rounds.append({"weights": sum(m > 0 for m in missing), "most": max(missing), "least": min(missing)})
            before = after
    most = [r["most"] for r in rounds if r["most"] > 0]
    words = "updates lost in %d of %d rounds" % (len(most), len(rounds))
    if most:
        words += ", at most %g to %g of a weight's 1,000" % (min(most), max(most))
    return words, {"rounds_with_loss": len(most), "lost": rounds}


def adult_texts(bench):
    """Adult by samples/adult-slots.awk: the shuffled training text in two halves,
    and the test text."""
    lines = []
    for name in ("adult.data.gz", "adult.test.first13025.gz"):
        with gzip.open(os.path.join(bench.root, "samples", "data", "adult", name)) as f:
            r = subprocess.run(["awk", "-f", os.path.join(bench.root, "samples", "adult-slots.awk")],
                               input=f.read(), stdout=subprocess.PIPE, check=True)
        lines.append(r.stdout.decode().splitlines(True))
    random.Random(1).shuffle(lines[0])
    half = len(lines[0]) // 2
    train = bench.write("half0.txt", lines[0][:half]), bench.write("half1.txt", lines[0][half:])
    return train, bench.write("test.txt", lines[1])


def auc(bench):
    """wide&deep of samples/configs/adult-wide-deep.json (8 embeddings of 8, 6
    numbers, 100-50, Adam 0.001, batch 128, 5 epochs), 2 workers with a half of
    the text each; AUC of the servers' parameters on the 13,025 test lines, in 3
    jobs."""
    train, test = adult_texts(bench)
    found = []
    for _ in range(3):
        with Job(bench, 2, {"model": "adult", "optimizer": ["adam", 0.001], "batch": 128}) as j:
            workers = j.ready(2)[1:]
            for w, text in zip(workers, train):
                w.tell("train", files=[text], epochs=5)
            for w in workers:
                w.until("train", 300)
            found.append(workers[0].ask("score", path=test))
    values = sorted(f["auc"] for f in found)
    return "AUC " + ", ".join("%.4f" % v for v in values), {"auc": values, "test_lines": found[0]["rows"]}


def moves(bench, gradient, batch, **job):
    """A row of three columns over four steps of one batch of equal lines, and the
    rules that the server's description of its table names."""
    text, seen = bench.write("row.txt", [ONE_ID % gradient] * batch), []
    with Job(bench, 1, dict(job, model="row", batch=batch), PSERVER_DEBUG="1") as j:
        server, w = j.ready()
        for _ in range(4):
            w.ask("train", files=[text])
            seen.append(w.ask("row", id=7)["columns"])
        rules = re.findall(r'embedx?_sgd_param \{\s+name: "(\w+)"', server.text())
    return {"rule": sorted(set(rules)), "columns": seen}


def sgd(bench):
    """SGD with rate 4 on a row of three columns, Constant(0.5) to begin with:
    four steps with gradient 1, with gradient 2, and with a batch of two lines
    whose mean has gradient 1; by default and with fleet_desc_configs'
    sparse_optimizer naive at the same rate. SGD goes from 0.5 to -3.5, -7.5,
    -11.5, -15.5 with gradient 1, and to -7.5 in its first step with gradient 2. The
    rule is read in the server's description of its table (PSERVER_DEBUG=1), the
    row is pulled from the server after each step."""
    naive = {"sparse_optimizer": "naive", "sparse_embedx_dim": 2, "sparse_embedx_threshold": 0,
             "sparse_learning_rate": 4.0, "sparse_initial_range": 0.5}
    observed, words = {}, []
    for name, more in (("default", {}), ("naive", {"table": naive})):
        runs = {"gradient_%d" % g: moves(bench, g, 1, optimizer=["sgd", 4.0], **more) for g in (1, 2)}
        runs["batch_2"] = moves(bench, 1, 2, optimizer=["sgd", 4.0], **more)
        observed[name] = runs
        one, two, batch = (runs[k]["columns"] for k in ("gradient_1", "gradient_2", "batch_2"))
        first = one[0]
        facts = ["the step of gradient 2 is %.2f times that of gradient 1" % (two[0][0] / one[0][0]),
                 "of a batch of 2, %.2f times" % (batch[0][0] / one[0][0]),
                 "column 0 begins at %.3g" % (first[0] + 4),
                 "after the first step columns 1 and 2 are within 0.5 of 0: %s" % all(abs(x) <= 0.5 for x in first[1:]),
                 "least weight %.4g" % min(min(s) for s in one + two)]
        words.append("%s: %s; %s" % (name, "/".join(runs["gradient_1"]["rule"]), "; ".join(facts)))
    return " | ".join(words), observed


def adagrad(bench):
    """paddle.optimizer.Adagrad on a program with sparse_embedding, and on one with
    a dense parameter only: how the server and a worker end, or what a step does."""
    observed, words = {}, []
    for model, line in (("row", ONE_ID % 1), ("constant", "1 1\n")):
        text = bench.write("a.txt", [line])
        with Job(bench, 1, {"model": model, "size": 1, "optimizer": ["adagrad", 1.0]}) as j:
            try:
                j.ready()[1].ask("train", files=[text])
                observed[model] = {"trained": True}
                words.append(model + ": trains")
            except Ended as e:
                observed[model] = {"trained": False, "error": complaint(str(e))}
                words.append("%s: %s: %s" % (model, str(e).split(" before")[0], complaint(str(e))))
    return "; ".join(words), observed


ODD = {"max_merge_var_num": 7, "send_queue_size": 11, "independent_recv_thread": True,
       "min_send_grad_num_before_recv": 13, "thread_pool_size": 3, "send_wait_times": 9}


def fields(bench):
    """max_merge_var_num 7, send_queue_size 11, independent_recv_thread True,
    min_send_grad_num_before_recv 13, thread_pool_size 3, send_wait_times 9, and a
    job without them. Compared: the line "communicator config" that init_worker
    prints, the worker's and the server's descriptions of the job
    (PSERVER_DEBUG=1); searched: a line that names one of the fields."""
    text, config, described, named = bench.write("one.txt", [ONE_ID % 1]), [], [], None
    for job in ({}, {"a_sync_configs": ODD}):
        with Job(bench, 1, dict(job, model="row"), PSERVER_DEBUG="1") as j:
            server = j.server()
            server.until("run_server")
            w = j.worker()
            built = w.until("built")
            w.until("ready")
            w.ask("train", files=[text])
            out = w.text()
            config.append(re.search(r"communicator config: (\{.*\})", out)[1])
            described.append([re.sub(r"127\.0\.0\.1:\d+", "", re.search(r"%s_desc: \n(.*?\n)\n" % side, o, re.S)[1])
                              for side, o in (("worker", out), ("server", server.text()))])
            named = [s for s in out.splitlines() if any(f in s for f in ODD) and "communicator config" not in s]
    observed = {"strategy_has": built["a_sync_configs"], "communicator_config_without": config[0],
                "communicator_config_with": config[1], "worker_description_equal": described[0][0] == described[1][0],
                "server_description_equal": described[0][1] == described[1][1], "lines_that_name_a_field": named}
    same = config[0] == config[1] and described[0] == described[1]
    return ("nothing differs from the job without them" if same else "differs from the job without them") + \
        ("; no line names one" if not named else "; named by: " + named[0]), observed


def memory(bench):
    """One worker, 6 epochs over the same text of 200,000 lines, 13 numbers and 26
    of 1,000,000 ids each, batch 1,024, embedding 9, tower 128-64: its resident
    memory after each epoch."""
    text = ctr_text(bench, 200000, 1000000)
    with Job(bench, 1, {"model": "ctr", "optimizer": ["sgd", 0.01], "batch": 1024}) as j:
        w = j.ready()[1]
        gb = [e["gb"] for e in w.ask("train", 600, files=[text], epochs=6)["before"]]
    more = [round(b - a, 3) for a, b in zip(gb, gb[1:])]
    return "grows %.2f GB per 200 k rows (%.2f to %.2f)" % (sum(more) / len(more), min(more), max(more)), \
        {"gb_after_epoch": gb, "more_gb": more}


def all_reduce(bench):
    """Two processes of the collective mode: the sum of 1 and 2 over both."""
    with Job(bench, 1, {"model": "all_reduce"}) as j:
        both = [j.start([ROLE], dict(j.plain, PADDLE_TRAINERS_NUM="2", PADDLE_TRAINER_ID=str(i),
                                    PADDLE_TRAINER_ENDPOINTS=",".join(j.ends), PADDLE_CURRENT_ENDPOINT=j.ends[i],
                                    PADDLE_MASTER=j.ends[0], PADDLE_DISTRI_BACKEND="gloo")) for i in range(2)]
        sums = [p.until("sum", START) for p in both]
    values, backend = [s["value"] for s in sums], sums[0]["backend"]
    return "sums %g and %g by %s; NCCL needs a GPU and was not run" % (*values, backend), \
        {"sums": values, "backend": backend}


def gpus(bench):
    """Whether the wheel that bench/peers installs has CUDA. Nothing is run on a GPU."""
    ask = "import paddle; print(paddle.is_compiled_with_cuda())"
    r = subprocess.run([bench.python, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    cuda = r.stdout.strip()
    return "not measured: the wheel for CPUs was run (CUDA in it: %s)" % cuda, {"compiled_with_cuda": cuda == "True"}


def geo(bench):
    """The mode that each pair of a_sync and k_steps gives, or the error; then, geo
    with k_steps 10: 2 workers train 500 lines each, a dense weight whose gradient
    is always 1, SGD with rate 1, and their own copies of it are looked at; geo with
    sparse_embedding: are both ready in --wait seconds?"""
    modes, words = {}, []
    for a_sync, k in ((False, 0), (True, 0), (True, 10), (False, 10)):
        name = "a_sync %s, k_steps %d" % (a_sync, k)
        with Job(bench, 1, {"model": "constant", "size": 1, "a_sync": a_sync, "a_sync_configs": {"k_steps": k}}) as j:
            try:
                modes[name] = MODES[j.server().until("built")["mode"]]
            except Ended as e:
                modes[name] = complaint(str(e))
        words.append(name + ": " + modes[name])
    text, observed = bench.write("ones.txt", ["1 1\n"] * 500), {"modes": modes}
    with Job(bench, 2, {"model": "constant", "size": 1, "a_sync_configs": {"k_steps": 10}}) as j:
        workers = j.ready(2)[1:]
        for w in workers:
            w.tell("train", files=[text])
        for w in workers:
            w.until("train")
        observed["dense_copies"] = [w.ask("dense")["w"][0] for w in workers]
    words.append("copies of a dense weight: %g and %g" % tuple(observed["dense_copies"]))
    with Job(bench, 2, {"model": "row", "a_sync_configs": {"k_steps": 10}}) as j:
        j.server().until("run_server")
        observed["sparse"] = [became_ready(w, bench.wait) for w in [j.worker(i) for i in range(2)]]
    words.append("with sparse_embedding the workers: " + ", ".join(observed["sparse"]))
    return "; ".join(words), observed


MODES = ("synchronous", "asynchronous", "half-async", "geo")  # Paddle's DistributedMode


def became_ready(worker, seconds):
    try:
        worker.until("ready", seconds)
        return "ready"
    except Ended as e:
        return "%s (%s)" % (how(worker.status()), complaint(str(e)))
    except Late:
        return "not ready after %g s" % seconds


def speed(bench):
    """Not here: bench/run F measures both sides of this row."""
    return "see bench/run F", {}
