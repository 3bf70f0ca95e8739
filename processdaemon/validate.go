package processdaemon

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tandem/internal/cmdline"
	"tandem/processdaemon/fetch"
	"tandem/processdaemon/protocol"
)

// validate finds everything that is wrong with a spec.
func validate(s *protocol.Spec) error {
	var bad []string
	add := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if s.ID == "" {
		add("id: missing")
	}
	if len(s.ID) > maxID || strings.ContainsFunc(s.ID, unicode.IsControl) || !utf8.ValidString(s.ID) || s.ID == "/" {
		// The last one has no path in the API.
		return fail(protocol.CodeInvalid, "id %.40q: want at most %d bytes of text without control characters, and not /", s.ID, maxID)
	}
	if s.Name == "" {
		s.Name = s.ID
	}
	if !filepath.IsAbs(s.Sandbox) {
		add("sandbox %q: must be an absolute directory", s.Sandbox)
	}
	if s.WorkPath == "" {
		s.WorkPath = s.Sandbox
	}
	if !filepath.IsAbs(s.WorkPath) {
		add("workPath %q: must be absolute, for example below ${work_base_dir}", s.WorkPath)
	}
	if s.PidFile != "" && !filepath.IsAbs(s.PidFile) {
		s.PidFile = filepath.Join(s.WorkPath, s.PidFile)
	}
	if s.LogPath != "" {
		if !filepath.IsAbs(s.LogPath) {
			s.LogPath = filepath.Join(s.WorkPath, s.LogPath)
		}
		if _, err := filepath.Match(s.LogPath, ""); err != nil {
			add("logPath %q: %v", s.LogPath, err)
		}
	}
	if _, err := cmdline.Split(s.StartCmd); err != nil {
		add("startCmd %q: %v", s.StartCmd, err)
	}
	if s.StartGrace < 0 || s.StartTimeout < 0 {
		add("startGracePeriod %v, startTimeout %v: must not be negative", s.StartGrace, s.StartTimeout)
	}
	checkAttrs(s, add)
	if s.Limits.Pids < protocol.PidsNone {
		add("limits.pids %d: want a number of processes, 0 for the default, or %d for no limit", s.Limits.Pids, protocol.PidsNone)
	} else if what := nonsense(s.Limits); what != "" {
		add("%s", what)
	}
	for i, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || strings.IndexByte(e, 0) >= 0 {
			add("env[%d]: want NAME=value without zero bytes", i)
		}
	}
	for i := range s.URIs {
		u := &s.URIs[i]
		if u.OutputDir == "" {
			u.OutputDir = s.WorkPath
		}
		if !filepath.IsAbs(u.OutputDir) {
			add("uris[%d].outputDir %q: must be absolute, for example below ${work_base_dir}", i, u.OutputDir)
		}
		if err := fetch.Check(*u); err != nil {
			add("uris[%d]: %v", i, err)
		}
	}
	if len(bad) > 0 {
		return fail(protocol.CodeInvalid, "process %q: %s", s.Name, strings.Join(bad, "; "))
	}
	return nil
}

// maxID is the longest id in bytes, and maxSpec the longest specification as JSON: far
// more than the kernel takes for a program's environment, and far less than what is read of
// a record.
const (
	maxID   = 1024
	maxSpec = 8 << 20
)

// specHash identifies a spec without depending on its passwords.
func specHash(s protocol.Spec) (string, error) {
	s.URIs = slices.Clone(s.URIs)
	for i := range s.URIs {
		s.URIs[i].Password, s.URIs[i].Digest = "", ""
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("task %q: %w", s.ID, err)
	}
	if len(b) > maxSpec {
		return "", fail(protocol.CodeInvalid, "task %q: its specification has %d MiB, and at most %d are taken; put large values into files", s.ID, len(b)>>20, maxSpec>>20)
	}
	return shortHash(string(b)), nil
}
