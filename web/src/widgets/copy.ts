/** Copies text. Backends are often reached over plain HTTP, where browsers offer no navigator.clipboard. */
export async function copyText(value: string): Promise<boolean> {
  try {
    if (window.isSecureContext) {
      await navigator.clipboard.writeText(value)
      return true
    }
  } catch {
    // Permission denied: the old way may still work.
  }
  const focused = document.activeElement
  const area = document.createElement('textarea')
  area.value = value
  area.className = 'visually-hidden'
  document.body.append(area)
  area.select()
  const done = document.execCommand('copy')
  area.remove()
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true })
  return done
}
