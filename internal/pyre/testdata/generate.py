"""Writes expected.json: what Python's re module makes of the cases below.

Run it in this directory: python3 generate.py
"""
import json
import re
import warnings

warnings.simplefilter('ignore')

PATTERNS = [
    r'', r'a', r'^a', r'a$', r'^a\.b$', r'a|b', r'a*', r'a+', r'(a)(b)?', r'(?P<x>a)\.(?P<y>b+)', r'\.', r'[.]', r'[^.]+',
    r'[[]', r'[]]', r'[^]]', r'[]a]', r'[[:alpha:]]', r'[a-z[]+', r'x{,2}$', r'x{2,}', r'x{1,3}?', r'x{2}', r'x{', r'x{a}', r'{,2}x', r'x{,}',
    r'\Aa', r'b\Z', r'[\Z]', r'\bserver\b', r'\d+', r'\w+', r'\s', r'\D', r'\W', r'(?i)SERVER', r'(?:a|b)c', r'(?=a)', r'a(?!b)',
    r'(?<=a)b', r'(?<!a)b', r'(a|b)\1', r'(?P<q>.)(?P=q)', r'(?P<q>.)(?P=q', r'(?#comment)a', r'(a)?(?(1)b|c)', r'(', r')', r'[', r'a**', r'*a', r'+',
    r'(?P<x>a)(?P<x>b)', r'(?P<1>a)', r'(?P<>a)', r'a{3,2}', r'[z-a]', r'\\', 'a\\', r'^servers\.(?P<host>[^.]+)\.cpu\.(?P<what>.+)$',
    r'_+', r'\b', r'$', r'^', r'^(.*)$', r'(.*)', r'(.*?)', r'(|a)', r'(a|)', r'(?m)^', r'\Ba', r'x*?', r'é', r'[é]+', r'.', r'..', r'(a)|(b)|(c)',
    r'(?:(a)|b)*', r'((a)|b)+', r'^.*?\.', r'\.(?=[^.]*$)', r'(?x) a b # c', r'(?s).', r'\u0061', r'\x61', r'\141', r'(a)\01',
    r'(?>a+)b', r'x{0}', r'()', r'(?i:A)b',
]
TEXTS = [
    '', 'a', 'b', 'ab', 'ba', 'aa', 'aab', 'abc', 'bcc', 'a.b', 'a.bbb.c', 'server', 'my-server.x', 'observer', 'servers.web1.cpu.total.idle',
    'xx', 'xxxxx', 'x{', 'x{a}', '{,2}x', 'x{,}', 'a[b]c', ':', 'lp', ']', 'a b', 'Z', 'é', 'aéb', 'a__b___c', 'A', 'Ab', 'c', '1234', '\\', 'axb', 'ac',
]
TEMPLATES = [
    '', '-', r'<\g<0>>', r'\1', r'\2', r'[\1|\2]', r'\g<1>', r'\g<x>', r'\g<host>.\g<what>', r'\g<nosuch>', r'\g<9>', r'\g', r'\g<', r'\g<>', r'\g<1',
    r'\g<-1>', r'\n', r'\.', r'\_', r'\d', r'\0', r'\07', r'\012', r'\141', r'\400', r'\18', r'\10', '\\', r'\\', r'\\1', r'$1', r'\é', r'\g<01>',
    r'\t\a\b\f\r\v', r'\g<q>', r'\g<x y>', r'\08', r'\1111',
]


def compiled(pattern):
    try:
        return re.compile(pattern)
    except (re.error, OverflowError):
        return None


out = []
for p in PATTERNS:
    r = compiled(p)
    case = {'pattern': p, 'valid': r is not None}
    if r is not None:
        case['found'] = [list(sum((m.span(i) for i in range(r.groups + 1)), ())) if (m := r.search(t)) else None for t in TEXTS]
        case['dashes'] = [r.sub('-', t) for t in TEXTS]
        case['braces'] = [r.sub(r'<\g<0>>', t) for t in TEXTS]
    out.append(case)

subs = []
for p in [r'a', r'(a)(b)?', r'(?P<x>a)\.(?P<y>b+)', r'^servers\.(?P<host>[^.]+)\.cpu\.(?P<what>.+)$', r'(?P<q>.)(?P=q)']:
    for t in TEMPLATES:
        for text in ['a', 'xaby', 'a.bb', 'servers.web1.cpu.total.idle', 'aab']:
            r = re.compile(p)
            if not r.search(text):
                continue
            try:
                subs.append({'pattern': p, 'template': t, 'text': text, 'valid': True, 'result': r.sub(t, text)})
            except (re.error, IndexError) as e:
                subs.append({'pattern': p, 'template': t, 'text': text, 'valid': False, 'error': str(e)})

with open('expected.json', 'w') as f:
    f.write('{"texts": ' + json.dumps(TEXTS) + ',\n"patterns": [\n' + ',\n'.join(json.dumps(c) for c in out) + '\n],\n"substitutions": [\n'
            + ',\n'.join(json.dumps(s) for s in subs) + '\n]}\n')
