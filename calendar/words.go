package calendar

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ruleWords are errors of the library that reads rules, with what to write instead.
var ruleWords = []struct {
	match *regexp.Regexp
	text  string // %s is the match's group
}{
	{regexp.MustCompile(`^undefined weekday: (.*)$`), `"%s" is no weekday: write MO, TU, WE, TH, FR, SA or SU, or 1MO for the first Monday`},
	{regexp.MustCompile(`^undefined frequency: (.*)$`), `"%s" is no FREQ: write YEARLY, MONTHLY, WEEKLY, DAILY or HOURLY`},
	{regexp.MustCompile(`^parsing time "([^"]*)"`), `"%s" is no time: write one such as 20261130T220000Z, or a day such as 20261130`},
	{regexp.MustCompile(`^strconv\.\w+: parsing "([^"]*)"`), `"%s" is no whole number`},
	{regexp.MustCompile(`^unknown RRULE property: (.*)$`), `a rule has no part "%s"`},
	{regexp.MustCompile(`^(\w+) option has no value$`), `%s has no value`},
	{regexp.MustCompile(`^RRULE property (FREQ) is required$`), `%s is missing, as in FREQ=WEEKLY;BYDAY=MO`},
	{regexp.MustCompile(`^((?:wrong|bad) format).*$`), `%s: write parts with semicolons between, as in FREQ=WEEKLY;BYDAY=MO,TU`},
}

// plainRule puts an error of the library that reads rules in words for the author of a rule.
func plainRule(err error) error {
	text := err.Error()
	for {
		function, rest, ok := strings.Cut(text, " failed: ")
		if !ok || strings.Contains(function, " ") {
			break
		}
		text = rest
	}
	for _, w := range ruleWords {
		if m := w.match.FindStringSubmatch(text); m != nil {
			return fmt.Errorf(w.text, m[1])
		}
	}
	return errors.New(text)
}
