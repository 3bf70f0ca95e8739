package api

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzDecode: whatever comes in, the decoder neither panics nor hangs, and what it
// accepts survives being stored, given back and applied again, in JSON and YAML.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/artifacts/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(minimalApp))
	f.Add([]byte("kind: secret\nmetadata: {name: a}\ndatas: &d {k: {content: \"\"}}\n---\nkind: configmap\nmetadata: {name: b, labels: {a: |\n  x\n   y\n}}\n"))
	f.Add([]byte(`{"kind":"List","items":[{"kind":"secret","metadata":{"name":"a","labels":{"A":"\u2028","no":" \n x"}}}]}`))
	f.Add([]byte("kind: service\napiVersion: v1\nmetadata: {name: \"a\"}\nspec: {ports: [{port: 1, targetPort: x}], <<: {topologyKeys: [a]}}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 64<<10 {
			return
		}
		docs, _, err := Decode(bytes.NewReader(src), "fuzz", Options{})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		for _, d := range docs {
			checkSurvives(t, d)
		}
	})
}

func checkSurvives(t *testing.T, d Document) {
	t.Helper()
	stored, err := DecodeObject(d.Raw)
	if err != nil {
		t.Fatalf("from the store: %v\n%s", err, d.Raw)
	}
	if !reflect.DeepEqual(d.Object, stored) {
		t.Fatalf("from the store:\n%+v\n%+v", d.Object, stored)
	}
	typed, err := EncodeJSON(d.Object)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	if again, err := DecodeObject(typed); err != nil || !reflect.DeepEqual(d.Object, again) {
		t.Fatalf("typed form: %v\n%s", err, typed)
	}
	for _, format := range []Format{FormatJSON, FormatYAML} {
		text, err := EncodeJSON(d.Raw)
		if format == FormatYAML {
			text, err = EncodeYAML(d.Raw)
		}
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		docs, _, err := Decode(bytes.NewReader(text), "again", Options{Format: format})
		if err != nil || len(docs) != 1 {
			t.Fatalf("applied again: %d documents, %v\n%s", len(docs), err, text)
		}
		if !bytes.Equal(docs[0].Raw, d.Raw) || !reflect.DeepEqual(docs[0].Object, d.Object) {
			t.Fatalf("applied again:\n%s\n%s", d.Raw, docs[0].Raw)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"mongodb.process.json", "topology-4.service.yaml"} {
		src, err := os.ReadFile(filepath.Join("testdata/artifacts", name))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Decode(bytes.NewReader(src), name, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzText: any text and number goes through YAML and back unharmed.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "yes", "<<", "~", "null", "1", "0x1", "1e3", " x", "x ", "a\nb", "a\n b\n", "\n", "\t", "a: b", "# x", "- x", "a\r\nb", "\u0085", "\u2028x", "\ufeff", "\x7f", "{", "&a", "*a", "!x", "%x", "2024-01-01", "a\n\n", "\na", "a\n\tb", "---", "a\n---\nb", "a \nb", ".5", "=", "1_000", "012", "'", "\"", "|", ">"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		want, err := EncodeJSON(map[string]any{"k": map[string]any{key: value}, "l": []any{value, map[string]any{value: key}}, "t": value})
		if err != nil {
			t.Fatal(err)
		}
		docs, serr := parseJSON(want)
		if serr != nil {
			t.Fatal(serr)
		}
		y, err := EncodeYAML(json.RawMessage(want))
		if err != nil {
			t.Fatal(err)
		}
		again, serr := parseYAML(y)
		if serr != nil || len(again) != 1 {
			t.Fatalf("%v\n%s", serr, y)
		}
		var a, b bytes.Buffer
		docs[0].appendJSON(&a)
		again[0].appendJSON(&b)
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("got %q, want %q\n%s", b.Bytes(), a.Bytes(), y)
		}
	})
}
