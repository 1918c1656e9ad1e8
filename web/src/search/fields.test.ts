import { expect, test } from 'vitest'
import { entityLanguage, eventsOfEntities, expand, suggestFields, suggestValues, valueAt } from './fields'

test.each([
  ['status > 0', 'event.check.status > 0'],
  ['entity == web1 && check != disk', 'event.entity.name == web1 && event.check.name != disk'],
  ['entity == check', 'event.entity.name == check'],
  ['output =~ "status == 2"', 'event.check.output =~ "status == 2"'],
  ['check in [disk, cpu] || !(namespace notin [dev])', 'event.check.name in [disk, cpu] || !(event.namespace notin [dev])'],
  ['slack in handlers && linux in subscriptions', 'slack in event.check.handlers && linux in event.entity.subscriptions'],
  ['"status" in handlers', '"status" in event.check.handlers'],
  ['label.region == eu', 'event.labels.region == eu'],
  ['event.check.status == 2', 'event.check.status == 2'],
  ['entity matches web', 'event.entity.name matches web'],
  ['last_ok > 2h', 'event.check.last_ok > 2h'],
  ['entity == "a\\"b" && status == 1', 'event.entity.name == "a\\"b" && event.check.status == 1'],
  ['entity == "unfinished', 'event.entity.name == "unfinished'],
])('%s', (short, long) => {
  expect(expand(short)).toBe(long)
  expect(expand(long)).toBe(long)
})

test('names of fields', () => {
  expect(suggestFields('sta').map(({ text }) => text)).toEqual(['status == ', 'state == '])
  expect(suggestFields('status > 0 && che').map(({ text }) => text)).toEqual(['status > 0 && check == '])
  expect(suggestFields('la').map(({ text }) => text)).toEqual(['last_ok > ', 'label.'])
  expect(suggestFields('')).toEqual([])
  expect(suggestFields('web1 dis')).toEqual([])
})

test('values of a field', () => {
  expect(valueAt('status > 0 && check == di')).toMatchObject({ begin: 'di', before: 'status > 0 && check == ' })
  expect(valueAt('web')).toBeUndefined()
  expect(suggestValues('check == di', ['disk', 'a disk', 'cpu']).map(({ text }) => text)).toEqual(['check == disk', 'check == "a disk"'])
})

test.each([
  [
    'name == web1 && os == linux',
    'entity.name == web1 && entity.system.os == linux',
    'event.entity.name == web1 && event.entity.system.os == linux',
  ],
  ['"web" in subscriptions', '"web" in entity.subscriptions', '"web" in event.entity.subscriptions'],
  ['label.region == eu', 'entity.labels.region == eu', 'event.entity.labels.region == eu'],
  ['entity.user == "entity.name"', 'entity.user == "entity.name"', 'event.entity.user == "entity.name"'],
])('%s, of entities', (short, long, ofEvents) => {
  expect(expand(short, entityLanguage)).toBe(long)
  expect(expand(short, eventsOfEntities)).toBe(ofEvents)
  expect(expand(long, eventsOfEntities)).toBe(ofEvents)
})

test('names of fields of entities', () => {
  expect(suggestFields('l', entityLanguage).map(({ text }) => text)).toEqual(['last_seen > ', 'label.'])
  expect(suggestFields('sub', entityLanguage).map(({ text }) => text)).toEqual([' in subscriptions'])
})
