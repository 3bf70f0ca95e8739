package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// epoch stands for every time in an image, so that it depends on its files only.
var epoch = time.Unix(0, 0).UTC()

// writeArchive writes the image name, made of the files of dir, to out.
func writeArchive(out, name, dir string) error {
	var layer bytes.Buffer
	if err := writeLayer(&layer, dir); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	digest := sum(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      epoch.Format(time.RFC3339),
		"config":       map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sh"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
		"history":      []map[string]any{{"created": epoch.Format(time.RFC3339), "created_by": "examples/build.sh"}},
	})
	if err != nil {
		return fmt.Errorf("encode the image's configuration: %w", err)
	}
	id := sum(config)
	manifest, err := json.Marshal([]map[string]any{{
		"Config": id + ".json", "RepoTags": []string{name}, "Layers": []string{digest + "/layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("encode the image's manifest: %w", err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{digest + "/layer.tar", layer.Bytes()}, {id + ".json", config}, {"manifest.json", manifest}} {
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: epoch, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", out, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return fmt.Errorf("write %s: %w", out, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	if err := os.WriteFile(out+".new", archive.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := os.Rename(out+".new", out); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// writeLayer writes the files of dir, owned by root, in the order of their names.
func writeLayer(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h.Name = rel
		if d.IsDir() {
			h.Name += "/"
		}
		// Permissions depend on the umask of whoever builds; these do not.
		switch {
		case d.IsDir() || info.Mode()&0o111 != 0:
			h.Mode = 0o755
		default:
			h.Mode = 0o644
		}
		h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
		h.ModTime, h.AccessTime, h.ChangeTime, h.Format = epoch, time.Time{}, time.Time{}, tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
