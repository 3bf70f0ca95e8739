package flags

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"15mins": 15 * time.Minute, "500ms": 500 * time.Millisecond, "2secs": 2 * time.Second, "1weeks": 7 * 24 * time.Hour,
		"3us": 3 * time.Microsecond, "7ns": 7, "1days": 24 * time.Hour, "10hrs": 10 * time.Hour, "0ns": 0,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if back := FormatDuration(want); back != text {
			t.Errorf("%v is written %q, want %q", want, back, text)
		}
	}
	for text, want := range map[string]time.Duration{"1.5secs": 1500 * time.Millisecond, "-1secs": -time.Second} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "15", "secs", "15 min", "1e300weeks", "NaNsecs", "15minutes"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	var d time.Duration
	var dir string
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	set.SetNormalizeFunc(Normalize)
	set.StringVar(&dir, "work_dir", "", "")
	DurationVar(set, &d, "agent_ping_timeout", "")
	if err := set.Parse([]string{"--work-dir=/w", "--agent_ping_timeout", "1h30m"}); err != nil {
		t.Fatal(err)
	}
	if dir != "/w" || d != 90*time.Minute {
		t.Error(dir, d)
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0B": 0, "1B": 1, "2GB": 2 << 30, "3KB": 3 << 10, "1025MB": 1025 << 20, "1TB": 1 << 40} {
		got, err := ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
		if back := FormatBytes(want); back != text {
			t.Errorf("%d is written %q, want %q", want, back, text)
		}
	}
	for _, text := range []string{"", "1", "GB", "-1B", "1.5GB", "9999999999GB", "1 GB", "1gb"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
