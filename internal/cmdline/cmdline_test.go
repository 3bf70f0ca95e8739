package cmdline

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"redis-cli  ping":           {"redis-cli", "ping"},
		" ./bin/check --port 8080 ": {"./bin/check", "--port", "8080"},
		"echo 'a b'":                {"/bin/sh", "-c", "echo 'a b'"},
		"A=1 check":                 {"/bin/sh", "-c", "A=1 check"},
		"test -f x && exit 1":       {"/bin/sh", "-c", "test -f x && exit 1"},
		"exit 3":                    {"/bin/sh", "-c", "exit 3"},
		"check $PORT0":              {"/bin/sh", "-c", "check $PORT0"},
	} {
		argv, err := Split(line)
		if err != nil || !slices.Equal(argv, want) {
			t.Errorf("%q: %q, error %v", line, argv, err)
		}
	}
	for _, bad := range []string{"", "  ", "a\x00b"} {
		if argv, err := Split(bad); err == nil {
			t.Errorf("%q is accepted: %q", bad, argv)
		}
	}
}
