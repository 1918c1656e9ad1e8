"""Records the answers of graphite-web 1.1.10 to a list of requests, as test data.

Use: GRAPHITE_STORAGE_DIR=EMPTY_DIR python record.py recorded.json

It runs graphite-web in this process through Django's test client. The clock stands at NOW.
"""
import base64
import json
import math
import os
import sys
import time
import types
import warnings

warnings.simplefilter('ignore')
storage = os.environ['GRAPHITE_STORAGE_DIR']
os.makedirs(os.path.join(storage, 'log', 'webapp'), exist_ok=True)
os.makedirs(os.path.join(storage, 'whisper'), exist_ok=True)
os.environ['DJANGO_SETTINGS_MODULE'] = 'graphite.settings'
os.environ['GRAPHITE_CONF_DIR'] = storage
NOW = 1700000400

import whisper

whisper.time = types.SimpleNamespace(time=lambda: NOW)

import django

django.setup()
from django.conf import settings
from django.core.management import call_command
from django.test import Client

settings.ALLOWED_HOSTS = ['*']
call_command('migrate', run_syncdb=True, verbosity=0)

import graphite.node
import graphite.readers.whisper as reader

reader.time = types.SimpleNamespace(time=lambda: NOW)

START, STEP, COUNT = 1700000000, 10, 40
SERIES = {
    'servers.h1.cpu.user': [float(i) for i in range(COUNT)],
    'servers.h1.cpu.system': [i / 7 for i in range(COUNT)],
    'servers.h2.cpu.user': [None if i % 3 == 0 else i * 1e15 for i in range(COUNT)],
    'servers.h2.cpu': [1.0] * COUNT,
    'servers.h2.load': [None] * COUNT,
    'servers.h3.load': [math.inf if i == 5 else -math.inf if i == 6 else 1e-7 * i for i in range(COUNT)],
    'servers.caf\u00e9.load': [0.1 * i for i in range(COUNT)],
    'a.b,c.d': [2.0] * COUNT,
    'top': [1e22, 1e16, 123456789.125, 5e-324, -0.0] + [3.5] * (COUNT - 5),
}
TAGGED = ['disk.used;dc=dc1;host=web01', 'disk.used;dc=dc2;host=web02', 'net.in;dc=dc1;host=web01;if=eth0']

for name, values in SERIES.items():
    path = os.path.join(storage, 'whisper', *name.split('.')) + '.wsp'
    os.makedirs(os.path.dirname(path), exist_ok=True)
    whisper.create(path, [(STEP, 1000)])
    points = [(START + i * STEP, v) for i, v in enumerate(values) if v is not None]
    if points:
        whisper.update_many(path, points)
    os.utime(path, (NOW, NOW))

client = Client(HTTP_HOST='127.0.0.1', raise_request_exception=False)
answers = []


def ask(method, path, params=(), accept=None, body=None, kind='application/x-www-form-urlencoded'):
    from urllib.parse import urlencode
    headers = {}
    if accept is not None:
        headers['HTTP_ACCEPT'] = accept
    query = urlencode(list(params))
    url = path
    if method == 'GET':
        url += ('?' + query) if query else ''
        response = client.generic('GET', url, **headers)
    else:
        data = body if body is not None else query
        response = client.generic(method, url, data.encode(), content_type=kind, **headers)
        body = data
    content = response.content
    answer = {'method': method, 'url': url, 'status': response.status_code,
              'type': response.get('Content-Type', ''), 'cache': response.get('Cache-Control', '')}
    if accept is not None:
        answer['accept'] = accept
    if method != 'GET':
        answer['body'], answer['bodyType'] = body, kind
    if response.status_code >= 500:
        answer['answer'] = ''
    else:
        try:
            answer['answer'] = content.decode()
        except UnicodeDecodeError:
            answer['answer64'] = base64.b64encode(content).decode()
    answers.append(answer)


