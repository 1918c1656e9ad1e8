import { lazy, Suspense, type ComponentProps } from 'react'

const Lazy = lazy(() => import('./DefinitionEditor'))

/** The editor of definitions. Its libraries are loaded when it is opened first. */
export function DefinitionEditor(props: ComponentProps<typeof Lazy>) {
  return (
    <Suspense fallback={null}>
      <Lazy {...props} />
    </Suspense>
  )
}
