"""Writes expected.json: what carbon 1.1.10 says about names.txt by whitelist.conf and blacklist.conf.

Run it in this directory with a Python that has carbon installed: python generate.py
"""
import json

from carbon import log, regexlist

log.err = lambda *a, **k: None


def read(path):
    r = regexlist.RegexList()
    r.list_file = path
    r.read_list()
    return r


white, black = read('whitelist.conf'), read('blacklist.conf')


def check(name):
    if black and name in black:
        return 'blacklist'
    if white and name not in white:
        return 'whitelist'
    return 'allowed'


with open('names.txt') as f:
    names = f.read().splitlines()
with open('expected.json', 'w') as f:
    json.dump({n: check(n) for n in names}, f, indent=1)
    f.write('\n')
