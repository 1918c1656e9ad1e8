#!/usr/bin/env python3
"""Record what graphite-web answers, for TestGraphiteWeb.

Run with a Python that has graphite-web 1.1.10, Django 3.0 and whisper 1.1.10:

    python record.py record                  # writes graphiteweb.json.gz from targets.txt
    python record.py ask TARGET...           # prints the answers to a few targets
    python record.py functions               # prints what /functions answers

It makes a scratch directory with whisper files of generated data, a tag database in SQLite, and asks graphite-web's
/render through Django's test client. Nothing listens on a port. targets.txt has a request a line: a target, or
options before it: "[from=… until=… maxDataPoints=… xFilesFactor=… template[x]=…] target".
"""
import collections
import gzip
import json
import math
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1700006430
FROM, UNTIL = NOW - 600, NOW - 30
DAY = 86400


class Random:
    """A small generator that gives the same numbers everywhere."""

    def __init__(self, seed):
        self.state = seed * 2654435761 % 2**32

    def next(self):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return self.state / 2**31


def generate():
    """Returns [(name, step, start, values)]; None is a gap."""
    out = []

    def add(name, step, points, make):
        rnd = Random(len(out) + 17)
        end = NOW - NOW % step
        start = end - (points - 1) * step
        out.append((name, step, start, [make(i, start + i * step, rnd) for i in range(points)]))

    def wave(base, size, gap=0.0, digits=3):
        def make(i, t, rnd):
            v = base + size * math.sin(i / 7.0) + rnd.next() * size / 4
            return None if rnd.next() < gap else round(v, digits)
        return make

    def counter(width, top, gap=0.0):
        def make(i, t, rnd):
            v = (i * width + int(rnd.next() * width)) % top
            return None if rnd.next() < gap else float(v)
        return make

    for n in (1, 2, 3):
        for m in ("cpu.user", "cpu.system"):
            add("servers.h%d.%s" % (n, m), 10, 720, wave(10 * n, 4, 0.05 if n == 2 else 0))
        add("servers.h%d.mem.used" % n, 60, 200, wave(1e9 * n, 1e8, 0.1 if n == 3 else 0, 0))
        add("servers.h%d.mem.free" % n, 60, 200, wave(2e9 - 1e8 * n, 1e8, 0, 0))
        add("servers.h%d.net.rx" % n, 10, 720, counter(97 * n, 5000, 0.04 if n > 1 else 0))
    add("servers.web-01.disk.sda1.used", 60, 300, wave(50, 20))
    add("servers.web-01.disk.sdb2.used", 60, 300, wave(70, 20))
    add("servers.web-02.disk.sda1.used", 60, 300, wave(30, 20))
    add("gaps.many", 10, 720, wave(5, 10, 0.6))
    add("gaps.regular", 10, 720, lambda i, t, r: round(3 + r.next(), 3) if t % 30 == 0 else None)
    add("gaps.none", 10, 720, lambda i, t, r: None)
    add("gaps.first", 10, 720, lambda i, t, r: float(i) if t < NOW - 300 else None)
    add("gaps.last", 10, 720, lambda i, t, r: float(i) if t > NOW - 300 else None)
    add("negative.a", 10, 720, wave(-3, 10))
    add("negative.b", 10, 720, wave(0, 2, 0.1))
    add("negative.zero", 10, 720, lambda i, t, r: float(i % 5))
    add("const.one", 10, 720, lambda i, t, r: 1.0)
    add("const.zero", 10, 720, lambda i, t, r: 0.0)
    add("const.half", 10, 720, lambda i, t, r: 0.5)
    add("steps.s10", 10, 720, wave(1, 1))
    add("steps.s15", 15, 500, wave(2, 1))
    add("steps.s60", 60, 200, wave(3, 1, 0.1))
    add("steps.s300", 300, 100, wave(4, 1))
    add("long.hour", 3600, 24 * 25, lambda i, t, r: round(
        100 + 30 * math.sin(t % DAY / DAY * 2 * math.pi) + 10 * r.next(), 3))
    add("long.hour2", 3600, 24 * 25, lambda i, t, r: None if r.next() < 0.05 else round(
        50 - 20 * math.sin(t % DAY / DAY * 2 * math.pi) + 10 * r.next(), 3))
    for i in range(1, 6):
        add("rank.s%d" % i, 10, 200, wave((i * 7) % 5, 1 + (i * 3) % 4, 0.1 if i == 4 else 0))
    for name in ("sort.node10", "sort.node9", "sort.node1", "sort.Node2"):
        add(name, 10, 100, wave(1, 1))
    add("weird.a-b_c:d#e@f%g", 10, 100, wave(1, 1))
    for dc in ("ams", "fra"):
        for host in ("a", "b"):
            add("disk.used;dc=%s;host=%s" % (dc, host), 10, 200, wave(20, 5))
            add("disk.free;dc=%s;host=%s;rack=r1" % (dc, host), 10, 200, wave(80, 5))
    return out


