package substitute

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// quoteFunction is the name of shellQuote in templates.
const quoteFunction = "shellquote"

var errNUL = errors.New("a shell's word cannot have NUL in it")

// shellQuote makes one word of any value for a POSIX shell: {{ .labels.url | shellquote }}. Windows' cmd has no such
// form. A missing key stays missing.
func shellQuote(value any) (string, error) {
	if value == nil {
		return noValue, nil
	}
	text := fmt.Sprint(value)
	if strings.ContainsRune(text, 0) {
		return "", errNUL
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", nil
}

// harmless are fields of an entity whose values cannot contain anything with a meaning to a shell.
var harmless = []string{"name", "namespace", "entity_class"}

// Unquoted returns the tokens of a command whose values a shell would read as part of the command: those of labels,
// annotations and the like that do not end in shellquote. An invalid command has none.
func Unquoted(command string) []string {
	if !strings.Contains(command, "{{") {
		return nil
	}
	t, err := template.New("command").Funcs(functions).Parse(command)
	if err != nil || t.Tree == nil {
		return nil
	}
	var out []string
	findUnquoted(t.Root, &out)
	return out
}

// Warning returns a warning for the author of a check about its tokens; "" for none. Tokens of a check without proxy
// requests are about the host that runs the command, whose administrator can run commands anyway.
func Warning(c *resource.CheckConfig) string {
	if c.ProxyRequests == nil {
		return ""
	}
	tokens := Unquoted(c.Command)
	if len(tokens) == 0 {
		return ""
	}
	return "the command has tokens that a shell on another host reads as commands, if the entity's labels say so: write " +
		strings.TrimSuffix(tokens[0], "}}") + " | " + quoteFunction + " }}"
}

func findUnquoted(node parse.Node, out *[]string) {
	branch := func(b *parse.BranchNode) {
		findUnquoted(b.List, out)
		findUnquoted(b.ElseList, out)
	}
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, one := range n.Nodes {
				findUnquoted(one, out)
			}
		}
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 && !isQuoted(n.Pipe) {
			*out = append(*out, n.String())
		}
	}
}

// isQuoted reports whether a pipe ends in shellquote, or contains no value of an entity that needs it.
func isQuoted(p *parse.PipeNode) bool {
	last := p.Cmds[len(p.Cmds)-1]
	if f, ok := last.Args[0].(*parse.IdentifierNode); ok && f.Ident == quoteFunction {
		return true
	}
	return !slices.ContainsFunc(p.Cmds, func(c *parse.CommandNode) bool { return slices.ContainsFunc(c.Args, needsQuotes) })
}

func needsQuotes(node parse.Node) bool {
	switch n := node.(type) {
	case *parse.FieldNode:
		path := n.Ident
		if len(path) > 1 && path[0] == "metadata" {
			path = path[1:]
		}
		return len(path) != 1 || !slices.Contains(harmless, path[0])
	case *parse.PipeNode:
		return !isQuoted(n)
	case *parse.VariableNode, *parse.DotNode, *parse.ChainNode:
		return true
	}
	return false
}
