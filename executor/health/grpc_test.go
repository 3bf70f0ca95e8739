package health

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tandem/api"
)

// grpcServer answers as a gRPC server does.
func grpcServer(t *testing.T, handle func(service string, w http.ResponseWriter)) int {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor != 2 || r.Method != http.MethodPost || r.URL.Path != "/grpc.health.v1.Health/Check" ||
			r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" ||
			len(body) < 5 || int(binary.BigEndian.Uint32(body[1:5])) != len(body)-5 {
			t.Errorf("no gRPC call: %s %s %s %v %q", r.Proto, r.Method, r.URL, r.Header, body)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		service := ""
		if len(body) > 7 {
			service = string(body[7:])
		}
		w.Header().Set("Content-Type", "application/grpc")
		handle(service, w)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return portOfURL(t, s.URL)
}

// status answers with a message and the trailers of success.
func status(w http.ResponseWriter, n byte) {
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, n})
	w.Header().Set("Grpc-Status", "0")
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	port := grpcServer(t, func(service string, w http.ResponseWriter) {
		switch service {
		case "", "shop.Cart":
			status(w, 1)
		case "warming":
			status(w, 2)
		case "new":
			status(w, 77)
		case "slow":
			time.Sleep(200 * time.Millisecond)
			status(w, 1)
		case "odd":
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte("nonsense"))
			w.Header().Set("Grpc-Status", "0")
		case "denied":
			w.Header().Set("Grpc-Status", "7")
			w.Header().Set("Grpc-Message", "go away")
		default:
			w.Header().Set("Grpc-Status", "5") // without a message: the status is a header
		}
	})
	for service, c := range map[string]struct {
		verdict Verdict
		message string
	}{
		"":          {Passed, ""},
		"shop.Cart": {Passed, ""},
		"warming":   {Failed, "the service says NOT_SERVING"},
		"new":       {Failed, "status 77, which is unknown"},
		"odd":       {Failed, "no single gRPC message"},
		"denied":    {Failed, "gRPC status 7 go away"},
		"nobody":    {Failed, "does not know the service"},
	} {
		o := patientOf(t, here).probe(&Check{Type: api.CheckGRPC, Port: port, Service: service, Timeout: 30 * time.Second})
		want(t, o, c.verdict, c.message)
	}
	want(t, patientOf(t, here).probe(&Check{Type: api.CheckGRPC, Port: port, Service: "slow", Timeout: 20 * time.Millisecond}), Failed, "no answer within 20ms")
	want(t, patientOf(t, here).probe(&Check{Type: api.CheckGRPC, Port: portThatIsClosed(t), Timeout: 30 * time.Second}), Failed, "connection refused")
	want(t, patientOf(t, here).probe(&Check{Type: api.CheckGRPC, Port: speaker(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), Timeout: 30 * time.Second}), Failed, "")
}

func TestServing(t *testing.T) {
	t.Parallel()
	message := func(b ...byte) []byte { return append([]byte{0, 0, 0, 0, byte(len(b))}, b...) }
	if err := serving(message(2<<3|2, 1, 'x', 3<<3|5, 1, 2, 3, 4, 4<<3|1, 1, 2, 3, 4, 5, 6, 7, 8, 1<<3, 1)); err != nil {
		t.Errorf("fields that are unknown: %v", err)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "no status": message(), "compressed": {1, 0, 0, 0, 0}, "short": {0, 0, 0, 0, 9, 8}, "two messages": {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"cut": message(1 << 3), "cut text": message(2<<3|2, 200), "cut fixed": message(5), "group": message(3), "unknown": message(8, 0),
	} {
		if serving(bad) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzServing(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 2, 8, 1})
	f.Add([]byte{0, 0, 0, 0, 3, 18, 1, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if serving(b) == nil && len(b) < 7 {
			t.Errorf("%x is no answer that says SERVING", b)
		}
	})
}