def start_graphite(root, data):
    os.makedirs(root + "/storage/whisper")
    os.makedirs(root + "/storage/log/webapp")
    with open(root + "/recorder_settings.py", "w") as f:
        f.write("""
SECRET_KEY = 'recorder'
STORAGE_DIR = '{0}/storage'
WHISPER_DIR = '{0}/storage/whisper'
STANDARD_DIRS = [WHISPER_DIR]
LOG_DIR = '{0}/storage/log/webapp'
INDEX_FILE = '{0}/storage/index'
CONF_DIR = '{0}'
TIME_ZONE = 'UTC'
CARBONLINK_HOSTS = []
DATABASES = {{'default': {{'NAME': '{0}/graphite.db', 'ENGINE': 'django.db.backends.sqlite3'}}}}
ALLOWED_HOSTS = ['*']
DEFAULT_CACHE_DURATION = 0
REMOTE_STORE_USE_POST = False
""".format(root))
    sys.path.insert(0, root)
    os.environ["GRAPHITE_ROOT"] = root
    os.environ["GRAPHITE_SETTINGS_MODULE"] = "recorder_settings"
    os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"
    os.environ["TZ"] = "UTC"
    import inspect
    if not hasattr(inspect, "getargspec"):  # gone since Python 3.11; /functions needs it

        Spec = collections.namedtuple("Spec", "args varargs keywords defaults")

        def getargspec(f):
            full = inspect.getfullargspec(f)
            return Spec(full.args, full.varargs, full.varkw, full.defaults)
        inspect.getargspec = getargspec

        def formatargspec(args, varargs=None, keywords=None, defaults=None):
            first = len(args) - len(defaults or ())
            parts = [a if i < first else "%s=%r" % (a, defaults[i - first]) for i, a in enumerate(args)]
            return "(" + ", ".join(parts + (["*" + varargs] if varargs else [])) + ")"
        inspect.formatargspec = formatargspec
    import django
    django.setup()
    from django.core.management import call_command
    call_command("migrate", run_syncdb=True, verbosity=0)
    import whisper
    from graphite.storage import STORE
    from graphite.tags.utils import TaggedSeries
    for name, step, start, values in data:
        path = name
        if ";" in name:
            path = TaggedSeries.encode(name, os.sep)
            STORE.tagdb.tag_series(name)
        else:
            path = name.replace(".", os.sep)
        path = root + "/storage/whisper/" + path + ".wsp"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        whisper.create(path, [(step, len(values) + 1)], xFilesFactor=0.0)
        points = [(start + i * step, v) for i, v in enumerate(values) if v is not None]
        if points:
            whisper.update_many(path, points, now=NOW)
    from django.test import Client
    return Client()


def read_requests():
    out = []
    with open(HERE + "/targets.txt") as f:
        for line in f:
            line = line.rstrip("\n")
            if not line.strip() or line.startswith("#"):
                continue
            out.append(parse_request(line))
    return out


def parse_request(line):
    options = {}
    m = re.match(r"^\[([^\]]*(?:\[\w+\][^\]]*)*)\] +(.*)$", line)
    if m:
        for part in m.group(1).split():
            k, v = part.split("=", 1)
            options[k] = v
        line = m.group(2)
    return {"target": line, "options": options}


def took_too_long(*_):
    raise TimeoutError("no answer in 5 s")


def ask(client, request):
    q = {"format": "json", "now": str(NOW), "from": str(FROM), "until": str(UNTIL), "noCache": "1"}
    q.update(request["options"])
    q["target"] = request["target"]
    status, body = 500, None
    signal.signal(signal.SIGALRM, took_too_long)
    signal.alarm(5)
    try:
        r = client.get("/render", q)
        status = r.status_code
        text = r.content.decode("utf-8")
        body = json.loads(text) if status == 200 else text.strip()
    except Exception as e:  # what a real server answers with 500
        body = "%s: %s" % (type(e).__name__, e)
    finally:
        signal.alarm(0)
    if status != 200:
        text = re.sub(r"<[^>]*>", " ", str(body))
        return {"status": status, "error": " ".join(text.split())[:300]}
    series = []
    details = [None] * len(body)
    if "maxDataPoints" not in q and "noNullPoints" not in q:
        q["format"] = "pickle"
        details = pickle.loads(client.get("/render", q).content)
    for s, d in zip(body, details):
        points = s["datapoints"]
        step = points[1][1] - points[0][1] if len(points) > 1 else 0
        one = {"name": str(s["target"]), "tags": {k: str(v) for k, v in s["tags"].items()},
               "start": points[0][1] if points else 0, "step": step,
               "values": [None if v is None else (v if math.isfinite(v) else "inf") for v, _ in points]}
        if d is not None and d["name"] == s["target"]:
            one.update({"step": int(d["step"]), "path": str(d["pathExpression"]),
                        "consolidation": d["consolidationFunc"], "xFilesFactor": d["xFilesFactor"] or 0})
        if any(t != one["start"] + i * one["step"] for i, (_, t) in enumerate(points)):
            one["times"] = [t for _, t in points]
        series.append(one)
    return {"status": 200, "series": series}


def main():
    import logging
    logging.disable(logging.CRITICAL)
    root = tempfile.mkdtemp(prefix="graphite-recorder-")
    try:
        data = generate()
        client = start_graphite(root, data)
        command = sys.argv[1] if len(sys.argv) > 1 else "record"
        if command == "ask":
            for line in sys.argv[2:] or sys.stdin.read().split("\n"):
                if line.strip():
                    request = parse_request(line)
                    print("==", line)
                    a = ask(client, request)
                    if a["status"] != 200:
                        print("  ", a["status"], a["error"])
                    for s in a.get("series", []):
                        print("  ", s["name"], s["tags"], "start", s["start"] - NOW, "step", s["step"])
                        print("     ", len(s["values"]), s["values"][:14], s.get("path"), s.get("consolidation"),
                              s.get("xFilesFactor"), s.get("times", ""))
        elif command == "functions":
            print(client.get("/functions").content.decode())
        else:
            requests = read_requests()
            cases = []
            for request in requests:
                answer = ask(client, request)
                answer.update(request)
                cases.append(answer)
            file = {"now": NOW, "from": FROM, "until": UNTIL,
                    "data": [{"name": n, "step": s, "start": t, "values": v} for n, s, t, v in data], "cases": cases}
            with open(HERE + "/graphiteweb.json.gz", "wb") as f:
                f.write(gzip.compress(json.dumps(file, separators=(",", ":")).encode(), mtime=0))
            print(len(cases), "requests recorded")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
