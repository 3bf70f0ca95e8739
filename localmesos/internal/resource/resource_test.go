package resource

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"pgregory.net/rapid"
)

func must(t *testing.T, text string) List {
	t.Helper()
	l, err := Parse(text, "*")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r")
	if err := os.WriteFile(file, []byte("cpus:2;mem:8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want string }{
		{"cpus:4;mem:4096;disk:10240;ports:[31000-32000]", "cpus:4; mem:4096; disk:10240; ports:[31000-32000]"},
		{" cpus : 0.1 ; cpus:0.2;", "cpus:0.3"},
		{"ports:[5-6, 1-2,3-3]", "ports:[1-3, 5-6]"},
		{"cpus(web):1;cpus:2", "cpus(reservations: [(STATIC,web)]):1; cpus:2"},
		{"gpus:0", ""},
		{"disks:{b,a,b}", "disks:{a,b}"},
		{`[{"name":"cpus","type":"SCALAR","scalar":{"value":1.5}}]`, "cpus:1.5"},
		{"file://" + file, "cpus:2; mem:8"},
	} {
		l, err := Parse(c.in, "*")
		if err != nil || l.String() != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.in, l.String(), err, c.want)
		}
	}
	for in, part := range map[string]string{
		"cpus":            `resource "cpus": expected name:value`,
		"cpus:many":       `neither a number`,
		"cpus:-1":         `negative`,
		"ports:[1-":       `no closing ]`,
		"ports:[2-1]":     `"2-1" is not begin-end`,
		"cpus(:1;mem:x":   `name(role)`,
		"file:///no/such": `no such file`,
		`[{"name":1}]`:    `resources[0]`,
		"cpus:1e300":      "too large",
	} {
		if _, err := Parse(in, "*"); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want %q", in, err, part)
		}
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	got, err := ParseAttributes("rack:r1;slots:4;window:[1-5,8-9];set:{a,b};url:a:b")
	if err != nil || len(got) != 5 {
		t.Fatal(got, err)
	}
	if got[0].GetText().GetValue() != "r1" || got[1].GetScalar().GetValue() != 4 || len(got[2].GetRanges().GetRange()) != 2 ||
		got[3].Type != mesos.SET || got[4].GetText().GetValue() != "a:b" {
		t.Errorf("%v", got)
	}
	if _, err := ParseAttributes("rack"); err == nil {
		t.Error("an attribute without a value was taken")
	}
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	all := must(t, "cpus:4;mem:4096;ports:[31000-32000]")
	part := must(t, "cpus:0.1;ports:[31000-31000,31500-31600]")
	left := all.Sub(part...)
	if got := left.String(); got != "cpus:3.9; mem:4096; ports:[31001-31499, 31601-32000]" {
		t.Error(got)
	}
	if !left.Add(part...).Equal(all) {
		t.Error("difference and part are not the whole")
	}
	if all.Contains(must(t, "ports:[30999-31000]")...) || !all.Contains(part...) || all.Contains(must(t, "gpus:1")...) {
		t.Error("Contains")
	}
	if all.Contains(part.Allocate("*")...) {
		t.Error("what is allocated is not in what is not")
	}
	// Binary fractions must not leave crumbs.
	sum := List(nil)
	for range 10 {
		sum = sum.Add(must(t, "cpus:0.1")...)
	}
	if !sum.Sub(must(t, "cpus:1")...).Empty() {
		t.Errorf("ten times 0.1 is %s", sum)
	}
	if got := all.RangesFirst().Allocate("*").String(); got != "ports(allocated: *):[31000-32000]; cpus(allocated: *):4; mem(allocated: *):4096" {
		t.Error(got)
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	l := must(t, "cpus(a):1;cpus:2;cpus(b):4")
	if got := l.AvailableTo("a/x").String(); got != "cpus(reservations: [(STATIC,a)]):1; cpus:2" {
		t.Error(got)
	}
	for _, r := range l {
		if back := Upgrade(Downgrade(r)); !back.Equal(r) {
			t.Errorf("%v became %v", r, back)
		}
	}
	if d := l.Downgraded(); d[0].GetRole() != "a" || d[1].GetRole() != "*" || d[0].Reservations != nil {
		t.Errorf("%v", d)
	}
}

// TestRangesModel compares the ranges with plain sets of numbers.
func TestRangesModel(t *testing.T) {
	t.Parallel()
	draw := rapid.Custom(func(t *rapid.T) []mesos.Value_Range {
		var out []mesos.Value_Range
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			b := rapid.Uint64Range(0, 30).Draw(t, "begin")
			out = append(out, mesos.Value_Range{Begin: b, End: b + rapid.Uint64Range(0, 6).Draw(t, "more")})
		}
		return out
	})
	numbers := func(rs []mesos.Value_Range) map[uint64]bool {
		m := map[uint64]bool{}
		for _, r := range rs {
			for i := r.Begin; i <= r.End; i++ {
				m[i] = true
			}
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		na, nb := numbers(a), numbers(b)
		diff, sum := numbers(subRanges(a, b)), numbers(mergeRanges(append(append([]mesos.Value_Range{}, a...), b...)))
		for i := range uint64(40) {
			if diff[i] != (na[i] && !nb[i]) || sum[i] != (na[i] || nb[i]) {
				t.Fatalf("%v and %v: wrong at %d", a, b, i)
			}
		}
		merged := mergeRanges(a)
		for i := 1; i < len(merged); i++ {
			if merged[i].Begin <= merged[i-1].End+1 {
				t.Fatalf("not the fewest ranges: %v", merged)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("cpus:4;ports:[1-2]")
	f.Add("[{\"name\":\"a\"}]")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.HasPrefix(strings.TrimSpace(text), "file://") {
			return
		}
		if l, err := Parse(text, "*"); err == nil && !l.Equal(l.Add()) {
			t.Errorf("%q: not equal to itself", text)
		}
		_, _ = ParseAttributes(text)
	})
}
