import { text } from './index'

export const metricChartsText = {
  title: 'Metrics',
  count: (shown: number, all: number) => (shown === all ? '' : `${text.number(shown)} of ${text.number(all)} metrics`),
  choose: 'Choose metrics',
  first: 'Show the first metrics',
  some: (shown: number, all: number) => `${text.number(shown)} of ${text.number(all)} series`,
  explore: 'Explore',
  exploreOne: (name: string) => `Explore ${name}`,
  nothing: 'No values in this time.',
  chart: (name: string) => `${name} over time`,
}
