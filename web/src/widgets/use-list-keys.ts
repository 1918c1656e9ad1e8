import { useHotkeys, type HotkeyItem } from '@mantine/hooks'

/** Keys of a list. They do nothing while a dialog or the palette is open: what is typed is meant for that. */
export function useListKeys(keys: HotkeyItem[]): void {
  useHotkeys(
    keys.map(([key, act, options]): HotkeyItem => {
      const unlessOpen: typeof act = (event) => {
        if (document.querySelector('[role=dialog], .mantine-Spotlight-content') === null) act(event)
      }
      return options === undefined ? [key, unlessOpen] : [key, unlessOpen, options]
    }),
  )
}
