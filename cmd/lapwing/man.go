package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapwing-monitoring/lapwing/internal/manpage"
)

// manCommand makes what a package installs beside the binary.
func manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print a man page, or write all pages and the completion files of shells",
		Long: `Print the man page of a command, or of lapwing.

With --dir, write the pages of all commands and the completion files of all shells into a directory, for a package:

  man/man1/lapwing*.1         to /usr/share/man/man1
  completion/lapwing.bash     to /usr/share/bash-completion/completions/lapwing
  completion/_lapwing         to /usr/share/zsh/site-functions/_lapwing
  completion/lapwing.fish     to /usr/share/fish/vendor_completions.d/lapwing.fish
  completion/lapwing.ps1      to be run by a profile of PowerShell

The files depend on the version alone: two builds of it write the same ones.`,
		Example: "  lapwing man agent | man -l -\n  lapwing man --dir dist",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range manpage.Commands(cmd.Root()) {
				if at, _, err := cmd.Root().Find(args); err == nil && c.HasParent() && c.Parent() == at {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir != "" {
				if len(args) > 0 {
					return fmt.Errorf("--dir writes the pages of all commands: leave out %q", args[0])
				}
				return writePackageFiles(cmd.Root(), dir)
			}
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || !slices.Contains(manpage.Commands(cmd.Root()), of) {
				return fmt.Errorf("there is no command %q: lapwing --help lists the commands", strings.Join(args, " "))
			}
			_, err = cmd.OutOrStdout().Write(manpage.Page(of))
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory to write all pages and completion files into")
	_ = cmd.MarkFlagDirname("dir") // the flag exists
	return cmd
}

func writePackageFiles(root *cobra.Command, dir string) error {
	man, completion := filepath.Join(dir, "man", "man1"), filepath.Join(dir, "completion")
	for _, d := range []string{man, completion} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make a directory for pages and completion files: %w", err)
		}
	}
	if err := manpage.Write(root, man); err != nil {
		return err
	}
	for name, write := range map[string]func(string) error{
		"lapwing.bash": func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"_lapwing":     root.GenZshCompletionFile,
		"lapwing.fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
		"lapwing.ps1":  root.GenPowerShellCompletionFileWithDesc,
	} {
		if err := write(filepath.Join(completion, name)); err != nil {
			return fmt.Errorf("write a completion file: %w", err)
		}
	}
	return nil
}
