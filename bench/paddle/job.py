"""job.py: starts, commands and ends the processes of a job of Paddle Fleet, on
loopback. Whatever a row does, all of them are gone after its "with Job".
"""
import ctypes
import gzip
import json
import os
import queue
import re
import signal
import socket
import subprocess
import threading
import time

ROLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "role.py")
START = 120  # seconds in which a process must be ready or answer
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Ended(Exception):
    """The process ended where its answer was awaited."""


class Late(Exception):
    """The process gave no answer in time."""


def adopt_orphans():
    """What a child leaves behind becomes a child of this process: end_children
    finds it."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        if parent == os.getpid():
            found.append(int(pid))
    return found


def end_children():
    for pid in iter(lambda: next(iter(children()), None), None):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # subprocess has waited for it meanwhile


def reserve():
    """A port of the kernel's choice. It stays bound, but not listened on: no
    other program is given it, and Paddle, which sets SO_REUSEADDR, can bind it."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    return s


def how(status):
    """An exit status in words."""
    return signal.Signals(-status).name if status < 0 else "exit %d" % status


def complaint(text):
    """The line of Python's last exception, or else the last line."""
    lines = [s.strip() for s in text.splitlines() if s.strip()]
    return next((s for s in reversed(lines) if re.match(r"\w+(Error|Exception): ", s)), lines[-1] if lines else "")


class Process:
    def __init__(self, command, env, folder, name):
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "w") as err:
            self.process = subprocess.Popen(
                command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                text=True, errors="replace",
                preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        self.lines, self.events = [], queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            before, at, event = line.partition('@{"')
            if at:
                self.events.put(json.loads(at[1:] + event))
            else:
                self.lines.append(line)
        self.events.put(None)

    def until(self, name, seconds=START):
        """The event of this name, with those before it in "before"."""
        end, before = time.monotonic() + seconds, []
        while True:
            try:
                event = self.events.get(timeout=max(end - time.monotonic(), 0))
            except queue.Empty:
                raise Late("no '%s' in %g s" % (name, seconds)) from None
            if event is None:
                raise Ended("ended by %s before '%s': %s" % (how(self.status()), name, self.text()[-2000:]))
            if event["event"] == name:
                return dict(event, before=before)
            before.append(event)

    def tell(self, what, **more):
        self.process.stdin.write(json.dumps(dict(more, do=what)) + "\n")
        self.process.stdin.flush()

    def ask(self, what, seconds=START, **more):
        self.tell(what, **more)
        return self.until(what, seconds)

    def status(self, seconds=START):
        """The exit status (minus the signal), or None if it runs on."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def text(self):
        """All that it has printed; of a process that ended, to the last line."""
        if self.process.poll() is not None:
            self.reader.join(START)
        with open(self.log, errors="replace") as f:
            return "".join(self.lines) + f.read()


class Job:
    """One server and `workers` workers, each started when a row says so."""

    def __init__(self, bench, workers, job, **env):
        self.bench, self.job, self.started = bench, dict(job), 0
        self.sockets = [reserve() for _ in range(workers + 1)]
        self.ends = ["127.0.0.1:%d" % s.getsockname()[1] for s in self.sockets]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "FLAGS_"))}
        self.plain = dict(clean, PADDLE_ROWS_JOB=json.dumps(self.job), **env)
        self.env = dict(self.plain, PADDLE_PSERVERS_IP_PORT_LIST=self.ends[0], PADDLE_TRAINERS_NUM=str(workers),
                        PADDLE_TRAINER_ENDPOINTS=",".join(self.ends[1:]), POD_IP="127.0.0.1", PADDLE_WITH_GLOO="0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_children()
        for s in self.sockets:
            s.close()

    def start(self, command, env):
        self.started += 1
        return Process([self.bench.python] + command, env, self.bench.folder, "process%d" % self.started)

    def role(self, **env):
        return self.start([ROLE], dict(self.env, **env))

    def server(self):
        return self.role(TRAINING_ROLE="PSERVER", PADDLE_PORT=self.ends[0].split(":")[1])

    def worker(self, i=0):
        port = self.ends[i + 1].split(":")[1]
        return self.role(TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID=str(i), PADDLE_PORT=port)

    def ready(self, workers=1):
        """The server and the workers, all of them ready to train."""
        server = self.server()
        server.until("run_server")
        all_ = [self.worker(i) for i in range(workers)]
        for w in all_:
            w.until("ready")
        return [server] + all_


def table(folder, number):
    """The lines of a saved table, as words."""
    found, path = [], os.path.join(folder, "%03d" % number)
    for name in sorted(os.listdir(path)):
        opened = gzip.open if name.endswith(".gz") else open
        with opened(os.path.join(path, name), "rt") as f:
            found += [line.split() for line in f]
    return found
