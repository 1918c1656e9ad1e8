package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/flaggroup"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type user = resource.User

var userKind = newKind(client.Users, display[user]{
	args:    []string{"USERNAME"},
	example: "alice",
	columns: []cellOf[user]{
		{column{title: "Username"}, func(u *user) string { return u.Username }},
		{column{title: "Groups"}, func(u *user) string { return comma(u.Groups) }},
		{column{title: "Enabled"}, func(u *user) string { return yesNo(!u.Disabled) }},
	},
	title: func(u *user) string { return u.Username },
	fields: []fieldOf[user]{
		{label: "Username", text: func(u *user) string { return u.Username }},
		{label: "Groups", text: func(u *user) string { return commaSpace(u.Groups) }},
		{label: "Enabled", text: func(u *user) string { return yesNo(!u.Disabled) }},
		{label: "Password", unset: func(u *user) bool { return !u.NoPassword },
			text: func(*user) string { return "none: set one with lapwing user reset-password" }},
	},
	can: canList | canInfo,
	extra: []func(*kind) *cobra.Command{
		createUserCommand, disableUserCommand, reinstateUserCommand,
		addGroupCommand, removeGroupCommand, setGroupsCommand, removeGroupsCommand,
		changePasswordCommand, resetPasswordCommand, hashPasswordCommand, testCredentialsCommand,
	},
})

// userCall sends a request about a user and prints a word.
func (s *invocation) userCall(ctx context.Context, k *kind, method, name, rest string, in any, done string) error {
	if err := s.client.Do(ctx, method, client.Users.Path("", name)+rest, in, nil); err != nil {
		return hintMissing(k, fmt.Errorf("change user %q: %w", name, bare(err)))
	}
	if done != "" {
		s.did(done, k, name)
	}
	return nil
}

// userCommand returns a command about one user, named by the first argument.
func userCommand(k *kind, name, short, example string, more []string,
	f func(ctx context.Context, s *invocation, args []string) error) *cobra.Command {
	use := name + " USERNAME"
	for _, arg := range more {
		use += " " + arg
	}
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  lapwing user " + example,
		Args:    args(append([]string{"USERNAME"}, more...)...),
		RunE:    run(f),
	}
	completeNames(cmd, k)
	return cmd
}

func createUserCommand(k *kind) *cobra.Command {
	var password, groups string
	var interactive bool
	cmd := &cobra.Command{
		Use:     "create USERNAME",
		Short:   "create one user",
		Example: "  lapwing user create alice --password 'a long secret' --groups ops,view\n  lapwing user create --interactive",
		Args:    nameArg(&interactive),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		if interactive {
			q := s.questions()
			if err := q.ask("Username", &name); err != nil {
				return err
			}
			if err := q.secret("Password", &password); err != nil {
				return err
			}
			if err := q.ask("Groups", &groups); err != nil {
				return err
			}
		}
		if password == "" {
			return hintUsage(cmd, errors.New(`required flag(s) "password" not set`))
		}
		body := map[string]any{"password": password, "disabled": false}
		if list := splitList(groups); len(list) > 0 {
			body["groups"] = list
		}
		body[k.NameField] = name
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode user: %w", err)
		}
		raw := json.RawMessage(data)
		if err := client.Post(ctx, s.client, k.Kind, "", &raw); err != nil {
			return err
		}
		s.did("Created", k, name, s.undo("user", "disable", name))
		return nil
	})
	cmd.Flags().StringVarP(&password, "password", "p", "", "password, of at least 8 characters")
	cmd.Flags().StringVarP(&groups, "groups", "g", "", "groups of the user, comma separated")
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for name, password and groups")
	return cmd
}

