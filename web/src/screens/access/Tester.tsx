import { Autocomplete, Select, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { definitionsKey } from '../../live/definitions'
import { accessText } from '../../text/access'
import { Facts, list } from '../../widgets/Facts'
import { StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Panel } from '../../widgets/Screen'
import css from './AccessScreen.module.css'
import type { ViewProps } from './view'
import { useUsers } from './use-access'

const t = accessText.test

type Verb = 'get' | 'list' | 'create' | 'update' | 'delete'

const verbs: Verb[] = ['get', 'list', 'create', 'update', 'delete']

const resources = [
  ...new Set([
    ...Object.values(kinds).map(({ role }) => role),
    'events',
    'namespaces',
    'users',
    'apikeys',
    'authproviders',
    'audit',
    'cluster',
    'deadletters',
  ]),
].sort()

/** Asks whether a user may do something, and by which binding. */
export function Tester({ search, namespace, change, frame }: ViewProps) {
  const { api } = useApp()
  const users = useUsers()
  const { user = '', resource = 'checks', name = '' } = search
  const verb = verbs.find((one) => one === search.verb) ?? 'get'
  const [asked] = useDebouncedValue(`${user}\n${name}`, 300)
  const [as = '', named = ''] = asked.split('\n')
  const query = useQuery({
    queryKey: definitionsKey('rolebindings', 'can-i', namespace, verb, resource, as, named),
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/auth/can-i', {
          params: {
            query: {
              verb,
              resource,
              ...(named === '' ? {} : { name: named }),
              ...(as === '' ? {} : { as }),
              ...(namespace === everywhere ? {} : { namespace }),
            },
          },
        }),
      ),
    placeholderData: (old) => old,
    staleTime: 0,
    retry: false,
  })
  return frame({
    flush: false,
    children: (
      <div className={css.test}>
        <Text size="sm">{t.help}</Text>
        <div className={css.fields}>
          <Autocomplete
            label={t.user}
            description={t.userHelp}
            value={user}
            onChange={(value) => change({ user: value || undefined })}
            data={(users.data ?? []).map(({ username = '' }) => username)}
          />
          <Select
            label={t.verb}
            description={t.verbHelp}
            value={verb}
            data={verbs}
            allowDeselect={false}
            onChange={(value) => change({ verb: value ?? undefined })}
          />
          <Select
            label={t.resource}
            description={t.resourceHelp}
            searchable
            value={resource}
            data={resources.includes(resource) ? resources : [...resources, resource]}
            allowDeselect={false}
            onChange={(value) => change({ resource: value ?? undefined })}
          />
          <TextInput
            label={t.name}
            description={t.nameHelp}
            value={name}
            onChange={(event) => change({ name: event.currentTarget.value || undefined })}
          />
        </div>
        <Panel>
          <div role="status" aria-live="polite">
            <QueryView query={query} rows={2}>
              {(answer) => (
                <>
                  <p className={css.answer}>
                    <StatusMark mark={answer.allowed ? 'ok' : 'critical'} />
                    {(answer.allowed ? t.yes : t.no)(answer.user, verb, resource, named, answer.namespace)}
                  </p>
                  <Facts
                    facts={[
                      [
                        t.binding,
                        answer.binding &&
                          [`${answer.binding.type} ${answer.binding.name}`, answer.binding.namespace].filter(Boolean).join(' · '),
                      ],
                      [t.role, answer.role && `${answer.role.type} ${answer.role.name}`],
                      [t.groupsOf, list(answer.groups)],
                      [t.labels, list(answer.label_selectors)],
                      [t.note, [answer.note, answer.unknown && t.unknown].filter(Boolean).join(' ')],
                    ]}
                  />
                </>
              )}
            </QueryView>
          </div>
        </Panel>
      </div>
    ),
  })
}
