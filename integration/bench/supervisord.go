package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// supervised measures what manyProcesses does with supervisord, another supervisor that
// many know. It keeps its processes as its children, so that none survives it: there is
// nothing to take up.
func supervised(ctx context.Context, o options, sleep string, bareUp, bareDown time.Duration) (results []result, err error) {
	what := func(s string) string { return fmt.Sprintf("supervisord: %d processes %s", many, s) }
	program, err := exec.LookPath("supervisord")
	if err != nil {
		return []result{{Name: what("up"), Unit: "ms", Note: "not measured: there is no supervisord (Debian package supervisor)"}}, nil
	}
	dir, err := os.MkdirTemp(o.dir, "supervisor")
	if err != nil {
		return nil, err
	}
	s := &supervisor{socket: filepath.Join(dir, "s")}
	const config = `[unix_http_server]
file=%[1]s/s
[supervisord]
nodaemon=true
minfds=%[4]d
logfile=%[1]s/log
pidfile=%[1]s/pid
childlogdir=%[1]s
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[program:p]
command=%[2]s 100000
numprocs=%[3]d
process_name=%%(process_num)04d
autostart=false
autorestart=false
startsecs=0
stdout_logfile=%[1]s/%%(process_num)04d.out
stderr_logfile=%[1]s/%%(process_num)04d.err
`
	const filesEach = 8
	path := filepath.Join(dir, "conf")
	if err := os.WriteFile(path, fmt.Appendf(nil, config, dir, sleep, many, many*filesEach), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-c", path)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		cmd.Wait()                          //nolint:errcheck // it says how it ended, which is of no interest
		if err != nil {
			const most = 2048
			err = fmt.Errorf("supervisord: %w\n%s", err, said.Bytes()[max(0, said.Len()-most):])
		}
	}()
	if err := s.answers(ctx); err != nil {
		return nil, err
	}
	before, err := privateOf(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	up, err := s.call(ctx, "supervisor.startAllProcesses")
	if err != nil {
		return nil, err
	}
	time.Sleep(3 * time.Second) // as the daemon is given
	quiet, err := idleOf(ctx, cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	after, err := privateOf(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	down, err := s.call(ctx, "supervisor.stopAllProcesses")
	if err != nil {
		return nil, err
	}
	return []result{
		span(what("up"), up, bareUp), span(what("down"), down, bareDown),
		{Name: "supervisord, private memory a process", Value: 1024 * (after - before) / many, Unit: "KiB", Note: "the configuration that names them not counted"},
		{Name: fmt.Sprintf("supervisord with %d processes, idle", many), Value: quiet[0], Unit: "% of a core", Note: "over " + idleTime.String()},
	}, nil
}

func privateOf(pid int) (float64, error) {
	values, err := rollupOf(pid)
	return values["Private_Dirty"] + values["Private_Clean"], err
}

// supervisor is the XML-RPC interface of supervisord.
type supervisor struct{ socket string }

// call makes a call that waits until all processes are where they should be, and returns how long it took.
func (s *supervisor) call(ctx context.Context, method string) (time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}}}
	body := fmt.Sprintf(`<?xml version="1.0"?><methodCall><methodName>%s</methodName><params><param><value><boolean>1</boolean></value></param></params></methodCall>`, method)
	if method == statusMethod {
		body = fmt.Sprintf(`<?xml version="1.0"?><methodCall><methodName>%s</methodName></methodCall>`, method)
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/RPC2", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "text/xml")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(text, []byte("<fault>"))) {
		err = errors.New(string(text[:min(len(text), 500)]))
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	return took, nil
}

const statusMethod = "supervisor.getState"

func (s *supervisor) answers(ctx context.Context) error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = s.call(ctx, statusMethod); err == nil {
			return nil
		}
	}
	return fmt.Errorf("it does not answer: %w", err)
}
