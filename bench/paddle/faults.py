"""faults.py: the rows of bench/paddle_rows in which something is killed, missing,
in use or wrong, or is expected to end. A row is a function as in training.py. Where a
process may never end, bench.wait seconds are waited.
"""
import os
import time

from job import ROLE, START, Ended, Job, Late, how
from training import ONE_ID, ctr_lines, ctr_text

TICK = 0.1  # between two looks at what no event tells


def until(condition, seconds):
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(TICK)
    return True


def left(process, seconds):
    """What is seen of a process that is waited for: status, seconds."""
    begun = time.monotonic()
    status = process.status(seconds)
    return status, round(time.monotonic() - begun, 1)


def in_words(status, seconds):
    return "still runs after %g s" % seconds if status is None else "%s after %g s" % (how(status), seconds)


def end(bench):
    """A worker trains, calls stop_worker and ends: does the server leave
    run_server? Then the same by paddle.distributed.launch with one server and one
    worker: does the launcher return? Each is given --wait seconds."""
    text = bench.write("one.txt", [ONE_ID % 1])
    with Job(bench, 1, {"model": "row"}) as j:
        server, w = j.ready()
        w.ask("train", files=[text])
        w.ask("stop")
        w.process.stdin.close()
        worker = w.status()
        plain = left(server, bench.wait)
    steps = [{"do": "train", "files": [text]}, {"do": "stop"}]
    with Job(bench, 1, {"model": "row", "do": steps}) as j:
        logs = bench.path("logs")
        launcher = j.start(["-m", "paddle.distributed.launch", "--run_mode", "ps", "--servers", j.ends[0],
                            "--trainers", j.ends[1], "--log_dir", logs, ROLE], j.plain)
        done = until(lambda: stopped(logs), START)
        launched = left(launcher, bench.wait)
    observed = {"worker_status": worker, "server": plain, "worker_under_launcher_stopped": done, "launcher": launched,
                "wait": bench.wait}
    return "server: %s; launcher: %s" % (in_words(*plain), in_words(*launched)), observed


def stopped(logs):
    """Whether a worker's log says that it has stopped."""
    for name in os.listdir(logs) if os.path.isdir(logs) else []:
        with open(os.path.join(logs, name), errors="replace") as f:
            if '"event": "stop"' in f.read():
                return True
    return False


def server_killed(bench):
    """A worker trains epoch after epoch; after the first the server is killed with
    SIGKILL, and the worker is given --wait seconds to end."""
    text = bench.write("ones.txt", [ONE_ID % 1] * 2000)
    with Job(bench, 1, {"model": "row"}) as j:
        server, w = j.ready()
        w.tell("train", files=[text], epochs=1000000)
        w.until("epoch")
        server.kill()
        before = len(w.text())
        status, seconds = left(w, bench.wait)
        said = w.text()[before:].splitlines()
    epochs = w.events.qsize()
    return "worker: %s; %d lines printed meanwhile" % (in_words(status, seconds), len(said)), \
        {"status": status, "seconds": seconds, "epochs_after": epochs, "lines": len(said), "last_lines": said[-3:]}


def worker_killed(bench):
    """Two workers train 20 epochs; after the first of worker 1 it is killed with
    SIGKILL. How does worker 0 end, once it has trained and called stop_worker, and do
    it or the server name the loss?"""
    text = bench.write("ones.txt", [ONE_ID % 1] * 2000)
    with Job(bench, 2, {"model": "row", "batch": 10}) as j:
        server, one, other = j.ready(2)
        for w in (one, other):
            w.tell("train", files=[text], epochs=20)
        other.until("epoch")
        other.kill()
        said = len(server.text())
        trained = one.until("train", 300)
        one.ask("stop")
        one.process.stdin.close()
        status = one.status()
        words = [s for s in one.text().splitlines() if "error" in s.lower() or "lost" in s.lower()]
        server_said = server.text()[said:].splitlines()
    return "the other worker: %s after all of its %d epochs; %d lines of it and %d of the server report something" % (
        how(status), len(trained["before"]), len(words), len(server_said)), \
        {"status": status, "epochs": len(trained["before"]), "lines_of_worker": words, "lines_of_server": server_said}


def no_server(bench):
    """A worker whose server was never started (its port is reserved, nothing
    listens on it), for --wait seconds."""
    with Job(bench, 1, {"model": "row"}) as j:
        w = j.worker()
        w.until("imported")
        status, seconds = left(w, bench.wait)
        out = w.text()
    retries = out.count("server not ready")
    tail = [s for s in out.splitlines() if s.strip()][-1:]
    return "%s; %d times 'server not ready'" % (in_words(status, seconds), retries), \
        {"status": status, "seconds": seconds, "not_ready_lines": retries, "last_line": tail}


