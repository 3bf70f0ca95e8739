package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
)

const goodService = `{"apiVersion":"v4","kind":"service","metadata":{"name":"web","namespace":"test"},"spec":{"selector":{"app":"web"},"ports":[{"name":"http","protocol":"tcp","servicePort":80}]}}`

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestValidateNeedsNoServer(t *testing.T) {
	t.Parallel()
	path := write(t, "web.json", goodService)
	for _, args := range [][]string{{"validate", "-f", path}, {"validate", "-f", filepath.Dir(path)}, {"validate", "-f", "-"}} {
		r := run(t, nil, goodService, args...)
		if r.code != exit.OK || r.out != "service/test/web valid\n" || r.errOut != "" {
			t.Errorf("%v: code %d, out %q, err %q", args, r.code, r.out, r.errOut)
		}
	}
}

func TestMalformedArtifactsAreRefusedWithAllErrors(t *testing.T) {
	t.Parallel()
	broken := write(t, "broken.json", `{"kind": "service",`)
	wrong := write(t, "wrong.yaml", "apiVersion: v4\nkind: service\nmetadata: {name: Not_A_Label}\nspec: {type: Never, sellector: {a: b}}\n")
	r := run(t, nil, "", "validate", "-f", broken, "-f", wrong, "-f", "/does/not/exist")
	if r.code != exit.Usage || r.out != "" {
		t.Fatalf("code %d, out %q, err %q", r.code, r.out, r.errOut)
	}
	for _, want := range []string{
		broken + ":1:", wrong + ":3:", "metadata.name", "Not_A_Label", "spec.type", "/does/not/exist", "nothing was changed",
		"warning: " + wrong + ":4:", "did you mean selector",
	} {
		if !strings.Contains(r.errOut, want) {
			t.Errorf("%q is not in:\n%s", want, r.errOut)
		}
	}
}

// TestErrorsOfPortsComeWithAllOthers: rules about the network are another room's; people need not
// know that, and mend everything in one go.
func TestErrorsOfPortsComeWithAllOthers(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", `kind: process
metadata: {name: p}
spec:
  template:
    spec:
      processes:
        - procName: a
          startCmd: a
          nice: 99
          pidFile: ../p
          workPath: /srv/../p
          ports:
            - {name: x, hostPort: 80}
            - {name: y, hostPort: 80}
            - {name: z, hostPort: 70000}
`)
	r := run(t, nil, "", "validate", "-f", path)
	if r.code != exit.Usage || strings.Count(r.errOut, "hostPort") != 2 {
		t.Errorf("code %d, want two errors of ports:\n%s", r.code, r.errOut)
	}
	for _, want := range []string{
		":9:17: spec.template.spec.processes[0].nice", ":14:35: spec.template.spec.processes[0].ports[1].hostPort: \"80\": tcp port 80 is claimed",
		":15:35: spec.template.spec.processes[0].ports[2].hostPort: \"70000\"", `"../p": must not contain ".."` + "\n", `"/srv/../p": must not contain ".."; write "/p"`,
	} {
		if !strings.Contains(r.errOut, want) {
			t.Errorf("%q is not in:\n%s", want, r.errOut)
		}
	}
}

func TestStrictTakesWarningsForErrors(t *testing.T) {
	t.Parallel()
	odd := strings.Replace(goodService, `"spec":{`, `"spec":{"sellector":{},`, 1)
	if r := run(t, nil, odd, "validate", "-f", "-"); r.code != exit.OK || !strings.Contains(r.errOut, "warning: stdin:1:") {
		t.Errorf("code %d, err %q", r.code, r.errOut)
	}
	if r := run(t, nil, odd, "validate", "-f", "-", "--strict"); r.code != exit.Usage || strings.Count(r.errOut, "\n") != 1 {
		t.Errorf("--strict: code %d, err %q", r.code, r.errOut)
	}
	if r := run(t, nil, "", "validate"); r.code != exit.Usage || !strings.Contains(r.errOut, "-f") {
		t.Errorf("no file: code %d, err %q", r.code, r.errOut)
	}
}
