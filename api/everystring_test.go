package api

import (
	"reflect"
	"strings"
	"testing"
)

// notExpanded are the strings of a process task in which a variable has no place, each
// with the reason.
var notExpanded = map[string]string{
	"Version":                      "the scheduler writes it, and it names things",
	"Kind":                         "the scheduler writes it, and it names things",
	"Taskgroup.ID":                 "the scheduler writes it, and it names things",
	"Taskgroup.Name":               "the scheduler writes it, and it names things",
	"Taskgroup.Application":        "the scheduler writes it, and it names things",
	"Taskgroup.Namespace":          "the scheduler writes it, and it names things",
	"Taskgroup.Cluster":            "the scheduler writes it, and it names things",
	"Name":                         "the scheduler writes it, and it names things",
	"NodeIP":                       "the scheduler writes it, and it names things",
	"Ports[].Name":                 "the scheduler writes it, and it names things",
	"Ports[].Protocol":             "the scheduler writes it, and it names things",
	"PeerPorts[].Name":             "the scheduler writes it, and it names things",
	"PeerPorts[].Protocol":         "the scheduler writes it, and it names things",
	"Lifecycle":                    "it is one of a few words",
	"Process.URIs[].PullPolicy":    "it is one of a few words",
	"Network.Mode":                 "it is one of a few words",
	"Network.Type":                 "it is one of a few words",
	"HealthChecks[].Type":          "it is one of a few words",
	"HealthChecks[].Probe":         "it is one of a few words",
	"HealthChecks[].HTTP.Scheme":   "it is one of a few words",
	"Process.URIs[].Mode":          "it is a number",
	"Process.Ulimits[]":            "it is a number",
	"Network.Name":                 "it names a network of the agent for the whole taskgroup",
	"Env[].Source.URL":             "it is the configmap's or secret's and not the process's",
	"Env[].Source.User":            "it is the configmap's or secret's and not the process's",
	"Env[].Source.Password":        "it is the configmap's or secret's and not the process's",
	"Files[].Source.URL":           "it is the configmap's or secret's and not the process's",
	"Files[].Source.User":          "it is the configmap's or secret's and not the process's",
	"Files[].Source.Password":      "it is the configmap's or secret's and not the process's",
	"HealthChecks[].HTTP.PortName": "it names a port of the artifact, which is looked up",
	"HealthChecks[].TCP.PortName":  "it names a port of the artifact, which is looked up",
	"HealthChecks[].GRPC.PortName": "it names a port of the artifact, which is looked up",
	"KillPolicy.StopSignal":        "it is for containers",
	"Labels{}":                     "it is for those who look for objects, the same for all instances",
}

// leaves calls do for every string of a value, one element of each list and map, with
// its path; set tells that lists and maps are to be filled.
func leaves(v reflect.Value, at string, set bool, do func(at string, get func() string, put func(string))) {
	switch v.Kind() {
	case reflect.String:
		do(at, v.String, v.SetString)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			leaves(v.Field(i), strings.TrimPrefix(at+"."+f.Name, "."), set, do)
		}
	case reflect.Pointer:
		if set && v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			leaves(v.Elem(), at, set, do)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // content, not text
		}
		if set {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		if v.Len() > 0 {
			leaves(v.Index(0), at+"[]", set, do)
		}
	case reflect.Map:
		if set {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("k"), reflect.Zero(v.Type().Elem()))
		}
		k := reflect.ValueOf("k")
		if e := v.MapIndex(k); e.IsValid() && e.Kind() == reflect.String {
			do(at+"{}", func() string { return v.MapIndex(k).String() }, func(s string) { v.SetMapIndex(k, reflect.ValueOf(s)) })
		}
	default: // no text
	}
}

// TestEveryStringOfAProcessTaskIsExpandedOrHasAReason walks the whole specification, so
// that no field that is added later is forgotten.
func TestEveryStringOfAProcessTaskIsExpandedOrHasAReason(t *testing.T) {
	t.Parallel()
	const mark = "/x${bcs.instanceid}y"
	spec := &TaskSpec{}
	leaves(reflect.ValueOf(spec).Elem(), "", true, func(at string, _ func() string, put func(string)) { put(mark) })
	spec.Kind, spec.Container = TaskProcess, nil
	spec.Taskgroup.Index = 2
	got, err := ExpandSpec(spec, Dirs{WorkBase: "/w", RunBase: "/r"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	leaves(reflect.ValueOf(got).Elem(), "", false, func(at string, get func() string, _ func(string)) {
		seen[at] = true
		switch expanded, why := get() == "/x2y" || at == "Env[].Name", notExpanded[at]; {
		case expanded && why != "":
			t.Errorf("%s is expanded, though %s", at, why)
		case !expanded && why == "":
			t.Errorf("%s is not expanded, and no reason is given", at)
		}
	})
	for at := range notExpanded {
		if !seen[at] {
			t.Errorf("%s is no field any more", at)
		}
	}
}
