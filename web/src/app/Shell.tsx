import { ActionIcon, Menu, Select, UnstyledButton, useMantineColorScheme } from '@mantine/core'
import { spotlight } from '@mantine/spotlight'
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useLocation, useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useSyncExternalStore, type ReactNode } from 'react'
import { unwrap } from '../api/client'
import { definitionsKey, useDefinitionChanges } from '../live/definitions'
import { text } from '../text'
import { Icon, Logo } from '../widgets/icons'
import { Announcer } from './announce'
import { useApp } from './context'
import { KeyHelp } from './KeyHelp'
import { Palette } from './Palette'
import { places } from './places'
import { setPreferences, usePreferences } from './preferences'
import { useRights } from './rights'
import { everywhere } from './search'
import css from './Shell.module.css'

const groups = [...new Set(places.map((place) => place.group))]

export function Shell() {
  const { narrowNav } = usePreferences()
  useDefinitionChanges(everywhere)
  const bare = useLocation({ select: ({ pathname }) => pathname === '/wall' })
  if (bare) return <Outlet />
  return (
    <div className={css.shell}>
      <a href="#main" className={css.skip}>
        {text.skip}
      </a>
      <Header />
      <nav className={css.nav} data-narrow={narrowNav} aria-label={text.nav.title}>
        {groups.map((group) => (
          <div key={group} className={css.section}>
            <p className={css.group}>{group}</p>
            {places
              .filter((place) => place.group === group)
              .map((place) => (
                <Link
                  key={place.to}
                  to={place.to}
                  search={(all) => (all.ns === undefined ? {} : { ns: all.ns })}
                  className={`${css.link} ${place.secondary ? css.secondary : ''}`}
                  activeOptions={{ exact: place.to === '/', includeSearch: false }}
                  title={place.label}
                >
                  <Icon name={place.icon} size={18} />
                  <span className={css.label}>{place.label}</span>
                </Link>
              ))}
          </div>
        ))}
        <UnstyledButton className={`${css.link} ${css.more}`} onClick={spotlight.open}>
          <Icon name="more" size={18} />
          <span className={css.label}>{text.nav.more}</span>
        </UnstyledButton>
      </nav>
      <main className={css.main} id="main" tabIndex={-1}>
        <Outlet />
      </main>
      <Palette />
      <KeyHelp />
      <Announcer />
    </div>
  )
}

function Header() {
  const { session } = useApp()
  const { time, contrast, density, narrowNav } = usePreferences()
  const { colorScheme, setColorScheme } = useMantineColorScheme()
  const state = useSyncExternalStore(session.subscribe, () => session.state)
  return (
    <header className={css.header}>
      <ActionIcon
        variant="subtle"
        color="gray"
        visibleFrom="sm"
        aria-label={text.nav.toggle}
        onClick={() => setPreferences({ narrowNav: !narrowNav })}
      >
        <Icon name="menu" />
      </ActionIcon>
      <Link to="/" className={css.brand}>
        <Logo />
        <span className={css.label}>{text.name}</span>
      </Link>
      <NamespaceSelect />
      <span className={css.space} />
      <UnstyledButton className={css.find} title={text.palette.button} onClick={spotlight.open}>
        <Icon name="search" />
        <span>{text.palette.button}</span>
        <kbd>Ctrl K</kbd>
      </UnstyledButton>
      <Menu position="bottom-end" withinPortal>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="lg" aria-label={text.user.menu}>
            <Icon name="access" size={18} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {state.phase === 'in' && <Menu.Label>{text.signedInAs(state.user)}</Menu.Label>}
          <Choice label={text.user.theme} value={colorScheme} options={text.user.themes} onChange={(v) => setColorScheme(v as 'light')} />
          <Choice
            label={text.user.contrast}
            value={contrast}
            options={text.user.contrasts}
            onChange={(v) => setPreferences({ contrast: v as 'high' })}
          />
          <Choice
            label={text.user.density}
            value={density}
            options={text.user.densities}
            onChange={(v) => setPreferences({ density: v as 'compact' })}
          />
          <Choice label={text.user.time} value={time} options={text.user.times} onChange={(v) => setPreferences({ time: v as 'utc' })} />
          <Menu.Divider />
          <Menu.Item leftSection={<Icon name="out" />} onClick={() => void session.signOut()}>
            {text.signOut}
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </header>
  )
}

function Choice(props: { label: ReactNode; value: string; options: Record<string, string>; onChange: (value: string) => void }) {
  return (
    <>
      <Menu.Label>{props.label}</Menu.Label>
      {Object.entries(props.options).map(([value, label]) => (
        <Menu.Item
          key={value}
          role="menuitemradio"
          aria-checked={value === props.value}
          closeMenuOnClick={false}
          leftSection={value === props.value ? <Icon name="check" /> : <span className={css.noIcon} />}
          onClick={() => props.onChange(value)}
        >
          {label}
        </Menu.Item>
      ))}
    </>
  )
}

function NamespaceSelect() {
  const { api } = useApp()
  const navigate = useNavigate()
  const { ns = everywhere } = useSearch({ strict: false }) as { ns?: string }
  const namespaces = useQuery({
    queryKey: definitionsKey('namespaces'),
    queryFn: () => unwrap(api.GET('/api/core/v2/namespaces')),
    staleTime: 60_000,
  })
  const names = (namespaces.data ?? []).map((one) => one.name ?? '').filter((name) => name !== '')
  if (ns !== everywhere && !names.includes(ns)) names.push(ns)
  const { why } = useRights(everywhere)
  const only = namespaces.data?.length === 1 && ns === everywhere && why('list', 'events') !== undefined ? names[0] : undefined
  useEffect(() => {
    // A user with rights in one namespace begins there.
    if (only !== undefined) void navigate({ to: '.', search: (all: Record<string, unknown>) => ({ ...all, ns: only }), replace: true })
  }, [only, navigate])
  return (
    <Select
      aria-label={text.namespace}
      size="sm"
      w={180}
      searchable
      allowDeselect={false}
      value={ns}
      data={[{ value: everywhere, label: text.allNamespaces }, ...names.sort().map((name) => ({ value: name, label: name }))]}
      onChange={(value) => {
        void navigate({
          to: '.',
          search: (all: Record<string, unknown>) => ({ ...all, ns: value === everywhere ? undefined : (value ?? undefined) }),
        })
      }}
    />
  )
}
