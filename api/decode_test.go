package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func decodeOne(t *testing.T, src string) Object {
	t.Helper()
	docs, _, err := Decode(strings.NewReader(src), "test", Options{})
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if len(docs) != 1 {
		t.Fatalf("%d documents, want 1", len(docs))
	}
	return docs[0].Object
}

// errorPaths decodes src, which must be refused, and returns the paths at fault.
func errorPaths(t *testing.T, src string, opts Options) []string {
	t.Helper()
	_, _, err := Decode(strings.NewReader(src), "test", opts)
	if err == nil {
		t.Fatalf("accepted:\n%s", src)
	}
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error of type %T: %v", err, err)
	}
	var paths []string
	for _, e := range errs {
		paths = append(paths, e.Path)
	}
	return paths
}

// lowerKeys is v with all keys in lower case, to compare but for their case.
func lowerKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range v {
			out[strings.ToLower(k)] = lowerKeys(item)
		}
		return out
	case []any:
		for i := range v {
			v[i] = lowerKeys(v[i])
		}
	}
	return v
}

func jsonValue(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

func TestArtifactsRoundTrip(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/artifacts/*")
	if err != nil || len(files) != 10 {
		t.Fatalf("%d artifacts, %v", len(files), err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "service-template.json") {
			continue
		}
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			docs, warns, err := DecodePaths([]string{f}, nil, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warns {
				t.Log(w)
			}
			d := docs[0]
			got, err := EncodeJSON(d.Raw)
			if err != nil {
				t.Fatal(err)
			}
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(f, ".json") {
				// What is given back is what was written, up to space and repeated keys.
				if diff := cmp.Diff(jsonValue(t, src), jsonValue(t, got)); diff != "" {
					t.Errorf("not what was applied (-want +got):\n%s", diff)
				}
			}
			again := encodeAndDecode(t, d)
			if diff := cmp.Diff(d.Object, again.Object); diff != "" {
				t.Errorf("through YAML (-want +got):\n%s", diff)
			}
			stored, err := DecodeObject(d.Raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d.Object, stored); diff != "" {
				t.Errorf("from the store (-want +got):\n%s", diff)
			}
			checkTyped(t, d)
		})
	}
}

// encodeAndDecode takes a document through YAML and back.
func encodeAndDecode(t *testing.T, d Document) Document {
	t.Helper()
	y, err := EncodeYAML(d.Raw)
	if err != nil {
		t.Fatal(err)
	}
	docs, _, err := Decode(bytes.NewReader(y), "yaml", Options{Format: FormatYAML})
	if err != nil {
		t.Fatalf("%v\n%s", err, y)
	}
	if diff := cmp.Diff(jsonValue(t, d.Raw), jsonValue(t, docs[0].Raw)); diff != "" {
		t.Errorf("raw through YAML (-want +got):\n%s\n%s", diff, y)
	}
	return docs[0]
}

// checkTyped compares the typed form with what was written: nothing of the
// document is lost or changed, only defaults are added.
func checkTyped(t *testing.T, d Document) {
	t.Helper()
	typed, err := EncodeJSON(d.Object)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeObject(typed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Object, again); diff != "" {
		t.Errorf("typed form does not decode to itself (-want +got):\n%s", diff)
	}
	var missing []string
	contained("", lowerKeys(jsonValue(t, d.Raw)), lowerKeys(jsonValue(t, typed)), &missing)
	for _, m := range missing {
		t.Errorf("lost in the typed form: %s", m)
	}
}

// contained reports what of want is not in got. Empty values may be left out,
// and a few values have a canonical spelling.
func contained(path string, want, got any, missing *[]string) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for k, v := range w {
			switch {
			case path == ".metadata" && k == "label":
				// The template's slip, which is a warning.
				continue
			case strings.HasPrefix(path, ".spec.ports") && k == "port":
				k = "serviceport"
			}
			contained(path+"."+k, v, g[k], missing)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			*missing = append(*missing, path)
			return
		}
		for i := range w {
			contained(path+"[]", w[i], g[i], missing)
		}
	case string:
		if g, _ := got.(string); !strings.EqualFold(w, g) {
			*missing = append(*missing, path)
		}
	case bool:
		if g, _ := got.(bool); g != w {
			*missing = append(*missing, path)
		}
	default:
		if got != want {
			*missing = append(*missing, path)
		}
	}
}

func TestServiceTemplateIsRefused(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/artifacts/service-template.json")
	if err != nil {
		t.Fatal(err)
	}
	_, warns, err := Decode(bytes.NewReader(src), "service-template.json", Options{})
	want := `service-template.json:9:27: metadata.labels.BCSBALANCE: "source|roundrobin|leastconn": choose one of the alternatives: source, roundrobin, leastconn
service-template.json:19:17: spec.type: "ClusterIP|NodePort|None|Integration": choose one of the alternatives: ClusterIP, NodePort, None, Integration`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	if len(warns) > 0 {
		t.Errorf("warnings: %v", warns)
	}
}

func TestArtifactWarnings(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"endpoint-template.json":  {`metadata.label: unknown key, it has no effect; did you mean labels?`},
		"consul.application.json": {`spec.template.spec.containers[0].parameters: is given twice, first in line 36; the last one counts`},
	}
	files, _ := filepath.Glob("testdata/artifacts/*")
	for _, f := range files {
		_, warns, _ := DecodePaths([]string{f}, nil, Options{})
		var got []string
		for _, w := range warns {
			got = append(got, w.Path+": "+w.Message)
		}
		if diff := cmp.Diff(want[filepath.Base(f)], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f, diff)
		}
	}
}
