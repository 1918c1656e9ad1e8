package api

import (
	"net/http"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveAccess adds what there is to read of users, roles and bindings.
func (a *API) serveAccess() {
	users := &kind[resource.User]{api: a, Kind: config.Users, view: userView}
	a.route(core+"users", access{resource: "users"}, methods{http.MethodGet: users.list})
	a.route(core+"users/{name}", access{resource: "users", name: namePath, self: true}, methods{http.MethodGet: users.get})
	(&kind[resource.ClusterRole]{api: a, Kind: config.ClusterRoles}).serveReads()
	(&kind[resource.ClusterRoleBinding]{api: a, Kind: config.ClusterRoleBindings}).serveReads()
	(&kind[resource.Role]{api: a, Kind: config.Roles}).serveReads()
	(&kind[resource.RoleBinding]{api: a, Kind: config.RoleBindings}).serveReads()
}

func (k *kind[T]) serveReads() {
	k.serveRoutes(methods{http.MethodGet: k.list}, methods{http.MethodGet: k.get})
}

// userView is a user without its password.
func userView(u *resource.User) any {
	return resource.User{Username: u.Username, Groups: u.Groups, Disabled: u.Disabled}
}
