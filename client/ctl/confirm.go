package ctl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// errDeclined says that a question was not answered with yes, so nothing was done. Its exit status is exitDeclined.
var errDeclined = errors.New("Canceled")

const exitDeclined = 3

// skipConfirmFlag adds the flag of a command that asks before it acts, under both of its names.
func skipConfirmFlag(cmd *cobra.Command, skip *bool) {
	cmd.Flags().BoolVar(skip, "skip-confirm", false, "do not ask for confirmation")
	cmd.Flags().BoolVarP(skip, "yes", "y", false, "the same as --skip-confirm")
}

// confirm asks a question. It returns errDeclined for any answer except yes, and for the end of the input.
func (s *invocation) confirm(question string) error {
	fmt.Fprint(s.errOut, question+" (y/N) ")
	line, err := bufio.NewReader(s.in).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read answer: %w", err)
	}
	if err == io.EOF || !isTerminal(s.in) { // no Enter has ended the line of the question
		fmt.Fprintln(s.errOut)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	if line == "" && !isTerminal(s.in) {
		return hint(errDeclined, "There was no answer and no terminal to ask at. Add --skip-confirm to go on without a question.")
	}
	return errDeclined
}
