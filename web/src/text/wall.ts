import { text } from './index'

export const wallText = {
  title: 'Wall',
  open: text.now.open,
  clear: 'All clear',
  page: (page: number, pages: number) => `Page ${page} of ${pages}`,
  leave: 'Leave the wall',
  full: 'Full screen',
  onCall: 'On call',
}
