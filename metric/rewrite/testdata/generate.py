"""Writes expected.json: what carbon 1.1.10 makes of names.txt by rules.conf.

Run it in this directory with a Python that has carbon installed: python generate.py
"""
import json

from carbon import log, rewrite

log.err = lambda *a, **k: None
manager = rewrite.RewriteRuleManager
manager.rules_file = 'rules.conf'
manager.read_rules()


def apply(ruleset, name):
    for rule in manager.rules(ruleset):
        name = rule.apply(name)
    return name


with open('names.txt') as f:
    names = f.read().splitlines()
with open('expected.json', 'w') as f:
    json.dump([{'name': n, 'pre': apply('pre', n), 'post': apply('post', n)} for n in names], f, indent=1)
    f.write('\n')
