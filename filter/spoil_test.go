package filter

import "testing"

// TestSpoilOf has usual scripts, which keep their runtime, and others, which do not.
func TestSpoilOf(t *testing.T) {
	for source, spoils := range map[string]bool{
		`event.check.occurrences == 1 || event.check.occurrences % (3600 / event.check.interval) == 0`:                            false,
		`event.entity.labels["region"] == "eu" && hour(event.timestamp) >= 9`:                                                     false,
		`event.check.history.slice(-3).filter(function (h) { return h.status != 0 }).length > 2`:                                  false,
		`event.check.history.map(h => h.status).every(Boolean) && ["a", "b"].indexOf(event.check.name) >= 0`:                      false,
		`var last = event.check.history[event.check.history.length - 1]; last.status == 2`:                                        false,
		`var sum = 0; for (var i = 0; i < 3; i++) sum += i; sum == 3`:                                                             false,
		`Object.keys(event.check.labels).length && JSON.parse(event.check.output).status`:                                         false,
		`sensu.CheckDependencies("disk") && /^web/.test(event.entity.name) && new Date().getHours() > 8`:                          false,
		`fatigue_check(event) && event.check?.labels?.team === "x" && event.check.annotations.hasOwnProperty("a")`:                false,
		`event.check.labels.seen = "yes"; event.check.status = 1; delete event.check.labels.old; event.entity.labels["a"] += "b"`: false,
		`event.check.labels[event.check.name]`:                                                                                    true,
		`Array.prototype.last = function () {}`:                                                                                   true,
		`event.check.labels.a = String; event.check.labels.a.x`:                                                                   true,
		`this.x = 1`: true, `Object.assign(event.check.labels, {})`: true, `[].push.apply([], [1])`: true,
	} {
		if s := compile("f", source, MaxExpression); s.err != nil || s.spoils != spoils {
			t.Errorf("%s: spoils is %v, %v", source, s.spoils, s.err)
		}
	}
}
