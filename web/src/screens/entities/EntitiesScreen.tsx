import { Button, Drawer, Group, SegmentedControl, Select } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import { getRouteApi } from '@tanstack/react-router'
import { useState } from 'react'
import { useAnnounce } from '../../app/announce'
import { everywhere } from '../../app/search'
import { entityKeyOf, type EntityList } from '../../live/entity-list'
import { entityLanguage, eventsOfEntities } from '../../search/fields'
import { parseQuery } from '../../search/query'
import { text } from '../../text'
import { entitiesText as t } from '../../text/entities'
import { EmptyState } from '../../widgets/EmptyState'
import { LiveBadge } from '../../widgets/LiveBadge'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import { FirstEvents } from '../events/FirstEvents'
import { useLabels } from '../events/use-labels'
import { useSuggestions } from '../events/use-suggestions'
import css from './EntitiesScreen.module.css'
import { EntityBulk, type Target } from './EntityBulk'
import { EntityDetail } from './EntityDetail'
import { EntityGroups } from './EntityGroups'
import { EntityRows } from './EntityRows'
import { Facets, titleOf } from './Facets'
import { FleetMap } from './FleetMap'
import { toggled, type Change } from './search'
import { useEntityList, useEntityMap } from './use-entities'

const route = getRouteApi('/entities')

const facetKeys = ['os', 'version', 'subscription', 'backend', 'class']
/** Keys of facets that the server takes. */
const mostFacets = 10

