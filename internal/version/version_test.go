package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestFillPrefersTheLinker(t *testing.T) {
	saved := Info{Version: Version, Commit: Commit, Date: Date}
	t.Cleanup(func() { Version, Commit, Date = saved.Version, saved.Commit, saved.Date })
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	for _, c := range []struct {
		name                           string
		version, commit, date          string
		info                           *debug.BuildInfo
		wantVersion, wantCommit, wantD string
	}{
		{"linker", "1.2.3", "abc", "2026", recorded, "1.2.3", "abc", "2026"},
		{"toolchain", "", "", "", recorded, "0.0.0-dev+0123456789ab.dirty", "0123456789abcdef", "2026-01-02T03:04:05Z"},
		{"nothing", "", "", "", nil, "0.0.0-dev", "unknown", "unknown"},
	} {
		Version, Commit, Date = c.version, c.commit, c.date
		fill(func() (*debug.BuildInfo, bool) { return c.info, c.info != nil })
		if Version != c.wantVersion || Commit != c.wantCommit || Date != c.wantD {
			t.Errorf("%s: %q %q %q, want %q %q %q", c.name, Version, Commit, Date, c.wantVersion, c.wantCommit, c.wantD)
		}
	}
}

func TestStringNamesVersionAndCommit(t *testing.T) {
	if s := String(); !strings.HasPrefix(s, Version+" (commit ") {
		t.Errorf("String() = %q", s)
	}
	if UserAgent("tandem") != "tandem/"+Version {
		t.Errorf("UserAgent = %q", UserAgent("tandem"))
	}
}