for query in ('*', 'servers.*', 'servers.h2.*', 'servers.h2.cpu', 'servers.*.cpu.*', 'no.such', 'servers.h{1,3}',
              'servers.h[1-2].*', 'servers.h2.cpu*', 'a.b,c', 'servers', '', 'servers.'):
    for form in ('treejson', 'completer', 'json', 'nodelist', 'pickle', 'msgpack'):
        extra = [('position', 1)] if form == 'nodelist' else []
        if form == 'nodelist' and (query in ('*', 'servers', 'top') or '.' not in query):
            extra = [('position', 0)]
        ask('GET', '/metrics/find', [('query', query), ('format', form)] + extra)
    ask('GET', '/metrics', [('query', query), ('wildcards', 1)])
    ask('GET', '/metrics/find/', [('query', query), ('leavesOnly', 1)])
    ask('GET', '/metrics/find/', [('query', query), ('format', 'completer'), ('wildcards', 1)])
for query in ('ser', 'servers.h', 'servers..cpu', 'a.b,c', 'a.b,c.'):
    ask('GET', '/metrics/find', [('query', query), ('format', 'completer'), ('automatic_variants', 1)])
ask('GET', '/metrics/find')
ask('GET', '/metrics/find', [('query', 'servers.*'), ('format', 'xml')])
ask('GET', '/metrics/find', [('query', 'servers.*'), ('wildcards', 'x')])
ask('GET', '/metrics/find', [('query', 'servers.*'), ('from', 'gibberish')])
ask('GET', '/metrics/find', [('query', 'servers.*'), ('from', '-1'), ('until', '-1')])
ask('GET', '/metrics/find', [('query', 'servers.*'), ('jsonp', 'f')])
ask('GET', '/metrics/find', [('query', 'servers.*'), ('jsonp', 'f'), ('pretty', 1)])
ask('GET', '/metrics/find', [('query', 'no.such'), ('pretty', 1)])
ask('GET', '/metrics/find', [('query', 'servers.h2.*'), ('pretty', 1)])
ask('GET', '/metrics/find', [('query', 'servers.*')], accept='application/json')
ask('GET', '/metrics/find', [('query', 'servers.*')], accept='application/json, text/plain, */*')
ask('POST', '/metrics/find', [('query', 'servers.*')])
ask('POST', '/metrics/find/?query=servers.*', [('format', 'completer')])
ask('GET', '/metrics/expand', [('query', 'servers.*')])
ask('GET', '/metrics/expand/', [('query', 'servers.*'), ('query', 'servers.h1.cpu.*'), ('groupByExpr', 1)])
ask('GET', '/metrics/expand', [('query', 'servers.*.*'), ('leavesOnly', 1)])
ask('GET', '/metrics/expand', [('query', 'servers.*.*'), ('query', 'servers.*')])
ask('GET', '/metrics/expand')
ask('GET', '/metrics/expand', [('query', 'no.such'), ('groupByExpr', 1)])
ask('POST', '/metrics/expand', [('query', 'servers.*'), ('jsonp', 'g')])
ask('GET', '/metrics/index.json')
ask('GET', '/metrics/index.json', [('jsonp', 'cb'), ('pretty', 1)])
ask('GET', '/metrics/index.json', accept='text/html')

common = [('from', str(START - 1)), ('until', str(START + COUNT * STEP - 1)), ('now', str(NOW)), ('noCache', '1')]
short = [('from', str(START - 1)), ('until', str(START + 95)), ('now', str(NOW)), ('noCache', '1')]
for form in ('json', 'csv', 'raw', 'pickle', 'msgpack', 'dygraph', 'rickshaw'):
    for target in ('servers.h1.cpu.user', 'servers.h*.load', 'servers.caf\u00e9.load', 'servers.h2.cpu.user', 'no.such', 'top'):
        ask('GET', '/render', [('target', target), ('format', form)] + short)
    ask('GET', '/render', [('format', form)] + short)
    ask('GET', '/render', [('target', 'servers.h1.cpu.*'), ('target', 'top'), ('format', form), ('tz', 'Asia/Tokyo')] + short)
    ask('GET', '/render', [('target', 'servers.h1.cpu.user'), ('format', form), ('jsonp', 'f')] + short)
    ask('GET', '/render', [('target', 'servers.h1.cpu.user'), ('format', form), ('pretty', '1')] + short)
    ask('GET', '/render', [('target', 'servers.h1.cpu.user'), ('format', form), ('maxDataPoints', '7')] + short)
