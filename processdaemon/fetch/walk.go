package fetch

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// walk visits what lies below a directory, each directory before its content and in the
// order of the names. fs.SkipDir leaves the content of a directory out. Unlike
// fs.WalkDir it takes names that are not UTF-8, as archives have them.
func walk(root *os.Root, visit func(name string, st fs.FileInfo) error) error {
	return walkDir(root, ".", visit)
}

func walkDir(root *os.Root, dir string, visit func(string, fs.FileInfo) error) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	slices.SortFunc(names, strings.Compare)
	for _, n := range names {
		name := path.Join(dir, n)
		st, err := root.Lstat(name)
		if err != nil {
			return err
		}
		err = visit(name, st)
		if errors.Is(err, fs.SkipDir) {
			continue
		}
		if err != nil {
			return err
		}
		if st.IsDir() {
			if err := walkDir(root, name, visit); err != nil {
				return err
			}
		}
	}
	return nil
}