func disableUserCommand(k *kind) *cobra.Command {
	var skipConfirm bool
	cmd := userCommand(k, "disable", "disable a user: the user cannot sign in", "disable alice", nil,
		func(ctx context.Context, s *invocation, args []string) error {
			if !skipConfirm {
				if err := s.confirm(fmt.Sprintf("Are you sure you would like to disable user resource '%s'?", args[0])); err != nil {
					return err
				}
			}
			return s.userCall(ctx, k, http.MethodDelete, args[0], "", nil, "Disabled")
		})
	skipConfirmFlag(cmd, &skipConfirm)
	return cmd
}

func reinstateUserCommand(k *kind) *cobra.Command {
	return userCommand(k, "reinstate", "let a disabled user sign in again", "reinstate alice", nil,
		func(ctx context.Context, s *invocation, args []string) error {
			return s.userCall(ctx, k, http.MethodPut, args[0], "/reinstate", nil, "Reinstated")
		})
}

func addGroupCommand(k *kind) *cobra.Command {
	return userCommand(k, "add-group", "add a user to a group", "add-group alice ops", []string{"GROUP"},
		func(ctx context.Context, s *invocation, args []string) error {
			return s.userCall(ctx, k, http.MethodPut, args[0], "/groups/"+url.PathEscape(args[1]), nil, "Added group "+args[1]+" to")
		})
}

func removeGroupCommand(k *kind) *cobra.Command {
	return userCommand(k, "remove-group", "remove a user from a group", "remove-group alice ops", []string{"GROUP"},
		func(ctx context.Context, s *invocation, args []string) error {
			return s.userCall(ctx, k, http.MethodDelete, args[0], "/groups/"+url.PathEscape(args[1]), nil, "Removed group "+args[1]+" of")
		})
}

func removeGroupsCommand(k *kind) *cobra.Command {
	return userCommand(k, "remove-groups", "remove a user from all groups", "remove-groups alice", nil,
		func(ctx context.Context, s *invocation, args []string) error {
			return s.userCall(ctx, k, http.MethodDelete, args[0], "/groups", nil, "Removed all groups of")
		})
}

// setGroupsCommand removes and adds groups one by one: the API's other way would change the password too. It adds
// first, so that a failure in between locks no user out.
func setGroupsCommand(k *kind) *cobra.Command {
	return userCommand(k, "set-groups", "replace the groups of a user", "set-groups alice ops,view",
		[]string{"GROUPS"}, func(ctx context.Context, s *invocation, args []string) error {
			raw, err := client.Get(ctx, s.client, client.Users, "", args[0])
			if err != nil {
				return hintMissing(k, err)
			}
			want := splitList(args[1])
			for _, g := range want {
				if !slices.Contains(raw.Groups, g) {
					if err := s.userCall(ctx, k, http.MethodPut, args[0], "/groups/"+url.PathEscape(g), nil, ""); err != nil {
						return err
					}
				}
			}
			for _, g := range raw.Groups {
				if !slices.Contains(want, g) {
					if err := s.userCall(ctx, k, http.MethodDelete, args[0], "/groups/"+url.PathEscape(g), nil, ""); err != nil {
						return err
					}
				}
			}
			s.did("Updated", k, args[0])
			return nil
		})
}

