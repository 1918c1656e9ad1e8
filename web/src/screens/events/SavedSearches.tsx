import { ActionIcon, Button, Group, Menu, Popover, Stack, Text, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useState } from 'react'
import { setPreferences, usePreferences } from '../../app/preferences'
import { text } from '../../text'
import { Icon } from '../../widgets/icons'
import type { EventsSearch } from './search'

const t = text.saved

interface Props {
  /** What the list shows now. */
  current: EventsSearch
  onOpen: (search: EventsSearch) => void
}

/** Searches that the user keeps in this browser. */
export function SavedSearches({ current, onOpen }: Props) {
  const { searches } = usePreferences()
  const [saving, { open, close }] = useDisclosure()
  const [name, setName] = useState('')
  const save = () => {
    const { event: _, ...kept } = current
    setPreferences({ searches: [...searches.filter((one) => one.name !== name), { name, search: kept }] })
    setName('')
    close()
  }
  return (
    <Popover opened={saving} onChange={(to) => !to && close()} trapFocus position="bottom-end" withinPortal>
      <Menu position="bottom-end" withinPortal>
        <Popover.Target>
          <Menu.Target>
            <ActionIcon variant="default" size="lg" aria-label={t.title} title={t.title}>
              <Icon name="star" />
            </ActionIcon>
          </Menu.Target>
        </Popover.Target>
        <Menu.Dropdown>
          <Menu.Label>{t.title}</Menu.Label>
          {searches.length === 0 && <Menu.Item disabled>{t.none}</Menu.Item>}
          {searches.map((one) => (
            <Group key={one.name} gap={2} wrap="nowrap">
              <Menu.Item onClick={() => onOpen(one.search)}>{one.name}</Menu.Item>
              <ActionIcon
                variant="subtle"
                color="gray"
                aria-label={t.remove(one.name)}
                onClick={() => setPreferences({ searches: searches.filter((other) => other !== one) })}
              >
                <Icon name="close" />
              </ActionIcon>
            </Group>
          ))}
          <Menu.Divider />
          <Menu.Item onClick={open}>{t.save}</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Popover.Dropdown>
        <form
          onSubmit={(event) => {
            event.preventDefault()
            save()
          }}
        >
          <Stack gap="sm">
            <TextInput label={t.name} value={name} onChange={(event) => setName(event.currentTarget.value)} required data-autofocus />
            <Text size="xs" c="dimmed">
              {t.help}
            </Text>
            <Button type="submit" size="xs" disabled={name.trim() === ''}>
              {text.save}
            </Button>
          </Stack>
        </form>
      </Popover.Dropdown>
    </Popover>
  )
}
