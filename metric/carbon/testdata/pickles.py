"""Writes pickles as programs in Python send them, one "LABEL BASE64" a line.

    python2.7 pickles.py > pickles2.txt
    python3 pickles.py > pickles3.txt
"""
import base64
import pickle
import sys

TWO = [(u"servers.h1.cpu.total.idle", (1423931224, 60.2)), (u"servers.h1.x", (1423931224, 3))]
PYTHON = sys.version_info[0]


def label(kind, protocol, data):
    print("%s-python%d-protocol%d %s" % (kind, PYTHON, protocol, base64.b64encode(data).decode()))


def native(points):
    return [(str(name), pair) for name, pair in points]


def write():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        def out(kind, value):
            label(kind, protocol, pickle.dumps(value, protocol))

        out("two", native(TWO))
        out("two-unicode", TWO)
        if PYTHON == 2 or protocol >= 3:  # before, bytes are a call of a function
            out("two-bytes", [(name.encode(), pair) for name, pair in TWO])
        out("two-tuple", tuple(native(TWO)))
        out("two-lists", [[name, list(pair)] for name, pair in native(TWO)])
        out("two-strings", [(name, (str(ts), repr(value))) for name, (ts, value) in native(TWO)])
        out("two-floats", [(name, (ts + 0.75, float(value))) for name, (ts, value) in native(TWO)])
        out("two-longs", [(name, (ts + (1 << 70) - (1 << 70), value)) for name, (ts, value) in native(TWO)])
        out("two-other", native(TWO) + [None, 7, {"a": [1]}, ("n",), ("n", 1), ("", (1, 2)), (1, (1, 2)), ("n", (1, None)),
                                        ("n", (None, 1)), ("n", (1, "x")), ("n", (1, 2, 3)), "text", [], {}])
        out("pairs", [("servers.h1.x", (1423931224, 1), (1423931234, 2.5), (1423931244, True))])
        out("shared", [("servers.h1.x", pair) for pair in [(1423931224, 1.5)] * 3])
        out("names", [(name, (1423931224, 1)) for name in (u"caf\u00e9.\u20ac", u"a'b\"c\\d\n", u"\U0001f600")])
        if protocol in (2, 4):  # more than Python puts into a list at once
            out("many", [("m%d" % i, (1423931224 + i, i / 4.0)) for i in range(1001)])
        out("large", [("m", (1423931224, 1 << 70)), ("m", (1423931224, -(1 << 70))), ("m", (1423931224, -3000000000))])
        out("infinite", [("m", (1423931224, float(v))) for v in ("inf", "-inf", "nan")] + [("m", (float("inf"), 1))])


write()
