import type { components } from './schema'

// The API's types, by the names that this page calls them. The backend leaves out what is empty, and null and absent mean
// the same.
type Schemas = components['schemas']

export type BulkReport = Schemas['BulkReport']
export type BulkRequest = Schemas['BulkRequest']
export type Check = Schemas['Check']
export type CheckHistory = Schemas['CheckHistory']
export type Entity = Schemas['Entity']
export type EventCounts = Schemas['EventCounts']
export type EventGroup = Schemas['EventGroup']
export type EventRow = Schemas['EventRow']
export type EventWindow = Schemas['EventWindow']
export type Namespace = Schemas['Namespace']
export type PageSession = Schemas['PageSession']
export type Refusal = Schemas['Error']
export type SensuEvent = Schemas['Event']
export type SignInOption = Schemas['SignInOption']
export type Delivery = Schemas['Delivery']
export type Notification = Schemas['Notification']
export type Outcome = Schemas['Outcome']
export type SilencePreview = Schemas['SilencePreview']
export type StateChange = Schemas['StateChange']
export type ObjectMeta = Schemas['ObjectMeta']
export type RightsAnswer = Schemas['RightsAnswer']
export type Silenced = Schemas['Silenced']
