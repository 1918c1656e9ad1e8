import type { components } from './schema'

// The API's types, by the names that this page calls them. The backend leaves out what is empty, and null and absent mean
// the same.
type Schemas = components['schemas']

export type Check = Schemas['Check']
export type CheckHistory = Schemas['CheckHistory']
export type Namespace = Schemas['Namespace']
export type Refusal = Schemas['Error']
export type SensuEvent = Schemas['Event']
export type SignInOption = Schemas['SignInOption']
export type Tokens = Schemas['Tokens']
