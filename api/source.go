package api

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Stdin as a path means the standard input.
const Stdin = "-"

// DecodePaths decodes files, directories and, for the path "-", stdin, all
// as Decode does and with the errors of all of them at once. Of a directory it takes the
// files that end in .json, .yaml or .yml, sorted by name, but neither hidden files
// nor directories below. The same object in two places is an error.
func DecodePaths(paths []string, stdin io.Reader, opts Options) ([]Document, []FieldError, error) {
	d := newDecoding(opts)
	for _, p := range paths {
		if p == Stdin {
			d.reader(stdin, "stdin", opts.Format)
			continue
		}
		files, err := expandDir(p)
		if err != nil {
			d.unreadable(p, err)
			continue
		}
		for _, f := range files {
			d.file(f)
		}
	}
	if len(paths) == 0 {
		d.errs.Add("", nil, "no file is given; name files or directories, or - for the standard input")
	}
	return d.result()
}

func (d *decoding) file(name string) {
	f, err := os.Open(name)
	if err != nil {
		d.unreadable(name, err)
		return
	}
	defer f.Close()
	format := d.opts.Format
	if format == FormatAuto {
		switch strings.ToLower(filepath.Ext(name)) {
		case ".json":
			format = FormatJSON
		case ".yaml", ".yml":
			format = FormatYAML
		}
	}
	d.reader(f, name, format)
}

func (d *decoding) reader(r io.Reader, source string, format Format) {
	src, err := readLimited(r, source)
	if err != nil {
		var fe FieldError
		if errors.As(err, &fe) {
			d.errs = append(d.errs, fe)
		} else {
			d.unreadable(source, err)
		}
		return
	}
	d.source(src, source, format)
}

func (d *decoding) unreadable(source string, err error) {
	// The error of the operating system repeats the name.
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	d.errs = append(d.errs, FieldError{Source: source, Message: "cannot be read: " + err.Error()})
}

// expandDir returns the artifacts of a directory, or the path itself.
func expandDir(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		switch strings.ToLower(filepath.Ext(name)) {
		case ".json", ".yaml", ".yml":
		default:
			continue
		}
		// A link to a file will do; what it points to is not a directory's business.
		if info, err := os.Stat(filepath.Join(path, name)); err == nil && info.IsDir() {
			continue
		}
		files = append(files, filepath.Join(path, name))
	}
	if len(files) == 0 {
		return nil, errors.New("the directory holds no .json, .yaml or .yml files")
	}
	return files, nil
}

// readLimited reads all of r, or fails when there is more than a source may hold.
func readLimited(r io.Reader, source string) ([]byte, error) {
	src, err := io.ReadAll(io.LimitReader(r, MaxSourceBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", source, err)
	}
	if len(src) > MaxSourceBytes {
		return nil, FieldError{Source: source, Message: fmt.Sprintf("is larger than %d MiB; split it", MaxSourceBytes>>20)}
	}
	return src, nil
}
