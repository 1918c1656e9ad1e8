package lint

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// pages are the pages that users and contributors read, as paths from the repository's root.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"README.md", "CONTRIBUTING.md"}
	for _, path := range found {
		paths = append(paths, "docs/"+filepath.Base(path))
	}
	if len(paths) < 10 {
		t.Fatalf("there are only the pages %q", paths)
	}
	return paths
}

// TestIndexHasEachPage fails when docs/README.md leaves a page out, or names one that does not exist.
func TestIndexHasEachPage(t *testing.T) {
	for _, problem := range indexProblems(document(t, "docs/README.md"), pages(t)) {
		t.Error(problem)
	}
}

var indexEntry = regexp.MustCompile(`(?m)^\s*(?:[-*]|\|) *\[[^]]+\]\(([\w-]+\.md)\)`)

// indexProblems compares the entries of the index, which begin with a link, with the pages.
func indexProblems(index string, paths []string) (problems []string) {
	listed := map[string]int{}
	for _, m := range indexEntry.FindAllStringSubmatch(index, -1) {
		listed["docs/"+m[1]]++
	}
	for _, path := range paths {
		if strings.HasPrefix(path, "docs/") && path != "docs/README.md" && listed[path] != 1 {
			problems = append(problems, fmt.Sprintf("docs/README.md: has %d entries for %s, not 1", listed[path], path))
		}
		delete(listed, path)
	}
	for path := range listed {
		problems = append(problems, fmt.Sprintf("docs/README.md: there is no %s", path))
	}
	slices.Sort(problems)
	return problems
}

func TestIndexRule(t *testing.T) {
	same(t, indexProblems("- [a](a.md): A, see [c](c.md)\n| [b](b.md) | B |\n- [b](b.md)\n- [d](d.md)\n",
		[]string{"README.md", "docs/README.md", "docs/a.md", "docs/b.md", "docs/c.md"}),
		"docs/README.md: has 0 entries for docs/c.md", "docs/README.md: has 2 entries for docs/b.md",
		"docs/README.md: there is no docs/d.md")
}

// TestWidthOfPages fails on lines that are too wide to be read in a terminal.
func TestWidthOfPages(t *testing.T) {
	for _, path := range pages(t) {
		for _, problem := range widthProblems(path, document(t, path)) {
			t.Error(problem)
		}
	}
}

const (
	proseWidth = 100
	codeWidth  = 160
)

var (
	webAddress = regexp.MustCompile(`https?://[^\s)>]+`)
	listItem   = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
)

// widthProblems finds the lines of a page that are too wide. Addresses do not count, nor do tables, whose rows cannot be
// broken.
func widthProblems(path, text string) (problems []string) {
	fenced, comment, code, list, blank := false, false, false, false, true
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		fence := strings.HasPrefix(trimmed, "```")
		switch { // a block of code that is indented begins after a blank line, deeper than a list's text
		case trimmed == "":
			blank = true
			continue
		case code && indent >= 4: // it goes on
		case listItem.MatchString(line) && (list || indent < 4):
			list, code = true, false
		case indent == 0:
			list, code = false, false
		case blank:
			code = indent >= 4 && (!list || indent >= 6)
		}
		blank = false
		comment = comment || strings.HasPrefix(trimmed, "<!--")
		limit := proseWidth
		switch {
		case fenced || fence || comment || code:
			limit = codeWidth
		case strings.HasPrefix(trimmed, "|"):
			continue
		}
		if fence {
			fenced = !fenced
		}
		if strings.Contains(line, "-->") {
			comment = false
		}
		if n := utf8.RuneCountInString(webAddress.ReplaceAllString(line, "")); n > limit {
			problems = append(problems, fmt.Sprintf("%s:%d: has %d columns, more than %d", path, i+1, n, limit))
		}
	}
	return problems
}

func TestWidthRule(t *testing.T) {
	wide, wider := strings.Repeat("x", 101), strings.Repeat("x", 161)
	same(t, widthProblems("a.md", strings.Join([]string{
		wide[:100], "https://example.com/" + wide, "| " + wider + " |", "", "    " + wide, "",
		"- item", "", "      " + wide, "", "end", "", "    - code", "      " + wide, "", "```", wide, "```", "<!-- docs-test: setup", wide, "-->",
	}, "\n")))
	same(t, widthProblems("a.md", strings.Join([]string{
		wide, "- item", "    " + wide, "", "  " + wide, "```sh", wider, "```", wide, "", "    " + wider,
		"<!-- a -->", wide,
	}, "\n")),
		"a.md:1: has 101 columns, more than 100", "a.md:3: has 105", "a.md:5: has 103", "a.md:7: has 161 columns, more than 160",
		"a.md:9: has 101", "a.md:11: has 165", "a.md:13: has 101")
}
