package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// source is a text with resources, and its origin.
type source struct {
	name string
	data []byte
}

// readSources reads files, directories, URLs and the standard input, which is "-" or no targets.
func readSources(ctx context.Context, s *invocation, targets []string, recursive bool) ([]source, error) {
	if len(targets) == 0 {
		targets = []string{"-"}
	}
	var out []source
	for _, target := range targets {
		path, local := localPath(target)
		switch {
		case target == "-":
			data, err := io.ReadAll(s.in)
			if err != nil {
				return nil, fmt.Errorf("read stdin: %w", err)
			}
			if len(strings.TrimSpace(string(data))) == 0 {
				return nil, hint(errors.New("empty stdin"), "Name a file, directory or URL with --file.")
			}
			out = append(out, source{"stdin", data})
		case !local:
			data, err := download(ctx, s, target)
			if err != nil {
				return nil, fmt.Errorf("get %s: %w", target, err)
			}
			out = append(out, source{target, data})
		default:
			found, err := readFileOrDir(path, recursive)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

// localPath returns the path of a target that is a file or directory of this computer. It may be written as a file:// URL.
func localPath(target string) (path string, ok bool) {
	if target == "-" {
		return "", false
	}
	u, err := url.Parse(target)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https"):
		return "", false
	case err == nil && u.Scheme == "file":
		return filepath.FromSlash(u.Path), true
	}
	return target, true
}

// resourceFiles are the endings of files that are read from directories, which have others too, such as README.md.
var resourceFiles = []string{".yaml", ".yml", ".json"}

// readFileOrDir reads a file, the YAML and JSON files in a directory or, with recursive, also in its subdirectories.
// Hidden ones, for example .git, are skipped.
func readFileOrDir(path string, recursive bool) ([]source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	if !info.IsDir() {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read resources: %w", err)
		}
		return []source{{path, data}}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	var out []source
	for _, entry := range entries {
		if hiddenFile(entry) {
			continue
		}
		name := filepath.Join(path, entry.Name())
		// Follow links to files: a mounted ConfigMap has them. Do not follow links to directories: they could form a
		// circle.
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) && !slices.Contains(resourceFiles, strings.ToLower(filepath.Ext(name))) {
			continue // a link to nothing that would not be read
		}
		if err != nil {
			return nil, fmt.Errorf("read resources: %w", err)
		}
		if isResourceFile(info) || (entry.IsDir() && recursive) {
			found, err := readFileOrDir(name, recursive)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

func hiddenFile(entry fs.DirEntry) bool { return strings.HasPrefix(entry.Name(), ".") }

func isResourceFile(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && slices.Contains(resourceFiles, strings.ToLower(filepath.Ext(info.Name())))
}

// unread names subdirectories with files of resources that are left out, and files with a mistyped ending. To prune without
// these files would delete what they define, so that is an error.
func (s *invocation) unread(in *inputFiles) error {
	var dirs []string
	for _, target := range in.targets {
		if path, ok := localPath(target); ok {
			dirs = append(dirs, readDirs(path, in.recursive)...)
		}
	}
	read := map[string]bool{} // without links
	for _, dir := range dirs {
		read[realPath(dir)] = true
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("read resources: %w", err)
		}
		for _, entry := range entries {
			name := filepath.Join(dir, entry.Name())
			note, way := "see --recursive", "Add --recursive, or name the files instead of the directory."
			switch ending := mistyped[strings.ToLower(filepath.Ext(name))]; {
			case hiddenFile(entry):
				continue
			case !isDirectory(name) && ending != "":
				note = "its name does not end in " + ending
				way = "Rename it to end in " + ending + ", or move it out of the directory."
			case !isDirectory(name) || !holdsResources(name, maps.Clone(read)):
				continue
			case !entry.IsDir():
				note = "it is a link to a directory; name it with -f"
				way = "Links to directories are not followed: name it with -f too."
			}
			if in.whole {
				return hint(fmt.Errorf("%s would not be read, and what it defines would be deleted", name), "%s", way)
			}
			fmt.Fprintf(s.errOut, "%s is not read: %s\n", printable(name), note)
		}
	}
	return nil
}

// mistyped has endings with a typing error, and what they were meant to be. A list, since many endings of other files are
// near to these too, such as .tmpl and .jsonl.
var mistyped = map[string]string{
	".yalm": ".yaml", ".ymal": ".yaml", ".yam": ".yaml", ".yaaml": ".yaml", ".yamll": ".yaml", ".yaml1": ".yaml", ".yamal": ".yaml",
	".yl": ".yml", ".ym": ".yml", ".ylm": ".yml", ".yaml_": ".yaml",
	".jsn": ".json", ".jso": ".json", ".josn": ".json", ".jsno": ".json", ".jon": ".json", ".jason": ".json", ".sjon": ".json",
}

// readDirs returns the directories of which readFileOrDir reads the files. There are none if the path is of a file.
func readDirs(path string, recursive bool) (dirs []string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	dirs = []string{path}
	for _, entry := range entries {
		if recursive && entry.IsDir() && !hiddenFile(entry) {
			dirs = append(dirs, readDirs(filepath.Join(path, entry.Name()), true)...)
		}
	}
	return dirs
}

// holdsResources reports whether a directory or one below it has files of resources, also behind links, except for the
// directories in seen. It adds those that it looks at: links may form a circle. What cannot be read may have some.
func holdsResources(dir string, seen map[string]bool) bool {
	real := realPath(dir)
	if seen[real] {
		return false
	}
	seen[real] = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, entry := range entries {
		if hiddenFile(entry) {
			continue
		}
		name := filepath.Join(dir, entry.Name())
		info, err := os.Stat(name)
		if err != nil || isResourceFile(info) || info.IsDir() && holdsResources(name, seen) {
			return true
		}
	}
	return false
}

// realPath returns a path without links, or the path itself if that is not known.
func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return path
	}
	return real
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// fileArgs accepts no arguments: files are named with --file. It says so, with the command to copy.
func fileArgs(cmd *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	err := args()(cmd, words)
	if h := new(hintError); errors.As(err, &h) {
		err = h.err
	}
	if k, ok := kindByName(words[0]); ok && len(words) > 1 {
		if one, _, _ := cmd.Root().Find([]string{k.Command, cmd.Name()}); one != nil && one.Name() == cmd.Name() && one != cmd {
			return hint(err, "Did you mean '%s %s'? Files are named with -f.", one.CommandPath(), joinWords(words[1:], " "))
		}
	}
	return hint(err, "Name files and directories with -f: %s -f %s", cmd.CommandPath(), joinWords(words, " -f "))
}

// joinWords joins words of a command to copy.
func joinWords(words []string, between string) string {
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, shellWord(word))
	}
	return strings.Join(quoted, between)
}

// download gets a text without our credentials, which are only for the API.
func download(ctx context.Context, s *invocation, target string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(data)))
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == "text/html" {
		return nil, errors.New("it is a web page: use the URL of a file with resources")
	}
	return data, nil
}
