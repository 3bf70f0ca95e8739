package api

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestValuesWithQuotesStayOneWord: whatever a path holds, the program gets it as
// it is, wherever in the line the variable stands. A real shell is the judge.
func TestValuesWithQuotesStayOneWord(t *testing.T) {
	t.Parallel()
	lines := []string{
		`printf %s ${workPath}`, `printf %s "${workPath}"`, `printf %s '${workPath}'`, `printf %s "$(printf %s ${workPath})"`,
		`printf %s "$(printf %s "${workPath}")"`, `printf %s $(printf %s '"'>/dev/null)${workPath}`, `x=${workPath}; printf %s "$x"`,
		`(printf %s ${workPath})`, `printf %s \\${workPath} | sed "1s/.//"`, `echo "it's" '"' >/dev/null; printf %s ${workPath}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		value := "/" + rapid.StringOfN(rapid.SampledFrom([]rune("ab '\"\\$`;&|<>(){}*?[]#~!=%é\n\t")), 0, 12, -1).Draw(t, "value") + "x" // $(...) drops line breaks at the end
		line := rapid.SampledFrom(lines).Draw(t, "line")
		v := NewVars(processSpec(), Dirs{})
		v.values[varWorkPath] = value
		got, unknown, err := v.ExpandCommand(line)
		if err != nil || unknown != nil {
			t.Fatalf("%s with %q: %v %v", line, value, unknown, err)
		}
		out, err := exec.Command("/bin/sh", "-c", got).CombinedOutput()
		if err != nil || strings.TrimSuffix(string(out), "\n") != value {
			t.Fatalf("%s with %q became %s, which gave %q, %v", line, value, got, out, err)
		}
	})
}

func TestPlainValuesAreNotQuoted(t *testing.T) {
	t.Parallel()
	v := NewVars(processSpec(), Dirs{})
	v.values[varWorkPath] = "/srv/work_dir/test.mongodb.2"
	got, _, err := v.ExpandCommand("${workPath}/start.sh -p ${ports.svc_port} `cat ${workPath}/x`")
	if want := "/srv/work_dir/test.mongodb.2/start.sh -p 27017 `cat /srv/work_dir/test.mongodb.2/x`"; got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	v.values[varWorkPath] = "/a b"
	for line, want := range map[string]string{"`ls ${workPath}`": "backquotes", `ls \${workPath}`: "backslash"} {
		if _, _, err := v.ExpandCommand(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// FuzzExpandCommand: any line, with values that need no quotes, is what Expand makes of it.
func FuzzExpandCommand(f *testing.F) {
	for _, s := range []string{"", "${hostip}", "'${hostip}", "\"$(${hostip}", "`\\${hostip}", "$${hostip} ${", "$((1+(2))) ${ports.svc_port}", "))''${x}"} {
		f.Add(s)
	}
	v := NewVars(processSpec(), Dirs{WorkBase: "/w", RunBase: "/r"})
	f.Fuzz(func(t *testing.T, s string) {
		want, unknown := v.Expand(s)
		got, unknownToo, err := v.ExpandCommand(s)
		if got != want || err != nil || !reflect.DeepEqual(unknown, unknownToo) {
			t.Fatalf("%q: %q and %q, %v, %v and %v", s, got, want, err, unknown, unknownToo)
		}
	})
}

// TestEveryTextOfAProcessIsExpanded: of a field that is added later, too.
func TestEveryTextOfAProcessIsExpanded(t *testing.T) {
	t.Parallel()
	spec := processSpec()
	spec.HealthChecks = []HealthCheck{{HTTP: &HTTPCheck{Path: "/", Headers: map[string]string{"Host": "x"}}, GRPC: &GRPCCheck{}, Command: &CommandCheck{}}}
	const mark = "/${bcs.taskgroupname}"
	var set func(v reflect.Value, at string)
	fields := 0
	set = func(v reflect.Value, at string) {
		for i := range v.NumField() {
			name := at + v.Type().Field(i).Name
			switch f := v.Field(i); {
			case strings.HasSuffix(name, "Policy"), strings.HasSuffix(name, "Digest"), name == "URIs.Mode":
			case f.Kind() == reflect.String:
				f.SetString(mark)
				fields++
			case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
				set(f.Index(0), name+".")
			}
		}
	}
	set(reflect.ValueOf(spec.Process).Elem(), "")
	h := &spec.HealthChecks[0]
	h.HTTP.Path, h.HTTP.Headers["Host"], h.GRPC.Service, h.Command.Value = mark, mark, mark, mark
	got, err := ExpandSpec(spec, Dirs{WorkBase: "/w", RunBase: "/r"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "/mongodb-2"
	var check func(v reflect.Value, at string)
	check = func(v reflect.Value, at string) {
		for i := range v.NumField() {
			name := at + v.Type().Field(i).Name
			switch f := v.Field(i); {
			case f.Kind() == reflect.String && f.String() != "":
				fields--
				if f.String() != want {
					t.Errorf("%s is %q", name, f.String())
				}
			case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
				check(f.Index(0), name+".")
			}
		}
	}
	check(reflect.ValueOf(got.Process).Elem(), "")
	h = &got.HealthChecks[0]
	if fields != 0 || h.HTTP.Path != want || h.HTTP.Headers["Host"] != want || h.GRPC.Service != want || h.Command.Value != want {
		t.Errorf("%d fields, checks %+v %+v %+v", fields, h.HTTP, h.GRPC, h.Command)
	}
}

// TestEveryTextOfAProcessIsChecked: an unknown variable is found in each, with
// its path and the nearest known one.
func TestEveryTextOfAProcessIsChecked(t *testing.T) {
	t.Parallel()
	notExpanded := map[string]bool{"name": true, "lifecycle": true, "newPrivileges": true, "umask": true}
	base := Process{Name: "a", ProcName: "a", WorkPath: "/w", PidFile: "/p", StartCmd: "a"}
	typ := reflect.TypeOf(base)
	for i := range typ.NumField() {
		key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if typ.Field(i).Type.Kind() != reflect.String || notExpanded[key] {
			continue
		}
		p := base
		reflect.ValueOf(&p).Elem().Field(i).SetString("/${hostipp}")
		c := &checker{}
		c.process("p", &p, map[string]bool{}, nil)
		found := false
		for _, e := range c.found.errs {
			found = found || e.Path == "p."+key && strings.Contains(e.Message, "did you mean hostip?")
		}
		if !found {
			t.Errorf("%s: %v", key, c.found.errs)
		}
	}
	for _, nested := range []string{"${a${hostip}}", "${ports.${x}}", "${${hostip}}", "${", "${workPath} ${"} {
		c := &checker{}
		p := base
		p.StartCmd = nested
		if c.process("p", &p, map[string]bool{}, nil); len(c.found.errs) == 0 {
			t.Errorf("%s is accepted; what is nested is no variable", nested)
		}
	}
}

// TestPortsOfThePeersAreVariables: the own port wins over a peer's of the same name.
func TestPortsOfThePeersAreVariables(t *testing.T) {
	t.Parallel()
	spec := processSpec()
	spec.PeerPorts = []TaskPort{{Name: "cache", HostPort: 6379}, {Name: "svc_port", HostPort: 1}}
	v := NewVars(spec, Dirs{})
	if got, unknown := v.Expand("${ports.cache} ${bcs.ports.cache} ${ports.svc_port}"); got != "6379 6379 27017" || unknown != nil {
		t.Errorf("%q %v", got, unknown)
	}
}
