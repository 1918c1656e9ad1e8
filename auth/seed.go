package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// ErrInitialized says that the cluster was seeded before.
var ErrInitialized = errors.New("already initialized")

const (
	// AgentUser is the user that agents sign in as by default. It has no administrative rights.
	AgentUser     = "agent"
	agentPassword = "P@ssw0rd!" // the agents' default, documented by Sensu

	clusterAdmins = "cluster-admins"
	systemAgents  = "system:agents"
	pipelineName  = "system:pipeline"
)

// commonResources are the resources of the built-in roles.
var commonResources = []string{"assets", "checks", "entities", "events", "filters", "handlers", "hooks", "mutators", "silenced"}

// SeedOptions describe the first administrator.
type SeedOptions struct {
	Username string
	Password string
	// APIKey, if not "", is a UUID that becomes the administrator's API key.
	APIKey string
}

// Seed writes the initial objects of a cluster: two namespaces, the built-in roles and bindings, the agents' user and
// an administrator. The administrator comes last and marks the end: if there is one, Seed fails with ErrInitialized. So
// an interrupted Seed is completed by the next, and when several backends run it at the same time, one succeeds.
func (a *Auth) Seed(ctx context.Context, opts SeedOptions) error {
	admin := &resource.User{Username: opts.Username, Password: opts.Password, Groups: []string{clusterAdmins}}
	if err := admin.Validate(); err != nil {
		return fmt.Errorf("seed administrator: %w", err)
	}
	if opts.Username == AgentUser {
		return fmt.Errorf("seed administrator: the name %q is the agents'", AgentUser)
	}
	var key *resource.APIKey
	if opts.APIKey != "" {
		var err error
		if key, err = a.ImportAPIKey(opts.APIKey, opts.Username); err != nil {
			return fmt.Errorf("seed administrator: %w", err)
		}
	}
	for u := range config.List(a.opts.Config.Snapshot(), config.Users, "") {
		if u.Username != AgentUser {
			return ErrInitialized
		}
	}
	agent := &resource.User{Username: AgentUser, Password: agentPassword, Groups: []string{systemAgents}}
	for _, u := range []*resource.User{agent, admin} {
		hash, err := a.hashPassword(u.Password)
		if err != nil {
			return fmt.Errorf("seed user %q: %w", u.Username, err)
		}
		u.Password, u.PasswordHash = "", hash
	}

	s := a.opts.Config
	for _, namespace := range []string{"default", "sensu-system"} {
		role, binding := PipelineAccess(namespace, "")
		if err := errors.Join(
			create(ctx, s, config.Roles, role),
			create(ctx, s, config.RoleBindings, binding),
			create(ctx, s, config.Namespaces, &resource.Namespace{Name: namespace}),
		); err != nil {
			return fmt.Errorf("seed namespace %q: %w", namespace, err)
		}
	}
	for _, role := range builtinRoles() {
		if err := create(ctx, s, config.ClusterRoles, role); err != nil {
			return fmt.Errorf("seed role %q: %w", role.Metadata.Name, err)
		}
	}
	for _, binding := range builtinBindings() {
		if err := create(ctx, s, config.ClusterRoleBindings, binding); err != nil {
			return fmt.Errorf("seed binding %q: %w", binding.Metadata.Name, err)
		}
	}
	if err := create(ctx, s, config.Users, agent); err != nil {
		return fmt.Errorf("seed user %q: %w", AgentUser, err)
	}
	if key != nil {
		if err := create(ctx, s, config.APIKeys, key); err != nil {
			return fmt.Errorf("seed api key of the administrator: %w", err)
		}
	}
	err := config.Create(ctx, s, config.Users, admin)
	switch {
	case errors.Is(err, config.ErrExists):
		return ErrInitialized
	case err != nil:
		return fmt.Errorf("seed administrator: %w", err)
	}
	a.log.Info("cluster initialized", "administrator", opts.Username)
	return nil
}

// defaultAgent caches the answer of DefaultAgentPassword: a comparison takes tens of milliseconds.
type defaultAgent struct {
	mu   sync.Mutex // guards the fields below
	hash string     // the compared hash
	same bool
}

// DefaultAgentPassword reports whether agents can still sign in with the password that Sensu documents.
func (a *Auth) DefaultAgentPassword() bool {
	u, ok := a.user(AgentUser)
	if !ok {
		return false
	}
	d := &a.defaultAgent
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hash != u.PasswordHash {
		d.hash, d.same = u.PasswordHash, compareHash([]byte(u.PasswordHash), []byte(agentPassword)) == nil
	}
	return d.same
}

// create writes an object unless it exists.
func create[T any](ctx context.Context, s *config.Store, k config.Kind[T], obj *T) error {
	if err := config.Create(ctx, s, k, obj); err != nil && !errors.Is(err, config.ErrExists) {
		return err
	}
	return nil
}

// PipelineAccess returns the objects that every namespace gets: they let filters read its events.
func PipelineAccess(namespace, createdBy string) (*resource.Role, *resource.RoleBinding) {
	meta := resource.ObjectMeta{Name: pipelineName, Namespace: namespace, CreatedBy: createdBy}
	role := &resource.Role{
		Metadata: meta,
		Rules:    []resource.Rule{{Verbs: []string{"get", "list"}, Resources: []string{"events"}}},
	}
	binding := &resource.RoleBinding{
		Metadata: meta,
		RoleRef:  resource.RoleRef{Type: roleType, Name: pipelineName},
		Subjects: []resource.Subject{{Type: groupType, Name: pipelineName}},
	}
	return role, binding
}

func builtinRoles() []*resource.ClusterRole {
	all := []string{"*"}
	read := []string{"get", "list"}
	role := func(name string, rules ...resource.Rule) *resource.ClusterRole {
		return &resource.ClusterRole{Metadata: resource.ObjectMeta{Name: name}, Rules: rules}
	}
	with := func(more ...string) []string { return append(append([]string(nil), commonResources...), more...) }
	namespaces := resource.Rule{Verbs: read, Resources: []string{"namespaces"}}
	return []*resource.ClusterRole{
		role("cluster-admin", resource.Rule{Verbs: all, Resources: all}),
		role("admin", resource.Rule{Verbs: all, Resources: with("roles", "rolebindings")}, namespaces),
		role("edit", resource.Rule{Verbs: all, Resources: with()}, namespaces),
		role("view", resource.Rule{Verbs: read, Resources: with("namespaces")}),
		role("system:agent", resource.Rule{Verbs: all, Resources: []string{"events"}}),
		role("system:user", resource.Rule{Verbs: []string{"get", "update"}, Resources: []string{"localselfuser"}}),
	}
}

func builtinBindings() []*resource.ClusterRoleBinding {
	binding := func(role, group string) *resource.ClusterRoleBinding {
		return &resource.ClusterRoleBinding{
			Metadata: resource.ObjectMeta{Name: role},
			RoleRef:  resource.RoleRef{Type: clusterRoleType, Name: role},
			Subjects: []resource.Subject{{Type: groupType, Name: group}},
		}
	}
	return []*resource.ClusterRoleBinding{
		binding("cluster-admin", clusterAdmins),
		binding("system:agent", systemAgents),
		binding("system:user", usersGroup),
	}
}
