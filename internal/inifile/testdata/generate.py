"""Writes expected.json: what Python's configparser makes of the files in cases.txt, which are separated by lines of ----.

Run it in this directory: python3 generate.py
"""
import configparser
import json


def read(text):
    parser = configparser.ConfigParser()
    try:
        parser.read_string(text)
        return {'sections': [{'name': s, 'keys': dict(parser.items(s))} for s in parser.sections()]}
    except configparser.Error as e:
        return {'error': type(e).__name__}


with open('cases.txt', newline='') as f:
    cases = f.read().split('----\n')
with open('expected.json', 'w') as f:
    json.dump([dict(text=c, **read(c)) for c in cases], f, indent=1)
    f.write('\n')
