package extract

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// suiteCase is an output of a check in testdata/points, and the points expected of it.
type suiteCase struct {
	name, format, output string
	tags                 []string
	points               []string
}

// suite reads the files of testdata/points, see the README there.
func suite(t testing.TB) (cases []suiteCase) {
	t.Helper()
	files, err := filepath.Glob("testdata/points/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	marks := strings.NewReplacer("${CR}", "\r", "${TAB}", "\t", "${LONG}", strings.Repeat("x", 65_600))
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var c *suiteCase
		var section string
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			line := lines.Text()
			head, rest, _ := strings.Cut(line, ": ")
			text, indented := strings.CutPrefix(line, "\t")
			switch {
			case line == "":
			case head == "case":
				cases = append(cases, suiteCase{name: rest, format: strings.TrimSuffix(filepath.Base(file), ".txt"), tags: []string{"dc=eu"}})
				c, section = &cases[len(cases)-1], ""
			case line == "tags: none":
				c.tags = nil
			case !indented && (line == "output:" || line == "output, its last line not ended:" || line == "points:"):
				section = line
			case indented && section == "output:":
				c.output += marks.Replace(text) + "\n"
			case indented && strings.HasPrefix(section, "output,"):
				if c.output != "" {
					c.output += "\n"
				}
				c.output += marks.Replace(text)
			case indented && section == "points:":
				c.points = append(c.points, text)
			default:
				t.Fatalf("%s:%d: %q is not understood", file, n, line)
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return cases
}

// pointLines writes points in the suite's form.
func pointLines(c *suiteCase) (lines []string) {
	for _, p := range Points(c.format, c.output, executed, testNow, tags(c.tags...), nil) {
		at := strconv.FormatInt(p.Timestamp, 10)
		switch p.Timestamp {
		case executed:
			at = "executed"
		case current:
			at = "now"
		}
		line := []string{p.Name, strconv.FormatFloat(p.Value, 'f', -1, 64), at}
		for _, tag := range p.Tags {
			line = append(line, tag.Name+"="+tag.Value)
		}
		lines = append(lines, strings.TrimRight(strings.Join(line, " | "), " "))
	}
	return lines
}

func TestSuite(t *testing.T) {
	cases := suite(t)
	formats := map[string]int{}
	for i := range cases {
		c := &cases[i]
		formats[c.format]++
		t.Run(c.format+"/"+c.name, func(t *testing.T) {
			got := pointLines(c)
			if c.format == Prometheus {
				slices.Sort(got) // its order has no meaning
			}
			if !slices.Equal(got, c.points) {
				t.Errorf("output %.200q\n got %q\nwant %q", c.output, got, c.points)
			}
		})
	}
	if len(formats) != 5 || len(cases) < 80 {
		t.Errorf("%d cases of %d formats, want at least 80 of 5", len(cases), len(formats))
	}
}
