// Package attack runs attacks that once worked against a running backend, beside a healthy agent, and prints what became of
// them as a table: the agent's events, the API's latency and the backend's memory while each attack ran.
//
// It is behind the build tag "attack" (`make attack`), because it takes minutes and its figures mean something only on a
// machine that does nothing else. The same attacks are in the ordinary tests of the parts that refuse them, which count
// and do not time. LAPWING_ATTACK_BINARY names another binary to attack, such as the last release.
package attack
