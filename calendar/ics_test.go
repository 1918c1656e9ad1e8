package calendar

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// google has the shape of Google's exports: whole days, folded lines, CRLF.
const google = "BEGIN:VCALENDAR\r\nPRODID:-//Google Inc//Google Calendar 70.9054//EN\r\nVERSION:2.0\r\nCALSCALE:GREGORIAN\r\n" +
	"X-WR-CALNAME:Feiertage\r\nX-WR-TIMEZONE:Europe/Berlin\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261227\r\n" +
	"DTSTAMP:20261101T000000Z\r\nUID:1@google.com\r\nSTATUS:CONFIRMED\r\nSUMMARY:Weihnachten\\, beide\r\n  Tage\r\nTRANSP:TRANSPARENT\r\n" +
	"END:VEVENT\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20270101\r\nUID:2@google.com\r\nSUMMARY:Neujahr\r\nRRULE:FREQ=YEARLY\r\n" +
	"BEGIN:VALARM\r\nTRIGGER:-P1D\r\nDTSTART:19990101T000000Z\r\nEND:VALARM\r\nEND:VEVENT\r\n" +
	"BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261228\r\nUID:3@google.com\r\nSTATUS:CANCELLED\r\nSUMMARY:x\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

// outlook has the shape of Outlook's: Windows' time zones, a repetition that was moved, one that was left out.
const outlook = `BEGIN:VCALENDAR
PRODID:-//Microsoft Corporation//Outlook 16.0 MIMEDIR//EN
METHOD:PUBLISH
BEGIN:VTIMEZONE
TZID:W. Europe Standard Time
BEGIN:STANDARD
DTSTART:16011028T030000
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:040000008200E0
SUMMARY;LANGUAGE=de:Patch night
DTSTART;TZID="W. Europe Standard Time":20261020T220000
DTEND;TZID="W. Europe Standard Time":20261020T230000
RRULE:FREQ=WEEKLY;UNTIL=20261117T210000Z;BYDAY=TU
EXDATE;TZID="W. Europe Standard Time":20261103T220000
X-MICROSOFT-CDO-BUSYSTATUS:BUSY
END:VEVENT
BEGIN:VEVENT
UID:040000008200E0
RECURRENCE-ID;TZID="W. Europe Standard Time":20261110T220000
SUMMARY:Patch night (moved)
DTSTART;TZID="W. Europe Standard Time":20261111T230000
DURATION:PT90M
END:VEVENT
END:VCALENDAR
`

func TestICS(t *testing.T) {
	c := made(t, &resource.Calendar{TimeZone: berlin, Windows: []resource.CalendarWindow{{ICS: google}}})
	const want = "2026-12-24T23:00 2026-12-26T23:00 Weihnachten, beide Tage\n2026-12-31T23:00 2027-01-01T23:00 Neujahr\n" +
		"2027-12-31T23:00 2028-01-01T23:00 Neujahr"
	if got := listed(t, c, "2026-12-01T00:00:00Z", "2028-12-01T00:00:00Z"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c = made(t, &resource.Calendar{Windows: []resource.CalendarWindow{{ICS: outlook}}})
	const nights = "2026-10-20T20:00 2026-10-20T21:00 Patch night\n2026-10-27T21:00 2026-10-27T22:00 Patch night\n" +
		"2026-11-11T22:00 2026-11-11T23:30 Patch night (moved)\n2026-11-17T21:00 2026-11-17T22:00 Patch night"
	if got := listed(t, c, "2026-10-01T00:00:00Z", "2027-12-01T00:00:00Z"); got != nights {
		t.Errorf("got\n%s\nwant\n%s", got, nights)
	}
}

func TestICSRefuses(t *testing.T) {
	event := func(lines string) string {
		return "BEGIN:VCALENDAR\nBEGIN:VEVENT\n" + lines + "\nEND:VEVENT\nEND:VCALENDAR\n"
	}
	for want, text := range map[string]string{
		"does not end with END:VCALENDAR":       "BEGIN:VCALENDAR\nBEGIN:VEVENT\n",
		"line 3: END:VCALENDAR ends no VEVENT":  "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n",
		"the file has no events":                "BEGIN:VCALENDAR\nEND:VCALENDAR\n",
		"line 3: there is no name":              event("nonsense"),
		`line 2: event "x" has no DTSTART`:      event("SUMMARY:x"),
		`"Mars/North" is not known`:             event("DTSTART;TZID=Mars/North:20261110T220000"),
		"it ends before it begins":              event("DTSTART:20261110T220000Z\nDTEND:20261110T210000Z"),
		"lasts longer than 400 days":            event("DTSTART:20261110T220000Z\nDTEND:20281110T210000Z"),
		"is no duration":                        event("DTSTART:20261110T220000Z\nDURATION:-PT1H"),
		"and not more often":                    event("DTSTART:20261110T220000Z\nDTEND:20261110T230000Z\nRRULE:FREQ=SECONDLY"),
		"the year is not between 1900 and 2200": event("DTSTART:00011110T220000Z"),
	} {
		_, _, err := parseICS(text, time.UTC)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzICS(f *testing.F) {
	f.Add(google)
	f.Add(outlook)
	f.Add("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;TZID=\"a:0\nEND:VEVENT")
	f.Fuzz(func(t *testing.T, text string) {
		def := &resource.Calendar{Windows: []resource.CalendarWindow{{ICS: text}}}
		d, err := compile(def)
		if err != nil {
			return
		}
		sane(t, &Calendar{own: d.own})
	})
}
