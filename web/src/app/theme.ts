import {
  Checkbox,
  createTheme,
  defaultVariantColorsResolver,
  type CSSVariablesResolver,
  type MantineColorsTuple,
  type VariantColorsResolver,
} from '@mantine/core'

/** The accent of the page, from light to dark. The eighth is --accent of the light theme, the third that of the dark one. */
const lapwing: MantineColorsTuple = [
  '#e6f6f2',
  '#c9ebe2',
  '#5fd0b5',
  '#4bbda2',
  '#34a58b',
  '#218e76',
  '#147c66',
  '#0b6e5d',
  '#07574a',
  '#043f36',
]

/** Greys of the dark scheme, from text to the ground. */
const dark: MantineColorsTuple = [
  '#e4eeea',
  '#b9c8c2',
  '#9aada5',
  '#6d7f78',
  '#2f3d38',
  '#1f2a26',
  '#17211d',
  '#111916',
  '#0b110f',
  '#070b0a',
]

/** Text on a filled button and in an alert by the tokens: they keep their contrast in both schemes. */
const variants: VariantColorsResolver = (input) => {
  const colors = defaultVariantColorsResolver(input)
  if (input.variant === 'light' && input.color === 'yellow')
    return { ...colors, background: 'var(--warning-soft)', color: 'var(--warning)' }
  if (input.variant === 'light' && input.color === 'red') return { ...colors, background: 'var(--critical-soft)', color: 'var(--critical)' }
  if (input.variant !== 'filled') return colors
  const [background, color] = input.color === 'red' ? ['var(--critical)', 'var(--on-mark)'] : ['var(--accent)', 'var(--on-accent)']
  return { ...colors, background, color, hover: `color-mix(in srgb, ${background} 88%, ${color})` }
}

/** One scale of type and one of space for all screens; colours come from style/tokens.css. */
export const theme = createTheme({
  primaryColor: 'lapwing',
  colors: { lapwing, dark },
  primaryShade: { light: 7, dark: 2 },
  variantColorResolver: variants,
  components: { Checkbox: Checkbox.extend({ defaultProps: { radius: 'xs' } }) },
  fontFamily: 'var(--font)',
  fontFamilyMonospace: 'var(--mono)',
  headings: {
    fontFamily: 'var(--font)',
    fontWeight: '650',
    sizes: {
      h1: { fontSize: '20px', lineHeight: '1.3' },
      h2: { fontSize: '16px', lineHeight: '1.35' },
      h3: { fontSize: '14px', lineHeight: '1.4' },
    },
  },
  fontSizes: { xs: '12px', sm: '13px', md: '14px', lg: '16px', xl: '20px' },
  lineHeights: { xs: '1.35', sm: '1.4', md: '1.45', lg: '1.4', xl: '1.3' },
  spacing: { xs: '4px', sm: '8px', md: '12px', lg: '16px', xl: '24px' },
  radius: { xs: '4px', sm: '6px', md: '8px', lg: '12px', xl: '16px' },
  defaultRadius: 'md',
  cursorType: 'pointer',
  respectReducedMotion: true,
})

const shared = {
  '--mantine-color-body': 'var(--surface)',
  '--mantine-color-text': 'var(--text)',
  '--mantine-color-dimmed': 'var(--muted)',
  '--mantine-color-placeholder': 'var(--muted)',
  '--mantine-color-default': 'var(--surface)',
  '--mantine-color-default-hover': 'var(--hover)',
  '--mantine-color-default-color': 'var(--text)',
  '--mantine-color-default-border': 'var(--line)',
  '--mantine-color-error': 'var(--critical)',
  '--mantine-color-anchor': 'var(--accent)',
}

export const variables: CSSVariablesResolver = () => ({ variables: shared, light: shared, dark: shared })