def port(bench):
    """A server whose port another process listens on: does run_server() fail?"""
    with Job(bench, 1, {"model": "row"}) as j:
        taken = j.sockets[0]
        taken.listen()
        server = j.server()
        server.until("run_server")
        returned = server.until("left run_server", bench.wait) is not None
        status = server.status()
        said = [s for s in server.text().splitlines() if "port" in s.lower() and "fail" in s.lower()]
    return "run_server() returned without an exception: %s; the process: %s" % (returned, how(status)), \
        {"returned": returned, "status": status, "lines_about_the_port": said[:4]}


FAULTS = [("word", "1 abc"), ("fraction", "1 3.7"), ("count 0", "0"), ("negative", "1 -5"), ("surplus", "1 7 9"), ("short", "1")]
LINES, BAD = 10100, 10007  # numbers that stand nowhere else in what is printed


def wrong_lines():
    """Names of faults, and what a line's slots are turned into: one slot has the
    fault, the first of 26 with ids or the last."""
    for fault, slot in FAULTS:
        yield fault + ", first slot", lambda slots, s=slot: slots[:2] + [s] + slots[3:]
        yield fault + ", last slot", lambda slots, s=slot: slots[:-1] + [s]
    yield "half a line", lambda slots: slots[:15]
    yield "an empty line", lambda slots: []


def bad_line(bench):
    """Line 10,007 of 10,100 is wrong: a word, 3.7 or -5 for an id, a count of 0, a
    value too many or too few, in the first or the last of 26 slots of ids; half a
    line; an empty one. How does the worker end, does it print the file's name, the
    line's number, the line?"""
    observed = {}
    with Job(bench, 1, {"model": "ctr", "batch": 100}) as j:
        j.server().until("run_server")
        for number, (fault, change) in enumerate(wrong_lines()):
            lines = list(ctr_lines(LINES, 1000))
            lines[BAD - 1] = change(lines[BAD - 1])
            wrong = " ".join(lines[BAD - 1])
            text = bench.write("wrong-text-%d" % number, (" ".join(slots) + "\n" for slots in lines))
            w = j.worker()
            w.until("ready")
            fate, out = trains(w, text, bench.wait), w.text()
            observed[fault] = {"worker": fate, "names_file": os.path.basename(text) in out,
                               "names_line_number": str(BAD) in out, "prints_line": bool(wrong) and wrong in out}
            w.kill()
    words = []
    for fate in sorted({o["worker"] for o in observed.values()}):
        words.append("%s: %s" % (fate, "; ".join(f for f, o in observed.items() if o["worker"] == fate)))
    named = [f for f, o in observed.items() if o["names_file"] or o["names_line_number"]]
    return "%s. File or line number named by: %s" % (". ".join(words), "; ".join(named) or "none"), observed


def trains(worker, text, seconds):
    """What comes of it."""
    try:
        worker.ask("train", seconds, files=[text])
        return "trains"
    except Ended:
        return how(worker.status())
    except Late:
        return "hangs for %g s" % seconds


def files_of(folder):
    """How many files of a folder are not empty."""
    count = 0
    for entry in os.scandir(folder) if os.path.isdir(folder) else []:
        try:
            count += entry.stat().st_size > 0
        except OSError:
            pass  # it went meanwhile
    return count


def save(bench):
    """A worker trains 200,000 lines with 26 of 1,000,000 ids each, embedding 9 with
    Adam's state, and saves twice to the same path. During the second save the folder
    of the sparse table is looked at 20 times a second: for how long has it no file with
    anything in it, for how long fewer than after the first save?"""
    text = ctr_text(bench, 200000, 1000000)
    with Job(bench, 1, {"model": "ctr", "optimizer": ["sgd", 0.01], "batch": 1024}) as j:
        w = j.ready()[1]
        w.ask("train", 300, files=[text])
        first = w.ask("save", 300, folder=bench.path("model"))["seconds"]
        folder = bench.path("model/000")
        whole, mb = files_of(folder), sum(e.stat().st_size for e in os.scandir(folder)) / 1e6
        w.tell("save", folder=bench.path("model"))
        begun, seen = time.monotonic(), []
        while w.events.empty():
            seen.append((time.monotonic() - begun, files_of(folder)))
            time.sleep(TICK / 2)  # a look without pause would slow the save
        second = w.until("save")["seconds"]
        seen.append((time.monotonic() - begun, files_of(folder)))
    spans = [(b[0] - a[0], a[1]) for a, b in zip(seen, seen[1:])]
    empty = sum(s for s, n in spans if n == 0)
    less = sum(s for s, n in spans if n < whole)
    return "%.1f s without a file, %.1f s with fewer than all %d, of %.1f s" % (empty, less, whole, second), \
        {"first_save_s": first, "second_save_s": second, "empty_s": empty, "incomplete_s": less, "files": whole,
         "mb": mb, "looks": len(seen)}
