//go:build !agentonly

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// A block is a piece of code of a page: between fences, or indented by four spaces more than the text around it.
type block struct {
	line  int // of its first line of code
	lang  string
	text  string
	notes []note // the comments right above it
}

// A note is an HTML comment of a page for its test: <!-- docs-test: WORD REST -->. The words:
//
//	file NAME            a resource that commands of this page read as NAME; it is there from the beginning
//	skip because REASON  nothing here can be checked
//	check because REASON commands are parsed, and not run
//	synopsis             commands with brackets and alternatives: their names and flags must exist
//	text                 what a program prints, or another program reads
//	setup                (own paragraph) shell commands that run at this point of the page, hidden from readers
type note struct {
	word, rest string
	line       int
}

var (
	fence     = regexp.MustCompile("^( *)```\\s*(\\S*)")
	noteBegin = regexp.MustCompile(`^\s*<!-- docs-test: (\w+)`)
	listItem  = regexp.MustCompile(`^( *)([-*]|\d+\.) +`)
)

// parsePage returns a page's blocks and its setup notes (as blocks with the language setup), in order.
func parsePage(page string) (blocks []block, err error) {
	lines := strings.Split(page, "\n")
	var notes []note
	indent := 0 // of the text of the list item that we are in
	blankBefore := true
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch m := fence.FindStringSubmatch(line); {
		case noteBegin.MatchString(line):
			begin, text := i, line
			for !strings.Contains(text, "-->") {
				if i++; i == len(lines) {
					return nil, fmt.Errorf("line %d: the comment has no end", begin+1)
				}
				text += "\n" + lines[i]
			}
			text, _, _ = strings.Cut(text, "-->")
			_, text, _ = strings.Cut(text, "docs-test: ")
			word := strings.Fields(text)[0]
			n := note{word: word, rest: strings.TrimSpace(strings.TrimPrefix(text, word)), line: begin + 1}
			if err := n.check(); err != nil {
				return nil, fmt.Errorf("line %d: %w", begin+1, err)
			}
			if word == "setup" {
				blocks = append(blocks, block{line: begin + 1, lang: "setup", text: n.rest})
			} else {
				notes = append(notes, n)
			}
			continue
		case m != nil:
			begin := i + 1
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			}
			if i == len(lines) {
				return nil, fmt.Errorf("line %d: the block has no end", begin)
			}
			blocks = append(blocks, block{line: begin + 1, lang: m[2], text: outdent(lines[begin:i]), notes: notes})
			notes = nil
		case strings.TrimSpace(line) == "":
			blankBefore = true
			continue
		case blankBefore && leading(line) >= indent+4 && !listItem.MatchString(line):
			begin := i
			for i < len(lines) && (strings.TrimSpace(lines[i]) == "" || leading(lines[i]) >= indent+4) {
				i++
			}
			blocks = append(blocks, block{line: begin + 1, text: outdent(lines[begin:i]), notes: notes})
			notes = nil
			i--
			continue // the blank lines at its end are before what follows
		default:
			if m := listItem.FindString(line); m != "" {
				indent = len(m)
			} else if blankBefore && leading(line) < indent {
				indent = 0
			}
			if len(notes) > 0 {
				return nil, fmt.Errorf("line %d: the comment has no block below it", notes[0].line)
			}
		}
		blankBefore = false
	}
	if len(notes) > 0 {
		return nil, fmt.Errorf("line %d: the comment has no block below it", notes[0].line)
	}
	return blocks, nil
}

func (n note) check() error {
	switch n.word {
	case "skip", "check":
		if reason, ok := strings.CutPrefix(n.rest, "because "); !ok || strings.TrimSpace(reason) == "" {
			return fmt.Errorf("docs-test: %s needs a reason: %s because …", n.word, n.word)
		}
	case "file", "setup":
		if n.rest == "" {
			return fmt.Errorf("docs-test: %s is empty", n.word)
		}
	case "synopsis", "text":
		if n.rest != "" {
			return fmt.Errorf("docs-test: %s takes nothing, and has %q", n.word, n.rest)
		}
	default:
		return fmt.Errorf("docs-test: unknown word %q", n.word)
	}
	return nil
}

func (b *block) note(word string) (string, bool) {
	for _, n := range b.notes {
		if n.word == word {
			return n.rest, true
		}
	}
	return "", false
}

func leading(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// outdent removes the indentation that all lines share.
func outdent(lines []string) string {
	least := -1
	for _, l := range lines {
		if strings.TrimSpace(l) != "" && (least < 0 || leading(l) < least) {
			least = leading(l)
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l[min(max(least, 0), leading(l)):] + "\n")
	}
	return strings.TrimRight(b.String(), "\n ") + "\n"
}

// A shellLine is a command line of a block, continued lines joined, with the words of its simple commands.
type shellLine struct {
	offset   int // lines below the block's first
	text     string
	commands [][]string
}

// shellLines splits a block of shell. It knows quotes, comments, continuations and what separates commands; redirections
// are left out of the words.
func shellLines(text string) (out []shellLine, err error) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		begin, whole := i, lines[i]
		for {
			commands, open := shellCommands(whole)
			if !open {
				if len(commands) > 0 {
					out = append(out, shellLine{begin, whole, commands})
				}
				break
			}
			if i++; i == len(lines) {
				return nil, fmt.Errorf("line %d of the block has no end: %s", begin+1, lines[begin])
			}
			whole += "\n" + lines[i]
		}
	}
	return out, nil
}

// shellCommands returns the words of each simple command; open says that the line goes on in the next one.
func shellCommands(line string) (commands [][]string, open bool) {
	var words []string
	word, inWord, redirect := strings.Builder{}, false, false
	endWord := func() {
		if inWord && !redirect {
			words = append(words, word.String())
		}
		if inWord {
			redirect = false
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			if i+1 == len(line) {
				return nil, true
			}
			if i++; line[i] == '\n' {
				endWord()
			} else {
				word.WriteByte(line[i])
				inWord = true
			}
		case c == '\'' || c == '"':
			end := strings.IndexByte(line[i+1:], c)
			if end < 0 {
				return nil, true
			}
			word.WriteString(line[i+1 : i+1+end])
			inWord = true
			i += end + 1
		case c == '#' && !inWord:
			if end := strings.IndexByte(line[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(line)
			}
		case c == ' ' || c == '\t':
			endWord()
		case c == '\n' || c == ';' || c == '|' || c == '&':
			endCommand()
		case c == '>' || c == '<':
			endWord()
			redirect = true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return commands, false
}
