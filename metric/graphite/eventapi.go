package graphite

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The largest event that is taken.
const (
	maxWhat = 1 << 10
	maxData = 64 << 10
	maxTags = 100
	maxTag  = 255
)

// postedEvent is the body of POST /events.
type postedEvent struct {
	What string          `json:"what"`
	Data json.RawMessage `json:"data"`
	Tags json.RawMessage `json:"tags"`
	When json.RawMessage `json:"when"`
}

func (a *API) addEvent(c *call) error {
	if a.opts.Events == nil {
		return errNotFound
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w.to, c.r.Body, a.opts.MaxRequestBytes))
	if err != nil {
		return bodyError(err)
	}
	e, err := parseEvent(body, a.opts.Now())
	if err != nil {
		return err
	}
	if _, err := a.opts.Events.Add(e); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	return nil
}

// parseEvent reads the JSON of an event. An event without a time is of now.
func parseEvent(body []byte, now time.Time) (Event, error) {
	var p postedEvent
	if err := json.Unmarshal(body, &p); err != nil {
		return Event{}, badRequest("the event is no JSON object: %v", err)
	}
	e := Event{What: p.What, When: now.Unix()}
	if e.What == "" || len(e.What) > maxWhat {
		return e, badRequest(`"what" must be a text of 1 to %d bytes`, maxWhat)
	}
	var err error
	if present(p.Data) {
		// Tools send objects here, too. They are kept as their text.
		if json.Unmarshal(p.Data, &e.Data) != nil {
			e.Data = string(p.Data)
		}
		if len(e.Data) > maxData {
			return e, badRequest(`"data" is larger than %d bytes`, maxData)
		}
	}
	if e.Tags, err = parseTags(p.Tags); err != nil {
		return e, err
	}
	if present(p.When) {
		when, err := strconv.ParseFloat(strings.Trim(string(p.When), `"`), 64)
		if err != nil || math.IsNaN(when) || math.Abs(when) > math.MaxUint32 {
			return e, badRequest(`"when" must be a time in Unix seconds`)
		}
		e.When = int64(math.Floor(when))
	}
	return e, nil
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// parseTags reads a list of words, or a text of words with blanks between them.
func parseTags(raw json.RawMessage) ([]string, error) {
	if !present(raw) {
		return nil, nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		var list []string
		if json.Unmarshal(raw, &list) != nil {
			return nil, badRequest(`"tags" must be an array or space-separated string`)
		}
		text = strings.Join(list, " ")
	}
	tags := strings.Fields(text)
	if len(tags) > maxTags {
		return nil, badRequest(`"tags" has %d words: %d are allowed`, len(tags), maxTags)
	}
	for _, tag := range tags {
		if len(tag) > maxTag {
			return nil, badRequest(`"tags" has a word of %d bytes: %d are allowed`, len(tag), maxTag)
		}
	}
	return tags, nil
}

func (a *API) seesEvents(r *http.Request) bool {
	return a.opts.SeesEvents == nil || a.opts.SeesEvents(r)
}

func (a *API) eventData(c *call) error {
	if a.opts.Events == nil {
		return errNotFound
	}
	s, err := a.readSpan(c.params, 0)
	if err != nil {
		return err
	}
	var list []Event
	tags := strings.Fields(c.get("tags"))
	if a.seesEvents(c.r) && (len(tags) > 0 || !c.has("tags")) { // an empty parameter matches no event, as graphite-web has it
		list = a.opts.Events.Range(s.from.Unix(), s.until.Unix(), tags, c.get("set") == "union")
	}
	return c.json(true, func(j *jsonWriter) error {
		j.open('[')
		for i := range list {
			e := &list[i]
			j.open('{')
			j.intField("when", e.When)
			j.textField("what", e.What)
			j.textField("data", e.Data)
			j.key("tags")
			j.texts(e.Tags)
			j.intField("id", e.ID)
			j.close('}')
		}
		j.close(']')
		return nil
	})
}

// event answers with one event. The time is a text here, as graphite-web has it.
func (a *API) event(c *call) error {
	if a.opts.Events == nil {
		return errNotFound
	}
	id, err := strconv.ParseInt(c.name, 10, 64)
	if err != nil {
		return errNotFound
	}
	e, ok := a.opts.Events.Get(id)
	if !ok || !a.seesEvents(c.r) {
		return &StatusError{http.StatusNotFound, "Event matching query does not exist"}
	}
	return c.json(true, func(j *jsonWriter) error {
		j.open('{')
		j.intField("id", e.ID)
		j.textField("when", time.Unix(e.When, 0).UTC().Format(time.RFC3339))
		j.textField("what", e.What)
		j.textField("data", e.Data)
		j.key("tags")
		j.texts(e.Tags)
		j.close('}')
		return nil
	})
}
