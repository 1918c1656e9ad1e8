package asset

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxFiles is how many entries an archive may have.
const maxFiles = 200_000

var errUnknownArchive = errors.New("it is neither a tar archive nor a gzip of one")

// unpack extracts an archive into dir. No entry may be written or point outside of dir. Entries that are no file,
// directory or link are refused, and so are files that occur twice.
func unpack(ctx context.Context, archive io.Reader, dir string, limit int64) error {
	r := bufio.NewReaderSize(archive, 64<<10)
	magic, err := r.Peek(512)
	if len(magic) < 2 {
		return errors.Join(errUnknownArchive, err)
	}
	var content io.Reader = r
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		unzipped, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		content = unzipped
	case len(magic) < 262 || string(magic[257:262]) != "ustar":
		return errUnknownArchive
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	u := unpacking{root: root, left: limit, links: map[string]bool{}}
	return errors.Join(u.all(ctx, tar.NewReader(content)), root.Close())
}

type unpacking struct {
	root *os.Root
	left int64 // bytes that may still follow
	// links are the symbolic links so far. No entry may lie behind one, because a link's target is checked by its name
	// alone.
	links map[string]bool
}

func (u *unpacking) all(ctx context.Context, r *tar.Reader) error {
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		switch {
		case err == io.EOF && n == 0:
			return errors.New("it is empty")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case n == maxFiles:
			return fmt.Errorf("it has more than %d entries", maxFiles)
		}
		if err := u.one(r, h); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

func (u *unpacking) one(r io.Reader, h *tar.Header) error {
	name := path.Clean(h.Name)
	if h.Typeflag == tar.TypeXGlobalHeader || name == "." {
		return nil
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return errors.New("its name leads outside")
	}
	if u.behindLink(name) {
		return errors.New("it would lie behind a link")
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	// Commands run as other users must be able to read the files. Setuid and similar bits are dropped.
	mode := os.FileMode(h.Mode)&0o777 | 0o400
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return u.root.Chmod(name, mode|0o700)
	case tar.TypeReg:
		return u.file(r, name, mode)
	case tar.TypeSymlink:
		if !staysInside(path.Dir(name), h.Linkname) {
			return errors.New("it is a link that leads outside, or may")
		}
		u.links[name] = true
		return u.root.Symlink(filepath.FromSlash(h.Linkname), name)
	case tar.TypeLink:
		target := path.Clean(h.Linkname)
		if u.links[target] { // at another place the link would lead elsewhere
			return errors.New("it is a link to a link")
		}
		if u.behindLink(target) { // the target could be a link itself, which its name does not show
			return errors.New("it is a link to a file behind a link")
		}
		return u.root.Link(target, name)
	}
	return errors.New("it is neither a file nor a directory nor a link")
}

// behindLink reports whether a directory on the way to name is a symbolic link of the archive.
func (u *unpacking) behindLink(name string) bool {
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if u.links[dir] {
			return true
		}
	}
	return false
}

// staysInside reports whether a link in dir stays within the archive. It may go up as far as the archive's root and
// then only down, since its name does not show where ".." leads behind another link.
func staysInside(dir, target string) bool {
	if target == "" || path.IsAbs(target) || !filepath.IsLocal(filepath.FromSlash(path.Join(dir, target))) {
		return false
	}
	down := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && down {
			return false
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return true
}

func (u *unpacking) file(r io.Reader, name string, mode os.FileMode) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(r, u.left+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if u.left -= n; u.left < 0 {
		return errors.New("the archive is too large when unpacked")
	}
	return u.root.Chmod(name, mode) // the umask does not apply
}

// Scripts returns the JavaScript files that assets bring for filters and mutators: those under lib, sorted by name.
func Scripts(installed []Installed) (files []string, err error) {
	for _, a := range installed {
		err := filepath.WalkDir(filepath.Join(a.Dir, "lib"), func(path string, d os.DirEntry, err error) error {
			switch {
			case errors.Is(err, os.ErrNotExist):
				return nil
			case err != nil:
				return err
			case !d.IsDir() && strings.HasSuffix(path, ".js"):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("scripts of asset %s: %w", a.Name, err)
		}
	}
	return files, nil
}
