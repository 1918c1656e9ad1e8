"""Writes expected.json: what carbon 1.1.10 and whisper 1.1.10 make of the files beside this one.

Run it in this directory with a Python that has both installed: python generate.py
"""
import json
import os

from carbon.conf import settings

settings['CONF_DIR'] = os.getcwd()

from carbon import log, state, storage, util  # noqa: E402
import whisper  # noqa: E402

log.err = log.msg = lambda *a, **k: None


class Database:
    aggregationMethods = whisper.aggregationMethods

    @staticmethod
    def validateArchiveList(archives):
        try:
            whisper.validateArchiveList(archives)
        except whisper.InvalidConfiguration as e:
            raise ValueError(str(e))


state.database = Database
storage.STORAGE_SCHEMAS_CONFIG = 'schemas.conf'
storage.STORAGE_AGGREGATION_CONFIG = 'aggregation.conf'


def lines(path):
    with open(path) as f:
        return f.read().splitlines()


def retention(text):
    try:
        step, points = util.parseRetentionDef(text)
        return {'text': text, 'step': int(step), 'points': int(points)}
    except (ValueError, ZeroDivisionError) as e:
        return {'text': text, 'error': str(e)}


def valid(text):
    archives = [tuple(int(n) for n in a.split(':')) for a in text.split(',')]
    try:
        whisper.validateArchiveList(archives)
        return {'text': text, 'valid': True}
    except whisper.InvalidConfiguration as e:
        return {'text': text, 'valid': False, 'error': str(e)}


schemas, aggregation = storage.loadStorageSchemas(), storage.loadAggregationSchemas()


def match(name):
    schema = next(s for s in schemas if s.matches(name))
    factor, method = next(s for s in aggregation if s.matches(name)).archives
    return {'name': name, 'rule': schema.name, 'archives': sorted(a.getTuple() for a in schema.archives),
            'method': method or 'average', 'factor': 0.5 if factor is None else factor}


with open('expected.json', 'w') as f:
    json.dump({'names': [match(n) for n in lines('names.txt')],
               'retentions': [retention(t) for t in lines('retentions.txt')],
               'lists': [valid(t) for t in lines('lists.txt')]}, f, indent=1)
    f.write('\n')
