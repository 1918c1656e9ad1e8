package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/api"
	"github.com/lapwing-monitoring/lapwing/cluster"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/internal/testnats"
)

// TestNATSOptions: flags that do not go together are refused, each by its name, and without a password.
func TestNATSOptions(t *testing.T) {
	const url = "nats://u:hidden@127.0.0.1:4222"
	for what, tc := range map[string]struct {
		c    Cluster
		flag string
		want string
	}{
		"URLs alone":   {Cluster{NATS: NATS{URLs: []string{url}}}, "", ""},
		"all":          {Cluster{Name: "a", AdvertiseHost: "h", NATS: NATS{URLs: []string{url}, Prefix: "p", Replicas: 5}}, "", ""},
		"peers":        {Cluster{Peers: []string{"a:1"}, NATS: NATS{URLs: []string{url}}}, "peers", "does not go together with --nats-url"},
		"an address":   {Cluster{ListenAddress: "a:1", NATS: NATS{URLs: []string{url}}}, "cluster-listen-address", "--nats-url"},
		"a size":       {Cluster{Size: 3, NATS: NATS{URLs: []string{url}}}, "cluster-size", "--nats-url"},
		"certificates": {Cluster{TrustedCAFile: "x", NATS: NATS{URLs: []string{url}}}, "cluster-trusted-ca-file", "--nats-url"},
		"no URL":       {Cluster{NATS: NATS{CredentialsFile: "x"}}, "nats-credentials-file", "it needs --nats-url"},
		"a wrong URL":  {Cluster{NATS: NATS{URLs: []string{"u:hidden@h"}}}, "nats-url", "URL 1 of 1 is not like"},
		"two secrets":  {Cluster{NATS: NATS{URLs: []string{url}, CredentialsFile: "x"}}, "nats-url", "leave one of them out"},
		"a prefix":     {Cluster{NATS: NATS{URLs: []string{url}, Prefix: "a b"}}, "nats-prefix", "other characters"},
		"copies":       {Cluster{NATS: NATS{URLs: []string{url}, Replicas: 7}}, "nats-replicas", "from 1 to 5"},
		"no key":       {Cluster{NATS: NATS{URLs: []string{url}, CertFile: "x"}}, "nats-cert-file", "--nats-key-file"},
		"a host":       {Cluster{AdvertiseHost: "h"}, "cluster-advertise-host", "--peers or --nats-url"},
	} {
		opts := quickOptions(t)
		opts.Cluster = tc.c
		err := opts.Check()
		var bad *optionerr.Error
		switch {
		case tc.flag == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case tc.flag != "" && (!errors.As(err, &bad) || bad.Flag != tc.flag || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want --%s: %s", what, err, tc.flag, tc.want)
		case strings.Contains(fmt.Sprint(err), "hidden"):
			t.Errorf("%s: the error has the password: %v", what, err)
		}
	}
}

// TestNATSStateDirectory: a state directory belongs to the servers and the prefix of its log.
func TestNATSStateDirectory(t *testing.T) {
	servers := testnats.New(t, 1, testnats.Options{})
	t.Cleanup(func() { _ = testnats.Remove() })
	nats := func(prefix string) Cluster {
		return Cluster{Name: "a", NATS: NATS{URLs: servers.SignedIn(), Prefix: prefix}}
	}
	refused := func(opts Options, flag, want string) {
		t.Helper()
		b, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = b.Start(ctx)
		if stopped := b.Stop(context.Background()); stopped != nil {
			t.Error(stopped)
		}
		var bad *optionerr.Error
		if !errors.As(err, &bad) || bad.Flag != flag || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want --%s: %s", err, flag, want)
		}
	}
	opts, alone := quickOptions(t), quickOptions(t)
	opts.Cluster = nats("one")
	writeEvents(t, opts, 3)
	writeEvents(t, opts, 3)

	other := opts
	other.Cluster, other.Registry = nats("two"), nil
	refused(other, "nats-prefix", `of the system "one"`)
	other.Cluster = Cluster{}
	refused(other, "nats-url", "whose log is on NATS servers: name them")

	writeEvents(t, alone, 1)
	alone.Cluster = nats("one")
	refused(alone, "nats-url", "of a backend that was alone")
}

// TestMemberToForget: which member a name means that is to be taken off the list.
func TestMemberToForget(t *testing.T) {
	self := memberOf("a", "0000000aaaaaaaaa", true, true)
	self.Self = true
	up, away := memberOf("b", "0000000bbbbbbbbb", true, true), memberOf("c", "0000000ccccccccc", false, false)
	again, listed := memberOf("c", "000000ccc1111111", false, false), memberOf("d", "0000000ddddddddd", false, true)
	all := []cluster.Member{self, up, away, listed}
	for _, tc := range []struct {
		name    string
		members []cluster.Member
		id      string
		err     error
	}{
		{"c", all, away.ID, nil},
		{"c-0000000c", all, away.ID, nil},
		{away.ID, all, away.ID, nil},
		{"a", all, "", api.ErrMemberUp},
		{"b", all, "", api.ErrMemberUp},
		{"d", all, "", api.ErrMemberSilent},
		{"x", all, "", api.ErrNoMember},
		{"c", append(all, again), "", api.ErrNoMember},
		{"c-000000cc", append(all, again), again.ID, nil},
	} {
		m, err := absent(tc.name, tc.members)
		if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || m != nil && m.ID != tc.id {
			t.Errorf("%s means %v, %v, want %s, %v", tc.name, m, err, tc.id, tc.err)
		}
	}
}
