// Package attack runs attacks that once worked against a running backend, beside a healthy agent, and prints their
// effects as a table: the agent's events, the API's latency and the backend's memory during each attack. `make attack`
// runs it.
//
// It is behind the build tag "attack", because it takes minutes and its figures mean something only on an otherwise
// idle machine. The same attacks are in the ordinary tests of the parts that refuse them, which count and do not time.
// LAPWING_ATTACK_BINARY names another binary to attack, for example the last release.
package attack
