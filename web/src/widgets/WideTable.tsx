import { Table } from '@mantine/core'
import type { ReactNode } from 'react'

/** Scrolls a table sideways on a narrow window, also by keys. */
export function WideTable({ minWidth, children }: { minWidth: number; children: ReactNode }) {
  return (
    <Table.ScrollContainer minWidth={minWidth} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
      {children}
    </Table.ScrollContainer>
  )
}
