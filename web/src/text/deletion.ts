import { text } from './index'

export const deletionText = {
  title: (name: string) => `Delete ${name}`,
  asking: 'Asking the server what would happen…',
  fine: 'The server would delete it.',
  referrers: (n: number) =>
    n === 1 ? '1 definition names it and would lose it:' : `${text.number(n)} definitions name it and would lose it:`,
  none: 'No definition that you may see names it.',
  more: (n: number) => `and ${text.number(n)} more`,
  done: (name: string) => `${name} is deleted.`,
}