for n in ('1', '2', '3', '7', '10', '13', '20', '39', '40', '41', '1000', '0', '-1', 'x', ''):
    if n == '0':
        continue
    ask('GET', '/render', [('target', 'servers.h*.cpu.*'), ('format', 'json'), ('maxDataPoints', n)] + common)
for target in ('servers.h2.cpu.user', 'servers.*.load', 'servers.h2.load'):
    ask('GET', '/render', [('target', target), ('format', 'json'), ('noNullPoints', '0')] + common)
    ask('GET', '/render', [('target', target), ('format', 'json'), ('noNullPoints', ''), ('maxDataPoints', '5')] + common)
ask('GET', '/render/', [('target', 'top'), ('format', 'json'), ('pretty', '1')] + short)
ask('GET', '/render', [('target[]', 'top'), ('format', 'json')] + short)
ask('GET', '/render', [('target', 'top'), ('rawData', '1')] + short)
ask('GET', '/render', [('target', 'top'), ('rawData', '1'), ('format', 'json')] + short)
ask('POST', '/render', [('target', 'top'), ('format', 'json')] + short)
ask('POST', '/render?format=json', [('target', 'top')] + short)
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('from', str(START + 50)), ('until', str(START)), ('now', str(NOW)), ('noCache', '1')])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('from', str(START)), ('until', str(START)), ('now', str(NOW))])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('from', 'xyz')])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('graphType', 'tree')])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('xFilesFactor', 'b')])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('cacheTimeout', 'b')])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('tz', 'Mars/Base')] + short)
ask('GET', '/render', [('target', 'top'), ('format', 'json')] + [p for p in short if p[0] != 'noCache'])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('cacheTimeout', '0')] + [p for p in short if p[0] != 'noCache'])
ask('GET', '/render', [('target', 'top'), ('format', 'json'), ('cacheTimeout', '7')] + [p for p in short if p[0] != 'noCache'])
ask('GET', '/render', [('target', 'nosuchfunction(top)'), ('format', 'json')] + short)

ask('POST', '/tags/tagSeries', [('path', TAGGED[0])])
ask('POST', '/tags/tagMultiSeries', [('path', TAGGED[1]), ('path', TAGGED[2])])
ask('POST', '/tags/tagSeries', [('path', 'disk.used;host=web01;dc=dc1')])
ask('POST', '/tags/tagSeries', [('path', 'plain')])
ask('POST', '/tags/tagSeries', [])
ask('GET', '/tags/tagSeries', [('path', 'plain')])
ask('GET', '/tags/tagMultiSeries', [('path', 'plain')])
ask('GET', '/tags/delSeries', [('path', 'plain')])
ask('POST', '/tags/tagMultiSeries', [])
ask('POST', '/tags/delSeries', [])
ask('POST', '/tags/delSeries', [('path', 'plain')])
ask('GET', '/tags')
ask('GET', '/tags/')
ask('GET', '/tags', [('filter', '^d')])
ask('GET', '/tags', [('filter', 'os')])
ask('GET', '/tags', [('limit', '1')])
ask('GET', '/tags', [('pretty', '1')])
ask('POST', '/tags', [])
ask('GET', '/tags/dc')
ask('GET', '/tags/dc/')
ask('GET', '/tags/host', [('filter', 'web02')])
ask('GET', '/tags/host', [('limit', '1')])
ask('GET', '/tags/nosuch')
ask('GET', '/tags/findSeries', [('expr', 'dc=dc1')])
ask('POST', '/tags/findSeries', [('expr', 'dc=dc1'), ('expr', 'name=disk.used')])
ask('GET', '/tags/findSeries', [('expr[]', 'host=~web0.')])
ask('GET', '/tags/findSeries')
ask('GET', '/tags/findSeries', [('expr', 'dc!=dc1')])
ask('GET', '/tags/findSeries', [('expr', 'dc')])
ask('GET', '/tags/autoComplete/tags')
ask('GET', '/tags/autoComplete/tags', [('tagPrefix', 'h')])
ask('GET', '/tags/autoComplete/tags', [('expr', 'dc=dc1')])
ask('POST', '/tags/autoComplete/tags', [('expr', 'dc=dc1'), ('limit', '1')])
ask('GET', '/tags/autoComplete/values', [('tag', 'host')])
ask('GET', '/tags/autoComplete/values', [('tag', 'host'), ('valuePrefix', 'web01')])
ask('GET', '/tags/autoComplete/values', [('tag', 'host'), ('expr', 'dc=dc2')])
ask('GET', '/tags/autoComplete/values', [('expr', 'dc=dc2')])
ask('POST', '/tags/autoComplete/values', [('tag', 'name')])

