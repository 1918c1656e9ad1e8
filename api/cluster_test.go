package api

import (
	"context"
	"testing"

	"github.com/google/uuid"
)

func TestCluster(t *testing.T) {
	const noEtcd = "the members of the cluster cannot be changed through the API: there is no etcd; " +
		"lapwing cluster remove removes a member\n"
	s := newServer(t, func(o *Options) {
		o.Health = func(context.Context) Health {
			return Health{ClusterID: 1, MemberID: 18446744073709551615, Term: 3, Members: []Member{
				{ID: 18446744073709551615, Name: "a"}, {ID: 2, Name: "b", URL: "https://b:8080", Err: "not heard for 5 s"},
			}}
		}
	})
	const path = "/api/core/v2/cluster/"
	var id, again string
	s.do("GET", path+"id", "").is(200).has(&id)
	s.do("GET", path+"id", "").has(&again)
	if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 4 || again != id {
		t.Errorf("cluster id is %q, then %q", id, again)
	}
	want := `{"header":{"cluster_id":1,"member_id":18446744073709551615,"raft_term":3},"members":[` +
		`{"ID":18446744073709551615,"name":"a","peerURLs":[],"clientURLs":[]},` +
		`{"ID":2,"name":"b","peerURLs":[],"clientURLs":["https://b:8080"]}]}`
	if got := s.do("GET", path+"members", "").is(200).body; got != want {
		t.Errorf("members are %s", got)
	}
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "members", "missing peer-addrs form value\n"},
		{"PUT", "members/1f", "missing peer-addrs form value\n"},
		{"DELETE", "members/zz", `bad id (zz): strconv.ParseUint: parsing "zz": invalid syntax` + "\n"},
		{"POST", "members?peer-addrs=http://a", noEtcd},
		{"DELETE", "members/1f", noEtcd},
	} {
		if got := s.do(tc.method, path+tc.path, "").is(400); got.body != tc.body {
			t.Errorf("%s %s: %s", tc.method, tc.path, got.body)
		}
	}
}

func TestTessen(t *testing.T) {
	s := newServer(t, nil)
	const path = "/api/core/v2/tessen"
	first := s.do("GET", path, "").is(200)
	if first.body != `{"opt_out":false}` {
		t.Errorf("at first it is %s", first.body)
	}
	tag := first.header.Get("Etag")
	s.do("PUT", path, `{"opt_out":true}`, "If-Match", `"0"`).is(412)
	if got := s.do("PUT", path, `{"opt_out":true}`, "If-Match", tag).is(200); got.body != `{"opt_out":true}` ||
		got.header.Get("Etag") == tag {
		t.Errorf("set to %s with tag %s", got.body, got.header.Get("Etag"))
	}
	s.do("PUT", path, `{"opt_out":false}`, "If-Match", tag).is(412)
	s.do("PUT", path, `{"opt_out":1}`).is(400)
	if got := s.do("GET", path, "").body; got != `{"opt_out":true}` {
		t.Errorf("it is %s", got)
	}
	s.do("PUT", path, `{}`).is(200)
	s.do("GET", path, "", "If-None-Match", tag).is(304)
}
