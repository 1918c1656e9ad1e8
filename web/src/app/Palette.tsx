import { spotlight, Spotlight, type SpotlightActionData, type SpotlightActionGroupData } from '@mantine/spotlight'
import { useDebouncedValue, useHotkeys } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { unwrap } from '../api/client'
import { entityKeyOf } from '../live/entity-list'
import { keyOf } from '../live/event-list'
import { entityLanguage } from '../search/fields'
import { isSelector, parseQuery } from '../search/query'
import { text } from '../text'
import { Icon, markOf, StatusMark } from '../widgets/icons'
import { isCovered } from '../widgets/use-keys'
import { useApp } from './context'
import { places } from './places'
import { everywhere } from './search'
import { useDefinitionsNamed } from './use-definitions-named'

/** Events, entities and definitions of a kind that the palette offers at most. */
const offered = 8

/** Goes to a screen, to an event whose entity or check has the typed words in its name, or to such an entity or definition. */
export function Palette() {
  const { api } = useApp()
  const navigate = useNavigate()
  const { ns = everywhere } = useSearch({ strict: false }) as { ns?: string }
  const [typed, setTyped] = useState('')
  const [words] = useDebouncedValue(typed.trim(), 200)
  const wanted = words.length > 1 && !isSelector(words)
  const events = useQuery({
    queryKey: ['palette', ns, words],
    enabled: wanted,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
          params: { path: { namespace: ns }, query: { fieldSelector: parseQuery(words).selector, limit: offered } },
        }),
      ),
  })
  const entities = useQuery({
    queryKey: ['palette-entities', ns, words],
    enabled: wanted,
    retry: false,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/view', {
          params: {
            path: { namespace: ns },
            query: { fieldSelector: parseQuery(words, entityLanguage).selector, sort: 'name', limit: offered },
          },
        }),
      ),
  })
  const defined = useDefinitionsNamed(words, ns, wanted, offered)
  const screens: SpotlightActionData[] = places.map((place) => ({
    id: place.to,
    label: place.label,
    leftSection: <Icon name={place.icon} size={18} />,
    onClick: () => void navigate({ to: place.to, search: (all) => (all.ns === undefined ? {} : { ns: all.ns }) }),
  }))
  const noScreen = !places.some(({ label }) => label.toLowerCase().includes(words.toLowerCase()))
  const found: SpotlightActionData[] = (wanted ? (events.data?.rows ?? []) : []).map((row) => ({
    id: keyOf(row),
    label: `${row.entity} · ${row.check}`,
    description: row.output,
    keywords: words, // the server has searched already
    leftSection: <StatusMark mark={markOf(row.status)} />,
    onClick: () =>
      void navigate({ to: '/events', search: (all) => ({ ...(all.ns === undefined ? {} : { ns: all.ns }), event: keyOf(row) }) }),
  }))
  const hosts: SpotlightActionData[] = (wanted ? (entities.data?.rows ?? []) : []).map((row) => ({
    id: `entity ${entityKeyOf(row)}`,
    label: row.name,
    description: [row.namespace, row.platform || row.os].filter((part) => part !== '').join(' · '),
    keywords: words,
    leftSection: <Icon name="entities" size={18} />,
    onClick: () =>
      void navigate({ to: '/entities', search: (all) => ({ ...(all.ns === undefined ? {} : { ns: all.ns }), entity: entityKeyOf(row) }) }),
  }))
  const definitions: SpotlightActionData[] = (wanted ? defined.found : []).map(({ kind, namespace, name }) => {
    const key = `${namespace}/${name}`
    return {
      id: `${kind.role} ${key}`,
      label: name,
      description: [text.palette.kinds[kind.role] ?? kind.role, namespace].filter((part) => part !== '').join(' · '),
      keywords: words,
      leftSection: <Icon name={kind.role === 'checks' ? 'checks' : 'config'} size={18} />,
      onClick: () =>
        void (kind.role === 'checks'
          ? navigate({ to: '/checks', search: (all) => ({ ...(all.ns === undefined ? {} : { ns: all.ns }), check: key }) })
          : navigate({
              to: '/config',
              search: (all) => ({ ...(all.ns === undefined ? {} : { ns: all.ns }), kind: kind.role, open: key }),
            })),
    }
  })
  // The palette selects the first one when a key is pressed, which is before the answers. Only when all have come is it known
  // what Enter should open.
  const [first] = [...found, ...hosts, ...definitions]
  if (first && noScreen && defined.answered && !events.isLoading && !entities.isLoading) Object.assign(first, { 'data-selected': true })
  const groups: SpotlightActionGroupData[] = [
    { group: text.palette.screens, actions: screens },
    ...(found.length > 0 ? [{ group: text.events, actions: found }] : []),
    ...(hosts.length > 0 ? [{ group: text.nav.entities, actions: hosts }] : []),
    ...(definitions.length > 0 ? [{ group: text.palette.definitions, actions: definitions }] : []),
  ]
  // From texts too, and not over a dialog.
  useHotkeys([['mod + K', () => !isCovered() && spotlight.open()]], [])
  return (
    <Spotlight
      actions={groups}
      query={typed}
      onQueryChange={setTyped}
      nothingFound={text.palette.nothing}
      highlightQuery
      scrollable
      transitionProps={{ duration: 0 }}
      maxHeight={420}
      shortcut={null}
      searchProps={{
        leftSection: <Icon name="search" size={18} />,
        placeholder: text.palette.placeholder,
        'aria-label': text.palette.placeholder,
      }}
    />
  )
}