func changePasswordCommand(k *kind) *cobra.Command {
	var current, next string
	var interactive bool
	cmd := &cobra.Command{
		Use:     "change-password [USERNAME]",
		Short:   "change your password, or another user's whose password you know",
		Example: "  lapwing user change-password --current-password 'P@ssw0rd!' --new-password 'a long secret'\n  lapwing user change-password alice --interactive",
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.RunE = run(func(ctx context.Context, s *invocation, args []string) error {
		name := s.user()
		if len(args) > 0 {
			name = args[0]
		}
		if name == "" {
			return hint(errors.New("the user is unknown: you signed in with an API key"), "Name the user.")
		}
		if interactive || (current == "" && next == "") {
			q := s.questions()
			if err := q.secret("Current password", &current); err != nil {
				return err
			}
			if err := q.secret("New password", &next); err != nil {
				return err
			}
		}
		if err := s.client.TestCredentials(ctx, name, current); err != nil {
			return fmt.Errorf("verify current password: %w", bare(err))
		}
		hash, err := hashPassword(next)
		if err != nil {
			return err
		}
		return s.userCall(ctx, k, http.MethodPut, name, "/password",
			map[string]any{"username": name, "password": current, "password_hash": hash}, "Updated")
	})
	cmd.Flags().StringVarP(&current, "current-password", "c", "", "present password")
	cmd.Flags().StringVarP(&next, "new-password", "p", "", "new password, of at least 8 characters")
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for both passwords")
	completeNames(cmd, k)
	return cmd
}

func resetPasswordCommand(k *kind) *cobra.Command {
	var password string
	var interactive bool
	var cmd *cobra.Command
	cmd = userCommand(k, "reset-password", "give a user a new password",
		"reset-password alice --password 'a long secret'", nil,
		func(ctx context.Context, s *invocation, args []string) error {
			if interactive {
				if err := s.questions().secret("New password", &password); err != nil {
					return err
				}
			}
			if password == "" {
				return hintUsage(cmd, errors.New(`required flag(s) "password" not set`))
			}
			hash, err := hashPassword(password)
			if err != nil {
				return err
			}
			return s.userCall(ctx, k, http.MethodPut, args[0], "/reset_password",
				map[string]any{"username": args[0], "password_hash": hash}, "Updated")
		})
	cmd.Flags().StringVarP(&password, "password", "p", "", "new password, of at least 8 characters")
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for the password")
	return cmd
}

func hashPasswordCommand(*kind) *cobra.Command {
	var interactive bool
	cmd := &cobra.Command{
		Use:     "hash-password PASSWORD",
		Short:   "print a hash of a password for password_hash in files",
		Example: "  lapwing user hash-password 'a long secret'",
		Args: func(cmd *cobra.Command, words []string) error {
			if interactive {
				return nil
			}
			return args("PASSWORD")(cmd, words)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			password := ""
			if len(args) > 0 {
				password = args[0]
			}
			if interactive {
				s := &invocation{in: cmd.InOrStdin(), errOut: cmd.ErrOrStderr()}
				if err := s.questions().secret("Password", &password); err != nil {
					return err
				}
			}
			hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
			if err != nil {
				return fmt.Errorf("hash password: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), string(hash))
			return nil
		},
	}
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for the password, to keep it out of the shell's history")
	return flaggroup.Only(cmd)
}

// hashPassword returns the kind of hash that the API accepts.
func hashPassword(password string) (string, error) {
	if len(password) < 8 {
		return "", errors.New("password length must be at least 8 characters")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return string(hash), nil
}

func testCredentialsCommand(*kind) *cobra.Command {
	var password string
	var interactive bool
	cmd := &cobra.Command{
		Use:     "test-creds USERNAME",
		Short:   "test whether a user can sign in with a password",
		Example: "  lapwing user test-creds alice --password 'a long secret'",
		Args:    args("USERNAME"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, err := resolve(cmd)
		if err != nil {
			return err
		}
		opts, err := set.options(userAgent(cmd))
		if err != nil {
			return explain(err, set)
		}
		if interactive {
			s := &invocation{in: cmd.InOrStdin(), errOut: cmd.ErrOrStderr()}
			if err := s.questions().secret("Password", &password); err != nil {
				return err
			}
		}
		c, err := client.New(opts)
		if err != nil {
			return err
		}
		defer c.Close()
		err = c.TestCredentials(cmd.Context(), args[0], password)
		if errors.Is(err, client.ErrUnauthenticated) {
			return hint(err, "The name or the password is wrong, or the user is disabled.")
		}
		return explain(err, set)
	}
	cmd.Flags().StringVarP(&password, "password", "p", "", "password to test")
	cmd.Flags().BoolVar(&interactive, "interactive", false, "ask for the password")
	return cmd
}
