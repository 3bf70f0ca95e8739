package api

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const minimalApp = `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}}`

func TestEveryErrorAndItsPlace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ src, want string }{
		"syntax": {`{"kind": "service",}`,
			`f:1:20: not valid JSON: invalid character '}' looking for beginning of object key string; remove the comma before it`},
		"missing comma": {"{\n\"kind\": \"service\"\n\"x\": 1}",
			`f:3:1: not valid JSON: invalid character '"' after object key:value pair; is a comma missing before it?`},
		"truncated": {`{"kind": "service"`,
			`f:1:19: not valid JSON: the source ends in the middle of a document; is a closing brace missing?`},
		"comment": {"{\n  // text\n}",
			`f:2:3: not valid JSON: invalid character '/'; JSON has no comments`},
		"yaml": {"kind: service\n\tmetadata: x",
			`f:2: not valid YAML: found a tab character that violates indentation; indent with spaces, not tabs`},
		"empty":       {"", `f: holds no document`},
		"only a text": {`hello`, `f:1:1: a document must be an object with keys, not a text`},
		"no kind": {`{"metadata":{"name":"x"}}`,
			`f:1:1: kind: is missing; add one of application, configmap, deployment, endpoint, process, secret, service`},
		"unknown kind": {`{"kind":"Aplicacion"}`,
			`f:1:9: kind: "Aplicacion": is not a known kind; use one of application, configmap, deployment, endpoint, process, secret, service; did you mean application?`},
		"unknown version": {`{"apiVersion":"v2","kind":"application"}`,
			`f:1:15: apiVersion: "v2": is not a known version; kind application has v4`},
		"types": {`{"kind":"service","metadata":{"name":5,"labels":[]},
"spec":{"ports":[{"name":"p","servicePort":"80"},{"name":"q","servicePort":1.5},null],"selector":{"a":true}}}`,
			`f:1:38: metadata.name: "5": must be a text, not a number; put it in quotes
f:1:49: metadata.labels: must be an object with keys, not a list
f:2:44: spec.ports[0].servicePort: "80": must be a whole number, not a text; remove the quotes
f:2:76: spec.ports[1].servicePort: "1.5": must be a whole number, written with digits only
f:2:81: spec.ports[2]: is null; remove it from the list
f:2:103: spec.selector.a: "true": must be a text, not true or false; put it in quotes`},
		"two documents": {"kind: secret\nmetadata: {name: a.b}\n---\nkind: secret\nmetadata: {}\ndatas: {k: {content: \"not base64\"}}\n",
			`f:2:18 (document 1): metadata.name: "a.b": must be a DNS label: letters, digits and '-', at most 63, the first and last not '-'
f:5:11 (document 2): metadata.name: is required: letters, digits and '-', at most 63 of them
f:6:22 (document 2): datas.k.content: is not base64; encode it, for example with: base64 -w0`},
		"good before a fault": {"{\"kind\":\"secret\"} {",
			`f:1:1: metadata.name: is required: letters, digits and '-', at most 63 of them
f:1:20: not valid JSON: the source ends in the middle of a document; is a closing brace missing?`},
		"twice": {minimalApp + "\n" + minimalApp,
			`f:2: metadata.name: "a": application/defaultGroup/a is declared already in f, line 1; remove one of the two`},
		"huge number": {`{"kind":"application","metadata":{"name":"a"},"spec":{"instance":99999999999999999999,"template":{"spec":{"containers":[{"image":"i"}]}}}}`,
			`f:1:66: spec.instance: "99999999999999999999": is too large a number`},
		"secret value of a wrong type": {`{"kind":"secret","metadata":{"name":"s"},"datas":{"k":{"content":123456}}}`,
			`f:1:66: datas.k.content: must be a text, not a number; put it in quotes`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Decode(strings.NewReader(c.src), "f", Options{})
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeysInAnyCase(t *testing.T) {
	t.Parallel()
	o := decodeOne(t, `{"KIND":"Application","MetaData":{"NAME":"a"},
"Constraint":{"IntersectionItem":[{"UnionData":[{"Name":"hostname","Operate":"UNIQUE"}]}]},
"UpdatePolicy":{"MAXRETRIES":7},
"spec":{"template":{"metadata":{"labels":{"App":"x","app":"y"}},"spec":{"networktype":"CNI","networkMode":"mynet","containers":[{"image":"i","imagepullpolicy":"Always"}]}}}}`)
	a, ok := o.(*Application)
	if !ok {
		t.Fatalf("%T", o)
	}
	if a.Constraint.IntersectionItem[0].UnionData[0].Operate != OpUnique || a.UpdatePolicy.MaxRetries != 7 ||
		a.Spec.Template.Spec.NetworkType != "cni" || a.Spec.Template.Spec.Containers[0].ImagePullPolicy != PullAlways {
		t.Errorf("%+v", a)
	}
	if diff := cmp.Diff(map[string]string{"App": "x", "app": "y"}, a.PodLabels()); diff != "" {
		t.Errorf("labels keep their case (-want +got):\n%s", diff)
	}
}

func TestWarningsAndStrict(t *testing.T) {
	t.Parallel()
	src := `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[
{"image":"x","Image":"y","comand":"z","ports":[{"prtocol":"tcp"}]}]}}}}`
	docs, warns, err := Decode(strings.NewReader(src), "f", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warns {
		got = append(got, w.Error())
	}
	const at = "spec.template.spec.containers[0]."
	want := []string{
		"f:2:14: " + at + `image: is the same key as "image" in line 2; the last one counts`,
		"f:2:26: " + at + "comand: unknown key, it has no effect; did you mean command?",
		"f:2:49: " + at + "ports[0].prtocol: unknown key, it has no effect; did you mean protocol?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a, ok := docs[0].Object.(*Application); !ok || a.Spec.Template.Spec.Containers[0].Image != "y" {
		t.Error("the last one does not count")
	}
	if got := errorPaths(t, src, Options{Strict: true}); len(got) != 3 {
		t.Errorf("strict: %v", got)
	}
}

func TestKindIsInferred(t *testing.T) {
	t.Parallel()
	if k := decodeOne(t, strings.Replace(minimalApp, `"application"`, `""`, 1)).GetKind(); k != KindApplication {
		t.Errorf("containers: %s", k)
	}
	if k := decodeOne(t, `{"metadata":{"name":"p"},"spec":{"template":{"spec":{"processes":[{"procName":"p","startCmd":"p"}]}}}}`).GetKind(); k != KindProcess {
		t.Errorf("processes: %s", k)
	}
}

func TestListsOfDocuments(t *testing.T) {
	t.Parallel()
	b := strings.Replace(minimalApp, `"a"`, `"b"`, 1)
	for name, src := range map[string]string{
		"stream": minimalApp + b,
		"array":  "[" + minimalApp + "," + b + "]",
		"List":   `{"apiVersion":"v1","kind":"List","items":[` + minimalApp + "," + b + "]}",
		"YAML":   "# first\n---\n" + minimalApp + "\n---\n# nothing\n---\n" + b + "\n...\n",
		"BOM":    "\xef\xbb\xbf" + minimalApp + b,
	} {
		docs, _, err := Decode(strings.NewReader(src), "f", Options{})
		if err != nil || len(docs) != 2 || docs[1].Object.GetMeta().Name != "b" {
			t.Errorf("%s: %d documents, %v", name, len(docs), err)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	o := decodeOne(t, `
base: &base {image: i, privileged: true}
kind: application
metadata: {name: a, labels: {on: "yes", date: 2024-01-02, answer: no}}
spec:
  instance: 0x10
  template:
    spec:
      containers:
      - <<: *base
        name: one
        command: &c |
          a
          b
      - <<: [*base]
        name: two
        privileged: false
        command: *c
        resources: {limits: {cpu: 1.5, memory: 512}}
`)
	a, ok := o.(*Application)
	if !ok {
		t.Fatalf("%T", o)
	}
	c := a.Spec.Template.Spec.Containers
	if a.Spec.Instance != 16 || !c[0].Privileged || c[1].Privileged || c[1].Command != "a\nb\n" || c[1].Image != "i" || c[1].Resources.Limits.CPU != "1.5" {
		t.Errorf("%+v", a)
	}
	if diff := cmp.Diff(map[string]string{"on": "yes", "date": "2024-01-02", "answer": "no"}, a.Metadata.Labels); diff != "" {
		t.Error(diff)
	}
}

func TestHostileInputIsRefusedCheaply(t *testing.T) {
	// Not parallel: it measures memory.
	var bomb strings.Builder
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c < 'm'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	cases := map[string]struct{ src, want string }{
		"alias bomb":     {bomb.String(), "aliases counted"},
		"alias texts":    {"a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 100) + "*a]\n", "aliases expand to more than"},
		"alias of self":  {"a: &a [*a]\n", "contains itself"},
		"deep JSON":      {strings.Repeat("[", 1<<20), "nested more than 64 deep"},
		"deep JSON maps": {strings.Repeat(`{"a":`, 1<<18), "nested more than 64 deep"},
		"deep YAML":      {"a: " + strings.Repeat("[", 1<<20), "exceeded max depth"},
		"deep YAML maps": {strings.Repeat("- ", 1<<16) + "x", "exceeded max depth"},
		"too large":      {strings.Repeat(" ", MaxSourceBytes+1), "is larger than 16 MiB"},
		"many values":    {"[" + strings.Repeat("0,", 3<<20) + "0]", "more than 1048576 values"},
		"long document":  {`{"kind":"configmap","metadata":{"name":"a","annotations":{"x":"` + strings.Repeat("x", MaxDocumentBytes) + `"}}}`, "the document has"},
		"long YAML":      {"a:\n" + strings.Repeat("- x\n", 1<<20), "longer than 2 MiB"},
		"many documents": {strings.Repeat("{} ", MaxDocuments+1), "more errors than are shown"},
		"many errors":    {`{"kind":"service","metadata":{"name":"a"},"spec":{"ports":[` + strings.Repeat(`0,`, 1000) + `0]}}`, "more errors than are shown"},
		"merge a scalar": {"<<: 5\n", "merge key"},
		"binary tag":     {"kind: !!binary aGk=\n", "tag"},
		"not a number":   {"kind: .inf\n", "not a number that JSON has"},
		"list as key":    {"a: 1\n? [1, 2]\n: 3\n", "key must be a text"},
	}
	for name, c := range cases {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, _, err := Decode(strings.NewReader(c.src), "f", Options{})
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300s", name, err)
		}
		if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 400 {
			t.Errorf("%s: allocated %d MiB", name, grown)
		}
		if took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if len(err.Error()) > 100<<10 {
			t.Errorf("%s: the message has %d bytes", name, len(err.Error()))
		}
	}
}

func TestDecodePaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	named := func(n string) string { return strings.Replace(minimalApp, `"a"`, `"`+n+`"`, 1) }
	write("2.json", named("two"))
	write("1.yaml", named("one"))
	write("3.YML", named("three"))
	write(".hidden.json", "{")
	write("README.md", "{")
	if err := os.Mkdir(filepath.Join(dir, "sub.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	docs, _, err := DecodePaths([]string{dir, Stdin}, strings.NewReader(named("four")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range docs {
		names = append(names, d.Object.GetMeta().Name)
	}
	if want := []string{"one", "two", "three", "four"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}

	missing := filepath.Join(dir, "missing.json")
	_, _, err = DecodePaths([]string{missing, filepath.Join(dir, "sub.json"), Stdin}, bytes.NewReader(nil), Options{})
	want := missing + ": cannot be read: no such file or directory\n" +
		filepath.Join(dir, "sub.json") + ": cannot be read: the directory holds no .json, .yaml or .yml files\n" +
		"stdin: holds no document"
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	if _, _, err = DecodePaths(nil, nil, Options{}); err == nil {
		t.Error("no path is accepted")
	}
}

// TestMapperKnowsEveryType fills every field of every kind from a document, so
// that no field can have a type that the mapper does not decode.
func TestMapperKnowsEveryType(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		var m mapper
		o := newObject(kind)
		v := reflect.ValueOf(o).Elem()
		m.value(sample(t, v.Type()), "", v, false)
		if len(m.found.errs) > 0 {
			t.Errorf("%s: %v", kind, m.found.errs)
		}
		if len(m.found.warns) > 0 {
			t.Errorf("%s: %v", kind, m.found.warns)
		}
		zero := zeroFields(string(kind), v)
		if len(zero) > 0 {
			t.Errorf("not filled: %v", zero)
		}
	}
}

// sample returns a node that fills a value of the type.
func sample(t *testing.T, typ reflect.Type) *node {
	t.Helper()
	switch typ {
	case reflect.TypeFor[time.Time]():
		return &node{kind: nodeString, text: "2024-03-18T10:00:00Z"}
	case reflect.TypeFor[TargetPort]():
		return &node{kind: nodeNumber, text: "7"}
	case reflect.TypeFor[Quantity]():
		return &node{kind: nodeNumber, text: "7"}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return sample(t, typ.Elem())
	case reflect.Struct:
		n := &node{kind: nodeMap}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				t.Errorf("%s.%s has no json tag", typ, f.Name)
			}
			n.keys = append(n.keys, nodeKey{name: strings.ToUpper(name)})
			n.items = append(n.items, sample(t, f.Type))
		}
		return n
	case reflect.Slice:
		return &node{kind: nodeList, items: []*node{sample(t, typ.Elem())}}
	case reflect.Map:
		return &node{kind: nodeMap, keys: []nodeKey{{name: "k"}}, items: []*node{sample(t, typ.Elem())}}
	case reflect.String:
		return &node{kind: nodeString, text: "text"}
	case reflect.Bool:
		return &node{kind: nodeBool, text: "true"}
	default:
		return &node{kind: nodeNumber, text: "7"}
	}
}

func zeroFields(path string, v reflect.Value) []string {
	if v.IsZero() {
		return []string{path}
	}
	var zero []string
	switch v.Kind() {
	case reflect.Pointer:
		return zeroFields(path, v.Elem())
	case reflect.Slice:
		return zeroFields(path+"[]", v.Index(0))
	case reflect.Map:
		return zeroFields(path+"[k]", v.MapIndex(reflect.ValueOf("k")))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[TargetPort]() {
			return nil
		}
		for i := range v.NumField() {
			zero = append(zero, zeroFields(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
	default:
	}
	return zero
}

func TestPathsLeadBack(t *testing.T) {
	t.Parallel()
	docs, serr := parseJSON([]byte(`{"a":{"x.y/z":[1,{"b-c":"here"}]}}`))
	if serr != nil {
		t.Fatal(serr)
	}
	p := joinPath(indexPath(joinPath(joinPath("", "a"), "x.y/z"), 1), "b-c")
	if p != `a["x.y/z"][1].b-c` {
		t.Errorf("path %s", p)
	}
	if n := docs[0].at(p); n.text != "here" {
		t.Errorf("leads to %+v", n)
	}
	for _, bad := range []string{"[", `["`, "[x]", "a.", "..", "a[9]", `["x"`, "a[-1]"} {
		docs[0].at(bad)
	}
}
