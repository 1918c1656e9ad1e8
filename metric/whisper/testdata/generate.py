"""Writes the fixtures of this directory with the whisper library of Graphite (pip install whisper).

Run it here:  python generate.py

It makes *.wsp files, and expected.json with what the library reads from them: the header, the values of each archive,
and the answers of some fetches. The tests read these files, so they need no Python.
"""

import gzip
import json
import math
import os
import random
import shutil
import sys

import whisper

NOW = 1700000065
here = os.path.dirname(os.path.abspath(__file__))
expected = {}


def archive_values(path, archive, now):
    """The (time, value) pairs that whisper finds in an archive at the time now."""
    with open(path, 'rb') as fh:
        (start, end, step), values = whisper.__dict__['__archive_fetch'](fh, archive, now - archive['retention'], now)
    return [[start + i * step, repr(v)] for i, v in enumerate(values) if v is not None]


def record(name, now, path=None):
    path = path or os.path.join(here, name)
    info = whisper.info(path)
    longest = info['maxRetention']
    ranges = [(now - longest, now), (now - longest // 2, now - longest // 4), (now - 60, now), (now - 7, now - 7),
              (now - 2 * longest, now + 500), (now + 1, now + 100), (now - 3 * longest, now - 2 * longest)]
    for archive in info['archives']:
        ranges.append((now - archive['retention'], now))
        ranges.append((now - archive['retention'] - 1, now - archive['secondsPerPoint']))
    fetches = []
    for start, end in ranges:
        got = whisper.fetch(path, start, end, now)
        if got is None:
            fetches.append({'from': start, 'until': end, 'none': True})
        else:
            (first, last, step), values = got
            fetches.append({'from': start, 'until': end, 'start': first, 'end': last, 'step': step,
                            'values': [None if v is None or math.isnan(v) else repr(v) for v in values]})
    expected[name] = {
        'now': now,
        'method': info['aggregationMethod'],
        'xff': info['xFilesFactor'],
        'maxRetention': longest,
        'archives': [[a['secondsPerPoint'], a['points']] for a in info['archives']],
        'points': [[p for p in archive_values(path, a, now) if p[1] != 'nan'] for a in info['archives']],
        'fetches': fetches,
    }


def create(name, archives, xff=0.5, method='average'):
    path = os.path.join(here, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    whisper.create(path, archives, xff, method)
    return path


def live(path, start, end, step, rng, gap=0.0, batch=7):
    """Updates a file as carbon does: small batches as time goes on. Returns the time of the end."""
    pending = []
    t = start
    while t < end:
        if rng.random() >= gap:
            pending.append((t, round(rng.uniform(-100, 100), 3)))
        if len(pending) >= batch:
            whisper.update_many(path, pending, t)
            pending = []
        t += step
    if pending:
        whisper.update_many(path, pending, end)
    return end


def main():
    rng = random.Random(15)
    two = [(10, 6), (30, 4)]
    three = [(10, 36), (60, 48), (300, 60)]

    path = create('vector.wsp', two)
    whisper.update_many(path, [(1700000001, 1.0), (1700000012, 2.0), (1700000023, 3.0), (1700000059, 6.5),
                               (1700000061, 7.0)], NOW)
    record('vector.wsp', NOW)

    create('empty.wsp', two)
    record('empty.wsp', NOW)

    for method in whisper.aggregationMethods:
        name = 'method-%s.wsp' % method
        path = create(name, three, 0.3, method)
        record(name, live(path, NOW - 4000, NOW, 10, rng, gap=0.4))

    for xff in (0.0, 0.1, 0.75, 1.0):
        name = 'xff-%s.wsp' % xff
        path = create(name, three, xff)
        record(name, live(path, NOW - 9000, NOW, 10, rng, gap=0.3))

    # Times between the steps, batches of one.
    path = create('uneven.wsp', three)
    record('uneven.wsp', live(path, NOW - 3003, NOW, 7, rng, batch=1))

    # Time goes through the archives many times.
    path = create('wrap.wsp', [(1, 60), (5, 36), (60, 10)])
    record('wrap.wsp', live(path, NOW - 5000, NOW, 1, rng, batch=13))

    # Points stop, begin again after the finest retention, then stop for good: old slots remain.
    path = create('stale.wsp', three)
    live(path, NOW - 12000, NOW - 11000, 10, rng)
    live(path, NOW - 5000, NOW - 4900, 10, rng)
    record('stale.wsp', NOW)

    # All of it is older than the retention.
    path = create('dead.wsp', three)
    live(path, NOW - 90000, NOW - 80000, 10, rng)
    record('dead.wsp', NOW)

    path = create('one.wsp', [(60, 30)], 1.0, 'last')
    record('one.wsp', live(path, NOW - 1000, NOW, 60, rng))

    # Whisper takes points of the future, values that are not finite, and points out of order.
    path = create('odd.wsp', three, 0.0, 'max')
    whisper.update_many(path, [(NOW + 35, 1.5), (NOW - 10, float('inf')), (NOW - 20, float('-inf')),
                               (NOW - 30, float('nan')), (NOW - 40, -0.0), (NOW - 50, 1e-320),
                               (NOW - 60, 1.7976931348623157e308)], NOW)
    whisper.update_many(path, [(NOW - 3000, 4.0), (NOW - 200, 5.0)], NOW)
    whisper.update(path, 6.0, NOW - 100, NOW)
    record('odd.wsp', NOW)

    path = create('zipped.wsp', three, 0.5, 'sum')
    record('zipped.wsp.gz', live(path, NOW - 3000, NOW, 10, rng), path)
    with open(path, 'rb') as src, open(path + '.gz', 'wb') as raw:
        with gzip.GzipFile(filename='', mode='wb', fileobj=raw, mtime=0) as dst:
            shutil.copyfileobj(src, dst)
    os.unlink(path)

    with open(os.path.join(here, 'expected.json'), 'w') as out:
        lines = ['%s: %s' % (json.dumps(name), json.dumps(expected[name], sort_keys=True, separators=(',', ':')))
                 for name in sorted(expected)]
        out.write('{\n' + ',\n'.join(lines) + '\n}\n')


if __name__ == '__main__':
    sys.exit(main())
