package api

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const silencedPath = "/api/core/v2/namespaces/default/silenced"

func (s *server) silence(name string) *resource.Silenced {
	s.t.Helper()
	one := new(resource.Silenced)
	s.do("GET", silencedPath+"/"+name, "").is(http.StatusOK).has(one)
	return one
}

// silences returns the names of the silences in a list.
func (a *answer) silences() string {
	a.t.Helper()
	var list []resource.Silenced
	a.is(http.StatusOK).has(&list)
	var names []string
	for _, one := range list {
		names = append(names, one.Metadata.Namespace+"/"+one.Metadata.Name)
	}
	return strings.Join(names, " ")
}

func TestSilenced(t *testing.T) {
	s := newServer(t, nil)
	post := func(body string) *answer { return s.do("POST", silencedPath, body) }
	post(`{"subscription":"linux","check":"disk","reason":"work","metadata":{"name":"ignored"}}`).is(http.StatusCreated)
	post(`{"subscription":"linux","check":"disk"}`).refuses(http.StatusConflict, codeExists, "resource already exists")
	post(`{"check":"disk"}`).is(http.StatusCreated)
	post(`{"check":"cpu","subscription":"*"}`).is(http.StatusCreated)
	post(`{"subscription":"linux"}`).is(http.StatusCreated)

	// Colons, stars and percent signs in paths.
	for _, name := range []string{"linux:disk", "linux%3Adisk", "%2A:disk", "*:disk"} {
		s.do("GET", silencedPath+"/"+name, "").is(http.StatusOK)
	}
	if got := s.silence("linux:disk"); got.Creator != admin || got.Metadata.CreatedBy != admin ||
		got.Reason != "work" || got.ExpireAt != 0 {
		t.Errorf("made %+v", got)
	}
	for path, want := range map[string]string{
		silencedPath:                                "default/*:cpu default/*:disk default/linux:* default/linux:disk",
		silencedPath + "?limit=2":                   "default/*:cpu default/*:disk",
		"/api/core/v2/silenced":                     "default/*:cpu default/*:disk default/linux:* default/linux:disk",
		silencedPath + "/checks/disk":               "default/*:disk default/linux:disk",
		silencedPath + "/checks/dis":                "",
		"/api/core/v2/silenced/checks/disk":         "default/*:disk default/linux:disk",
		silencedPath + "/subscriptions/linux":       "default/linux:* default/linux:disk",
		silencedPath + "/subscriptions/lin":         "",
		"/api/core/v2/namespaces/none/silenced":     "",
		silencedPath + "/subscriptions/entity:web1": "",
	} {
		if got := s.do("GET", path, "").silences(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	s.do("GET", "/api/core/v2/silenced/subscriptions/linux", "").is(http.StatusNotFound)
	s.do("PATCH", silencedPath+"/linux:disk", `{"reason":"x"}`, "Content-Type", mergePatchType).is(http.StatusMethodNotAllowed)

	put := func(name, body string) *answer { return s.do("PUT", silencedPath+"/"+name, body) }
	put("linux:disk", `{"subscription":"linux","check":"disk","reason":"more"}`).is(http.StatusCreated)
	if got := s.silence("linux:disk"); got.Reason != "more" {
		t.Errorf("replaced by %+v", got)
	}
	put("linux:disk", `{"subscription":"linux","check":"disk","expire":60}`).is(http.StatusCreated)
	fetched := s.do("GET", silencedPath+"/linux:disk", "").body
	put("linux:disk", strings.Replace(fetched, `"expire":60`, `"expire":600`, 1)).is(http.StatusCreated)
	if got := s.silence("linux:disk"); got.ExpireAt != got.Begin+600 {
		t.Errorf("given another length: %+v", got)
	}
	put("linux:new", `{"subscription":"linux","check":"new"}`).is(http.StatusCreated)
	put("linux:disk", `{"subscription":"linux","check":"other"}`).
		refuses(http.StatusBadRequest, codeInvalid,
			"the name of the resource (linux:other) does not match the name of the URI (linux:disk)")
	put("linux:disk", `{"subscription":"linux","check":"disk","metadata":{"name":"x"}}`).
		refuses(http.StatusBadRequest, codeInvalid, "the name of the resource (x) does not match the name of the URI (linux:disk)")
	put("linux:disk", `{"subscription":"linux","check":"disk","metadata":{"namespace":"dev"}}`).
		refuses(http.StatusBadRequest, codeInvalid, "the namespace of the resource (dev) does not match the namespace of the URI (default)")
	post(`{"subscription":"*","check":"*"}`).refuses(http.StatusBadRequest, codeInvalid, "must provide check or subscription")
	post(`{"check":"a b"}`).refuses(http.StatusBadRequest, codeInvalid, "Check cannot contain spaces or special characters")
	post(`{"check":"a","expire":9223372036854775807}`).refuses(http.StatusBadRequest, codeInvalid,
		"expire 9223372036854775807 is out of bounds, it must be between -3153600000 and 3153600000")
	post(`{"check":1}`).is(http.StatusBadRequest)
	s.do("POST", "/api/core/v2/namespaces/none/silenced", `{"check":"a"}`).refuses(http.StatusNotFound, codeNotFound,
		"the namespace none does not exist")

	s.do("DELETE", silencedPath+"/linux:disk", "").is(http.StatusNoContent)
	s.do("DELETE", silencedPath+"/linux:disk", "").refuses(http.StatusNotFound, codeNotFound, "not found")
	s.do("GET", silencedPath+"/linux:disk", "").refuses(http.StatusNotFound, codeNotFound, "silenced entry not found")
}

func TestSilencedSeesItsNamespaceOnly(t *testing.T) {
	s := newServer(t, nil)
	token := s.user("dev", "devs")
	s.grant("devs", "default", resource.Rule{Verbs: []string{"list"}, Resources: []string{"silenced"}})
	who := []string{"Authorization", "Bearer " + token}
	for path, want := range map[string]int{
		silencedPath: 200, silencedPath + "/checks/x": 200, silencedPath + "/subscriptions/x": 200,
		silencedPath + "/x:y": 403, "/api/core/v2/silenced": 403, "/api/core/v2/silenced/checks/x": 403,
		"/api/core/v2/namespaces/sensu-system/silenced": 403,
	} {
		if got := s.do("GET", path, "", who...); got.status != want {
			t.Errorf("%s: %d, want %d", path, got.status, want)
		}
	}
	s.do("POST", silencedPath, `{"check":"x"}`, who...).is(http.StatusForbidden)
}

// TestSilencedOfATeam has roles that are limited to the team's own label.
func TestSilencedOfATeam(t *testing.T) {
	s := newServer(t, nil)
	s.grant("red", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"silenced"}, LabelSelector: "team == red"})
	red := []string{"Authorization", "Bearer " + s.user("ruth", "red")}
	const mine, others = `{"check":"mine","metadata":{"labels":{"team":"red"}}}`, `{"check":"others","metadata":{"labels":{"team":"blue"}}}`
	s.do("POST", silencedPath, others).is(http.StatusCreated)
	s.do("POST", silencedPath, mine, red...).is(http.StatusCreated)
	s.do("POST", silencedPath, `{"check":"more"}`, red...).is(http.StatusForbidden)
	s.do("PUT", silencedPath+"/*:mine", mine, red...).is(http.StatusCreated)
	s.do("PUT", silencedPath+"/*:mine", `{"check":"mine"}`, red...).is(http.StatusForbidden)
	s.do("PUT", silencedPath+"/*:others", `{"check":"others","metadata":{"labels":{"team":"red"}}}`, red...).is(http.StatusForbidden)
	s.do("GET", silencedPath+"/*:others", "", red...).is(http.StatusNotFound)
	s.do("DELETE", silencedPath+"/*:others", "", red...).is(http.StatusNotFound)
	if got := s.do("GET", silencedPath, "", red...).silences(); got != "default/*:mine" {
		t.Errorf("sees %s", got)
	}
	if got := s.do("GET", silencedPath+"/checks/others", "", red...).silences(); got != "" {
		t.Errorf("sees %s of the check", got)
	}
	s.do("DELETE", silencedPath+"/*:mine", "", red...).is(http.StatusNoContent)
	if got := s.do("GET", silencedPath+"?labelSelector=team%20%3D%3D%20blue", "").silences(); got != "default/*:others" {
		t.Errorf("selected %s", got)
	}
	if got := s.do("GET", silencedPath+"?fieldSelector=silenced.check%20%3D%3D%20mine", "").silences(); got != "" {
		t.Errorf("selected %s", got)
	}
}