events = [
    {'what': 'deploy', 'tags': 'web prod', 'data': 'v1', 'when': 1700000000},
    {'what': 'd\u00e9ploy', 'tags': ['web', 'dev'], 'data': 'v2', 'when': 1700000100},
    {'what': 'no tags', 'when': 1700000050},
    {'what': 'tags wrong', 'tags': 5},
]
for event in events:
    ask('POST', '/events/', body=json.dumps(event), kind='application/json')
ask('PUT', '/events/', body='{}', kind='application/json')
span = [('from', '1699999990'), ('until', '1700000200')]
ask('GET', '/events/get_data', span)
ask('GET', '/events/get_data', span + [('tags', 'web')])
ask('GET', '/events/get_data', span + [('tags', 'web prod')])
ask('GET', '/events/get_data', span + [('tags', 'web prod'), ('set', 'union')])
ask('GET', '/events/get_data', span + [('tags', 'dev prod'), ('set', 'union')])
ask('GET', '/events/get_data', span + [('tags', 'web nosuch'), ('set', 'intersection')])
ask('GET', '/events/get_data', span + [('tags', 'web nosuch')])
ask('GET', '/events/get_data', span + [('tags', '')])
ask('GET', '/events/get_data', span + [('jsonp', 'f')])
ask('GET', '/events/get_data', [('from', '1700000000'), ('until', '1700000050')])
ask('GET', '/events/get_data/', [('from', '1700000000'), ('until', '1700000050')])
ask('GET', '/events/1', accept='application/json')
ask('GET', '/events/1/', accept='application/json')
ask('GET', '/events/99', accept='application/json')
ask('GET', '/version')
ask('GET', '/version/')
ask('POST', '/functions', [])
ask('GET', '/functions/nosuch')
ask('GET', '/functions/sumSeries')
ask('GET', '/functions', [('type', 'pie')])
ask('GET', '/functions/absolute', [('pretty', '1')])
ask('GET', '/functions/removeAbovePercentile/')

# The requests of Grafana whose range is fixed. The functions work here: only their descriptions fail.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'grafana.json')) as f:
    for e in json.load(f):
        if e['method'] == 'POST' and ('from=16' in e['url'] + e['body']) and not e['url'].startswith('/events'):
            ask('POST', e['url'], body=e['body'] + '&now=%d' % NOW, accept=e.get('accept'), kind=e['type'])
for target in ('aliasSub(constantLine(100), "(^.*$)", "\\1 A")', "alias(sumSeries(servers.h*.cpu.user),'x y')",
               'servers.h1.cpu.user|scale(3)|alias("p")', 'movingAverage(servers.h1.cpu.user,3)',
               "summarize(servers.h1.cpu.user,'1min')", "consolidateBy(servers.h1.cpu.user,'max')",
               "template(servers.$host.cpu.user, host='h1')", 'threshold(5)', 'offset(', 'alias(top)', '', 'scale(top,"x")'):
    for n in ('3', '1000'):
        ask('POST', '/render', params=[('target', target), ('format', 'json'), ('maxDataPoints', n)] + common)

with open(sys.argv[1], 'w') as f:
    json.dump({
        'now': NOW, 'start': START, 'step': STEP, 'points': 1000,
        'series': {k: [None if v is None else repr(v) for v in vs] for k, vs in SERIES.items()},
        'tagged': TAGGED, 'answers': answers,
    }, f, indent=1, sort_keys=True)
    f.write('\n')
