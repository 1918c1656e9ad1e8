package whisper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

const (
	suffix   = ".wsp"
	gzSuffix = ".gz"
	// taggedDir is where carbon has the files of names with tags.
	taggedDir = "_tagged"
	// dot stands for a dot in a tagged name that is not hashed.
	dot = "_DOT_"
)

// ErrHashedName is the reason for a file of a tagged series whose name is a hash: the series' own name is not in the
// file.
var ErrHashedName = errors.New("its name is a hash of the series' name and tags; " +
	"give a list of the tagged series' names")

// IsWhisper reports whether a file's name is that of a whisper file.
func IsWhisper(path string) bool {
	base := strings.TrimSuffix(filepath.Base(path), gzSuffix)
	return len(base) > len(suffix) && strings.HasSuffix(base, suffix)
}

// NameOf returns the name of the series whose file is at path, below root, as carbon lays files out. A file of a tagged
// series has a hash as its name as a rule: then the error is ErrHashedName, and HashOf has the hash.
func NameOf(root, path string) (string, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return "", fmt.Errorf("name of whisper file %s: %w", path, err)
	}
	rel = filepath.ToSlash(rel)
	if rel == ".." || strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("name of whisper file %s: it is not below %s", path, root)
	}
	if !IsWhisper(path) {
		return "", fmt.Errorf("name of whisper file %s: it does not end in %s or %s%s", path, suffix, suffix, gzSuffix)
	}
	rel = strings.TrimSuffix(strings.TrimSuffix(rel, gzSuffix), suffix)
	nodes := strings.Split(rel, "/")
	if nodes[0] != taggedDir || len(nodes) == 1 {
		return strings.Join(nodes, "."), nil
	}
	last := nodes[len(nodes)-1]
	if isHash(last) {
		return "", fmt.Errorf("name of whisper file %s: %w", path, ErrHashedName)
	}
	name := strings.ReplaceAll(last, dot, ".")
	if !strings.Contains(name, ";") {
		return "", fmt.Errorf("name of whisper file %s: it is below %s, and has neither tags nor a hash", path, taggedDir)
	}
	return name, nil
}

// HashOf returns the hash in the name of a tagged series' file, and "" if its name is none.
func HashOf(path string) string {
	base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), gzSuffix), suffix)
	if !isHash(base) {
		return ""
	}
	return base
}

func isHash(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// NameHash returns the hash by which carbon names the file of a tagged series. The name must be canonical.
func NameHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// PathOf returns the path of a series' file below root, as carbon lays files out. With hashed, that of a tagged series
// is named by its hash, which is carbon's default (TAG_HASH_FILENAMES). The name must be canonical. One that has no
// file of its own, as "a/b" has none, is an error.
func PathOf(root, name string, hashed bool) (string, error) {
	bad := func(reason string) (string, error) {
		return "", fmt.Errorf("path of series %q: %s", name, reason)
	}
	if strings.ContainsAny(name, "/\\\x00") {
		return bad("a name with a slash, a backslash or a zero byte has no whisper file")
	}
	if strings.Contains(name, ";") {
		hash := NameHash(name)
		base := hash
		if !hashed {
			base = strings.ReplaceAll(name, ".", dot)
			if isHash(base) || strings.ReplaceAll(base, dot, ".") != name {
				return bad("the name of its file would be that of another series")
			}
		}
		return filepath.Join(root, taggedDir, hash[:3], hash[3:6], base+suffix), nil
	}
	nodes := strings.Split(name, ".")
	for _, node := range nodes {
		if node == "" {
			return bad("it has an empty node")
		}
	}
	if nodes[0] == taggedDir && len(nodes) > 1 {
		return bad("files below " + taggedDir + " are those of tagged series")
	}
	return filepath.Join(root, filepath.Join(nodes...)+suffix), nil
}
