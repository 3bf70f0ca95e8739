package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"tandem/internal/term"
	"tandem/internal/version"
)

// announce says what runs and how to talk to it. Its last line is "ready".
func (s *stack) announce() {
	line := func(what, format string, args ...any) {
		fmt.Fprintf(s.out, "  %-15s %s\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(s.out, "%s\n", s.out.Style(term.Strong, "tandem local "+version.Version))
	line("scheduler", "http://%s", s.o.Listen)
	line("master", "%s", s.master.URL())
	for _, m := range s.machines {
		line(m.Name, "%s:%d  %s", m.IP, m.Port, strings.TrimSpace(m.Attributes+"  "+m.Resources))
	}
	line("process daemon", "%s (pid %d)", s.socket(), s.daemon.daemon().cmd.Process.Pid)
	engine, ok := describeEngine(context.Background())
	style := term.Plain
	if !ok {
		style = term.Busy
	}
	line("containers", "%s", s.out.Style(style, engine))
	line("data, logs", "%s, %s", s.dir.path, s.dir.join("log"))
	fmt.Fprintf(s.out, "\nTo talk to it, in another terminal:\n\n  export TANDEM_SERVER=http://%s\n  tandem apply -f examples/ --wait && tandem get taskgroups\n\n", s.o.Listen)
	end := "stops it and all that it runs"
	if s.o.Keep {
		end = "stops it; what it runs goes on for " + recoveryTimeout.String() + ", to be taken up by the next start"
	}
	fmt.Fprintf(s.out, "Ctrl-C %s.\nready\n", end)
}

// childEnv is the environment of the process daemon.
func (s *stack) childEnv() []string {
	var out []string
	for _, name := range passed {
		if v := s.o.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// passed are the variables of this process that its children may see: an
// agent's service manager would give its executors no more.
var passed = []string{
	"PATH", "HOME", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION", "TANDEM_FAILPOINTS",
}

// executorEnv is what every executor on a machine gets beside the MESOS_ variables.
func (s *stack) executorEnv(m machine) map[string]string {
	env := map[string]string{
		"TANDEM_DATA_DIR":        s.dir.join("tasks"),
		"TANDEM_PROCESSD_SOCKET": s.socket(),
		"TANDEM_PUBLISH_ADDRESS": m.IP,
	}
	for _, pair := range s.childEnv() {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

// both hands every record to two handlers.
type both [2]slog.Handler

func (b both) Enabled(ctx context.Context, l slog.Level) bool {
	return b[0].Enabled(ctx, l) || b[1].Enabled(ctx, l)
}

func (b both) Handle(ctx context.Context, r slog.Record) error {
	for _, h := range b {
		if err := h.Handle(ctx, r.Clone()); err != nil {
			fmt.Fprintln(os.Stderr, "log:", err)
		}
	}
	return nil
}

func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}