// TestSilencedExpires has no keeper: expired silences are gone without one.
func TestSilencedExpires(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", silencedPath, `{"check":"disk","expire":60,"reason":"first"}`).is(http.StatusCreated)
	s.do("POST", silencedPath, `{"check":"cpu"}`).is(http.StatusCreated)
	if got := s.silence("*:disk"); got.ExpireAt != got.Begin+60 || got.Expire != 60 {
		t.Errorf("made %+v", got)
	}
	s.now.Add(30) // far from the end: the test takes time, too
	s.do("POST", silencedPath, `{"check":"disk"}`).is(http.StatusConflict)
	s.now.Add(31)
	for _, path := range []string{silencedPath, "/api/core/v2/silenced"} {
		if got := s.do("GET", path, "").silences(); got != "default/*:cpu" {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := s.do("GET", silencedPath+"/checks/disk", "").silences(); got != "" {
		t.Errorf("of the check: %s", got)
	}
	s.do("GET", silencedPath+"/*:disk", "").is(http.StatusNotFound)
	s.do("DELETE", silencedPath+"/*:disk", "").is(http.StatusNotFound)
	s.do("POST", silencedPath, `{"check":"disk","reason":"second"}`).is(http.StatusCreated)
	if got := s.silence("*:disk"); got.Reason != "second" {
		t.Errorf("in the place of an expired one: %+v", got)
	}
}

func TestSilencedBounds(t *testing.T) {
	for _, tc := range []struct {
		name              string
		def, most         time.Duration
		body              string
		want              int
		endsIn, beginsOff int64 // in seconds from begin; 0 means never
	}{
		{"neither", 0, 0, `{"check":"c"}`, 201, 0, 0},
		{"neither, for long", 0, 0, `{"check":"c","expire":999999999}`, 201, 999999999, 0},
		{"default", time.Hour, 0, `{"check":"c"}`, 201, 3600, 0},
		{"default, -1 as the client sends", time.Hour, 0, `{"check":"c","expire":-1}`, 201, 3600, 0},
		{"default, another wish", time.Hour, 0, `{"check":"c","expire":7200}`, 201, 7200, 0},
		{"default is from the beginning", time.Hour, 0, `{"check":"c","begin":BEGIN}`, 201, 3600, 600},
		{"within the longest", 0, time.Hour, `{"check":"c","expire":3599}`, 201, 3599, 0},
		{"beyond the longest", 0, time.Hour, `{"check":"c","expire":3700}`, 400, 0, 0},
		{"beyond because it begins later", 0, time.Hour, `{"check":"c","begin":BEGIN,"expire":3500}`, 400, 0, 600},
		{"the longest is the default", 0, time.Hour, `{"check":"c"}`, 201, 3600, 0},
		{"the default may be longer", 2 * time.Hour, time.Hour, `{"check":"c"}`, 201, 7200, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, func(o *Options) { o.DefaultSilence, o.MaxSilence = tc.def, tc.most })
			body := strings.ReplaceAll(tc.body, "BEGIN", strconv.FormatInt(time.Now().Unix()+tc.beginsOff, 10))
			a := s.do("POST", silencedPath, body).is(tc.want)
			if tc.want == http.StatusBadRequest {
				a.refuses(http.StatusBadRequest, codeInvalid, "Threshold reached: silenced crossed maximum duration allowed")
				return
			}
			got := s.silence("*:c")
			want := got.Begin + tc.endsIn
			if tc.endsIn == 0 {
				want = 0
			}
			if got.ExpireAt != want {
				t.Errorf("from %d to %d, want %d", got.Begin, got.ExpireAt, want)
			}
		})
	}
}

// TestSilencedAreReadable: the API shows a silence without a creator and times as it is stored.
func TestSilencedAreReadable(t *testing.T) {
	s := newServer(t, nil)
	one := &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default", Name: "*:c"}, Check: "c", Expire: -1}
	if err := config.Put(t.Context(), s.store, config.Silences, one); err != nil {
		t.Fatal(err)
	}
	body := s.do("GET", silencedPath+"/*:c", "").is(http.StatusOK).body
	if want := `{"metadata":{"name":"*:c","namespace":"default"},"expire":-1,"expire_on_resolve":false,"check":"c","begin":0,"expire_at":0}`; body != want {
		t.Errorf("%s, want %s", body, want)
	}
}
