package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestLegacyGuide applies the artifacts of docs/legacy.md as they stand there, and does
// with them what the text says: a reader who copies them has what works.
func TestLegacyGuide(t *testing.T) {
	guide, err := os.ReadFile("../docs/legacy.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) < 3 {
		t.Fatalf("the guide has %d artifacts", len(blocks))
	}
	for _, program := range []string{"haproxy", "nginx", "memcached"} {
		if _, err := exec.LookPath(program); err != nil {
			if _, err := os.Stat("/usr/sbin/" + program); err != nil {
				t.Skip(program + " is not installed")
			}
		}
	}
	s := startLocal(t)
	// Its processes are nobody's, who has to get there.
	if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	all := file(t, "guide.yaml", strings.Join(blocks, "---\n"))
	s.ok("apply", "-f", all, "--wait", "--timeout", "1m")
	var groups struct {
		Items []struct {
			Name  string
			Tasks []struct{ Ports []struct{ HostPort int } }
		}
	}
	if err := json.Unmarshal([]byte(s.ok("get", "taskgroups", "-n", "legacy", "-o", "json")), &groups); err != nil {
		t.Fatal(err)
	}
	if len(groups.Items) != 4 {
		t.Fatalf("%+v", groups)
	}
	client := http.Client{Timeout: 2 * time.Second}
	for _, g := range groups.Items {
		address := fmt.Sprintf("127.0.0.1:%d", g.Tasks[0].Ports[0].HostPort)
		if strings.HasPrefix(g.Name, "cache") {
			reachable(t, address)
			continue
		}
		eventually(t, 20*time.Second, g.Name+" answers", func() bool {
			resp, err := client.Get("http://" + address + "/")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	for _, workload := range []string{"process/front", "process/pages"} {
		if out := s.ok("reload", workload, "-n", "legacy"); !strings.Contains(out, "reloaded") {
			t.Errorf("reload of %s: %s", workload, out)
		}
	}
	s.ok("delete", "-f", all, "--wait", "--timeout", "1m")
}
