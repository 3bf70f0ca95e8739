package wire

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRequestBodies(t *testing.T) {
	t.Parallel()
	const most = 4096
	for _, c := range []struct {
		name, body, encoding, want string
		status                     int
	}{
		{"plain", "abc", "", "abc", 0},
		{"the most", strings.Repeat("x", most), "", strings.Repeat("x", most), 0},
		{"too long", strings.Repeat("x", most+1), "", "413 Request Entity Too Large.", 413},
		{"compressed", gzipped(t, "abc"), "gzip", "abc", 0},
		{"the most, compressed", gzipped(t, strings.Repeat("x", most)), "gzip", strings.Repeat("x", most), 0},
		{"too long when unpacked", gzipped(t, strings.Repeat("x", 1000*most)), "gzip", "413 Request Entity Too Large.", 413},
		{"not gzip", "abc", "gzip", "Failed to read the body: ", 400},
		{"half of it", gzipped(t, "abc")[:20], "gzip", "Failed to read the body: ", 400},
		{"an encoding that Mesos passes by", "abc", "identity", "abc", 0},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		r.Header.Set("Content-Encoding", c.encoding)
		got, e := readBody(httptest.NewRecorder(), r, most)
		text, status := string(got), 0
		if e != nil {
			text, status = e.Text, e.Status
		}
		if status != c.status || !strings.HasPrefix(text, c.want) || status == 0 && text != c.want {
			t.Errorf("%s: %d %.60s", c.name, status, text)
		}
	}
}

// TestReadCallTooLarge sends more than MaxBody over a real connection: the
// answer is there and the connection is not used again.
func TestReadCallTooLarge(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, e := ReadCall(w, r, &scheduler.Call{}); e != nil {
			e.Write(w)
		}
	}))
	defer server.Close()
	body := gzipped(t, strings.Repeat(" ", MaxBody+1))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", string(JSON))
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(resp.Status)
	}
}
