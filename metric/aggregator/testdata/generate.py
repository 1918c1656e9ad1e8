"""Writes expected.json: the outputs that carbon 1.1.10 gives to names.txt by rules.conf, and what its methods make of
values.

Run it in this directory with a Python that has carbon installed: python generate.py
"""
import json
import random

from carbon import log
from carbon.aggregator import rules

log.err = lambda *a, **k: None
manager = rules.RuleManager


def parsed():
    found = []
    with open('rules.conf') as f:
        for line in f:
            line = line.strip()
            if line and not line.startswith('#'):
                found.append(manager.parse_definition(line))
    return found


def outputs(name, all_rules):
    found = []
    for r in all_rules:
        try:
            output = r.get_aggregate_metric(name)
        except (KeyError, ValueError):
            output = None
        if output is not None and output not in found:
            found.append(output)
    return found


all_rules = parsed()
with open('names.txt') as f:
    names = f.read().splitlines()
random.seed(1)
values = [[1.5], [2, 1], [3, 1, 2], [float(i) for i in range(10)]]
values += [[random.uniform(-1e6, 1e6) for _ in range(n)] for n in (4, 17, 100, 1001)]
with open('expected.json', 'w') as f:
    f.write('{"names": ' + json.dumps([{'name': n, 'outputs': outputs(n, all_rules)} for n in names], indent=1) + ',\n"values": [\n')
    f.write(',\n'.join(json.dumps({'values': v, 'results': {m: fn(list(v)) for m, fn in rules.AGGREGATION_METHODS.items()}}) for v in values))
    f.write('\n]}\n')