/** All entities that a search finds: as a list, by group, or as a map. */
export function EntitiesScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: Change) => {
    // Going back undoes a choice, and closes the detail; it does not go through what was typed or stepped over.
    const choice = !('q' in part) && !('entity' in part && search.entity !== undefined)
    void navigate({ search: (all) => ({ ...all, ...part }), replace: !choice })
  }
  const namespace = search.ns ?? everywhere
  const { selector } = parseQuery(search.q ?? '', entityLanguage)
  const condition = parseQuery(search.q ?? '', eventsOfEntities).selector
  const { agent = '', worst = '', backend = '', group = '', sort = 'state' } = search
  const selected = { namespace, selector, agent, worst, backend }
  const suggest = useSuggestions(namespace, 'entities')
  const labels = useLabels(namespace)
  const facets = [
    ...facetKeys,
    ...(namespace === everywhere ? ['namespace'] : []),
    ...(search.facet === undefined ? [] : [`label:${search.facet}`]),
    ...labels.filter((key) => key !== search.facet).map((key) => `label:${key}`),
  ].slice(0, mostFacets)
  const onMap = search.view === 'map'
  const list = useEntityList({ ...selected, sort, groupBy: onMap ? '' : group, facets: facets.join(',') })
  const map = useEntityMap(selected, group, onMap)
  useAnnounce(list.ready ? t.count(list.counts.total) : undefined)
  const [picked, setPicked] = useState<ReadonlySet<string> | 'all'>(new Set())
  const asked = JSON.stringify(selected)
  const [before, setBefore] = useState(asked)
  if (asked !== before) {
    // what was selected is of another list
    setBefore(asked)
    setPicked(new Set())
  }
  const [drawer, setDrawer] = useState(false)
  const room = useMediaQuery('(min-width: 1100px)', true, { getInitialValueInEffect: false })
  const beside = room && search.entity === undefined
  const filtered = search.q !== undefined || agent !== '' || worst !== '' || backend !== ''
  const refused = refusalOf(list)
  const side = <Facets list={list} search={search} labels={labels} onChange={change} />
  const target: Target | undefined =
    picked === 'all'
      ? { kind: 'matching', selected, condition, total: list.counts.total }
      : picked.size > 0
        ? { kind: 'picked', keys: [...picked] }
        : undefined
  const groupKeys = [...Object.keys(t.groups), ...labels.map((key) => `label:${key}`)]
  if (group !== '' && !groupKeys.includes(group)) groupKeys.push(group)
  return (
    <Screen
      title={t.title}
      flush
      bar={
        <>
          <SearchBox
            value={search.q ?? ''}
            onChange={(q) => change({ q: q === '' ? undefined : q })}
            placeholder={t.searchHint}
            {...suggest}
          />
          <Group gap="sm">
            {!beside && (
              <Button size="xs" variant="default" onClick={() => setDrawer(true)}>
                {t.facets}
              </Button>
            )}
            <SegmentedControl
              size="xs"
              aria-label={t.view}
              data={t.views}
              value={onMap ? 'map' : 'list'}
              onChange={(view) => change({ view: view === 'map' ? view : undefined })}
            />
            <Select
              size="xs"
              w={150}
              aria-label={t.group}
              value={group}
              allowDeselect={false}
              data={[{ value: '', label: t.noGroups }, ...groupKeys.map((key) => ({ value: key, label: titleOf(key) }))]}
              onChange={(to) => change({ group: to || undefined })}
            />
            {onMap ? (
              <SegmentedControl
                size="xs"
                aria-label={t.zoom}
                data={t.zooms}
                value={search.zoom ?? 'fit'}
                onChange={(zoom) => change({ zoom: zoom === 'fit' ? undefined : zoom })}
              />
            ) : (
              <Select
                size="xs"
                w={165}
                aria-label={t.sort}
                data={t.sorts}
                value={sort}
                allowDeselect={false}
                onChange={(to) => change({ sort: to === 'state' ? undefined : (to ?? undefined) })}
              />
            )}
          </Group>
          <Space />
          <LiveBadge state={list.state} ready={list.ready} />
          <span className={css.count}>{t.count(list.counts.total)}</span>
        </>
      }
      detail={
        search.entity !== undefined && (
          <EntityDetail
            target={search.entity}
            onClose={() => change({ entity: undefined })}
            onStep={onMap || group !== '' ? undefined : (by) => step(list, search.entity, by, (entity) => change({ entity }))}
          />
        )
      }
    >
      <div className={css.body}>
        {beside && refused === undefined && (
          <div className={css.side} role="group" aria-label={t.facets}>
            {side}
          </div>
        )}
        <Drawer
          opened={drawer && !beside}
          onClose={() => setDrawer(false)}
          title={t.facets}
          size="xs"
          closeButtonProps={{ 'aria-label': text.close }}
        >
          {side}
        </Drawer>
        <div className={css.main}>
          {refused ??
            (list.ready && list.counts.total === 0 ? (
              filtered ? (
                <EmptyState title={text.nothingMatches} help={t.nothingHelp} />
              ) : (
                <FirstEvents namespace={namespace} />
              )
            ) : onMap ? (
              <QueryView query={map}>
                {(found) => (
                  <>
                    {(found.groups ?? []).some((one) => one.worst === undefined) && <p className={css.skew}>{t.blind}</p>}
                    <FleetMap
                      map={found}
                      zoom={search.zoom}
                      titled={group !== '' || (found.groups ?? []).length > 1}
                      namespaces={namespace === everywhere}
                      titleOf={(value) => (group === '' ? '' : value === '' ? t.without : value)}
                      selected={search.entity}
                      onOpen={(entity) => change({ entity })}
                    />
                  </>
                )}
              </QueryView>
            ) : group !== '' ? (
              <EntityGroups
                list={list}
                by={group}
                onOpen={(value) => toggled(search, group, value) && change({ group: undefined, ...toggled(search, group, value) })}
                can={(value) => toggled(search, group, value) !== undefined}
              />
            ) : (
              <EntityRows
                list={list}
                namespaces={namespace === everywhere}
                sort={sort === 'state' ? undefined : sort}
                onSort={(to) => change({ sort: to })}
                selected={search.entity}
                onOpen={(entity) => change({ entity })}
                picked={picked}
                onPick={setPicked}
              />
            ))}
          {target && (
            <EntityBulk
              target={target}
              matching={list.counts.total}
              labels={labels}
              onAll={() => setPicked('all')}
              onClear={() => setPicked(new Set())}
            />
          )}
        </div>
      </div>
    </Screen>
  )
}

/** Why there is no list; undefined if there is one. */
function refusalOf(list: EntityList) {
  if (list.failed !== undefined) return <EmptyState title={text.list.failed} help={list.failed} />
  if (list.state.phase !== 'denied') return undefined
  const { status, reason } = list.state
  if (status === 400) return <EmptyState title={text.unreadable} help={reason} />
  return <EmptyState title={text.noAccess} help={status === 403 ? text.noAccessHelp('list', 'entities') : reason} />
}

/** Opens the row that is so many places from the open one. */
function step(list: EntityList, from: string | undefined, by: number, open: (key: string) => void): void {
  const place = from === undefined ? -1 : list.placeOf(from)
  const row = list.at(place === undefined ? 0 : place + by)
  if (row) open(entityKeyOf(row))
}
