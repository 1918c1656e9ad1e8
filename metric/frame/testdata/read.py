"""Reads the pickles that package frame writes, one in base64 a line.

    python3 read.py < pickled.txt > read.txt
"""
import base64
import pickle
import struct
import sys

for line in sys.stdin:
    data = base64.b64decode(line)
    while data:
        length = struct.unpack("!L", data[:4])[0]
        for name, (ts, value) in pickle.loads(data[4:4 + length]):
            print("%s %d %r" % (name, ts, value))
        data = data[4 + length:]
