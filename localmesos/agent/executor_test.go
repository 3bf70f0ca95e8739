package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/internal/wire"
)

// executorMain is the tests' executor: this binary, started by the agent. The
// script is "NAME[:ARGUMENT]".
//
//	ok          RUNNING; on KILL KILLED; on SHUTDOWN exit 0
//	stubborn    as ok, but ignores KILL and SHUTDOWN
//	fork        as ok, and starts a daemon that leaves the session
//	exit:CODE   exit at once
//	signal:N    die of a signal at once
//	crash:CODE  exit when RUNNING is acknowledged
//	mute        never subscribe
//	late        as ok, but subscribes only once there is a file "go"
//	hang        as ok, but does not subscribe again
//	away        as ok, but FINISHED as soon as the agent is away
//	silent      takes tasks and says nothing of them
//	dial:PATH   no executor: asks at a unix socket, and exits 0 if it is served
func executorMain(script string) {
	name, arg, _ := strings.Cut(script, ":")
	number := 0
	_, _ = fmt.Sscan(arg, &number)
	if name == "dial" {
		dialMain(arg)
	}
	fmt.Println("executor: standard output")
	env, _ := json.Marshal(os.Environ())
	_ = os.WriteFile("environment", env, 0o600)
	time.AfterFunc(time.Minute, func() { os.Exit(99) })
	switch name {
	case "exit":
		os.Exit(number)
	case "signal":
		_ = syscall.Kill(os.Getpid(), syscall.Signal(number))
		select {}
	case "mute":
		select {}
	case "fork":
		startDaemon()
	case "late":
		for _, err := os.Stat("go"); err != nil; _, err = os.Stat("go") {
			time.Sleep(10 * time.Millisecond)
		}
	}
	x := &testExecutor{script: name, arg: number}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if !x.session() {
			continue
		}
		note("disconnected")
		if os.Getenv("MESOS_CHECKPOINT") != "1" {
			os.Exit(0)
		}
		deadline = time.Now().Add(30 * time.Second)
		switch name {
		case "hang":
			select {}
		case "away":
			for _, t := range x.tasks {
				x.unacked = append(x.unacked, x.status(t.TaskID.Value, mesos.TASK_FINISHED))
			}
			x.tasks = nil
		}
	}
	os.Exit(98)
}

func dialMain(path string) {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		_, err = io.ReadAtLeast(c, make([]byte, 4), 4)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// note adds a line to a file in the sandbox, for the test to see.
func note(format string, args ...any) {
	f, err := os.OpenFile("notes", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintf(f, format+"\n", args...)
		f.Close()
	}
}

func startDaemon() {
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "echo $$ > daemon; exec sleep 600"},
		&os.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true}})
	if err == nil {
		_ = p.Release()
	}
}

type testExecutor struct {
	script  string
	arg     int
	tasks   []mesos.TaskInfo
	fresh   []mesos.TaskInfo // not acknowledged
	unacked []mesos.TaskStatus
	client  *http.Client
	url     string
}

func (x *testExecutor) call(c *xexec.Call) (*http.Response, error) {
	c.ExecutorID.Value, c.FrameworkID.Value = os.Getenv("MESOS_EXECUTOR_ID"), os.Getenv("MESOS_FRAMEWORK_ID")
	b, err := wire.Marshal(wire.JSON, c)
	if err != nil {
		return nil, err
	}
	if x.client == nil {
		if x.client, x.url, err = executorClient(); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequest(http.MethodPost, x.url, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(wire.JSON))
	if token := os.Getenv(tokenVariable); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := x.client.Do(req)
	if err == nil && resp.StatusCode >= 300 {
		resp.Body.Close()
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp, err
}

// executorClient connects as the environment says.
func executorClient() (*http.Client, string, error) {
	path := os.Getenv("MESOS_AGENT_ENDPOINT") + "/api/v1/executor"
	if socket := os.Getenv("MESOS_DOMAIN_SOCKET"); socket != "" {
		return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}, "http://" + path, nil
	}
	config, err := ssl.Client(ssl.FromEnvironment(os.Environ()))
	if config != nil {
		path = "https://" + path
	} else {
		path = "http://" + path
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, path, err
}

// session returns false if there was none.
func (x *testExecutor) session() bool {
	s := &xexec.Call_Subscribe{UnacknowledgedTasks: x.fresh}
	for _, u := range x.unacked {
		s.UnacknowledgedUpdates = append(s.UnacknowledgedUpdates, xexec.Call_Update{Status: u})
	}
	resp, err := x.call(&xexec.Call{Type: xexec.Call_SUBSCRIBE, Subscribe: s})
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	records := wire.NewRecordReader(resp.Body)
	for {
		b, err := records.Next()
		if err != nil {
			return true
		}
		ev := &xexec.Event{}
		if _, err := wire.Unmarshal(wire.JSON, b, ev); err != nil {
			note("bad event: %v", err)
			return true
		}
		x.handle(ev)
	}
}

func (x *testExecutor) handle(ev *xexec.Event) {
	note("%s", ev.Type)
	switch ev.Type {
	case xexec.Event_LAUNCH:
		x.launch(ev.Launch.Task)
	case xexec.Event_LAUNCH_GROUP:
		note("group of %d", len(ev.LaunchGroup.TaskGroup.Tasks))
		for _, t := range ev.LaunchGroup.TaskGroup.Tasks {
			x.launch(t)
		}
	case xexec.Event_KILL:
		if x.script != "stubborn" {
			x.update(ev.Kill.TaskID.Value, mesos.TASK_KILLED)
		}
	case xexec.Event_SHUTDOWN:
		if x.script != "stubborn" {
			os.Exit(0)
		}
	case xexec.Event_MESSAGE:
		resp, err := x.call(&xexec.Call{Type: xexec.Call_MESSAGE, Message: &xexec.Call_Message{Data: ev.Message.Data}})
		if err == nil {
			resp.Body.Close()
		}
	case xexec.Event_ACKNOWLEDGED:
		x.fresh = nil
		for i, u := range x.unacked {
			if bytes.Equal(u.UUID, ev.Acknowledged.UUID) {
				x.unacked = append(x.unacked[:i:i], x.unacked[i+1:]...)
				if x.script == "crash" && u.GetState() == mesos.TASK_RUNNING {
					os.Exit(x.arg)
				}
				break
			}
		}
	default:
	}
}

func (x *testExecutor) launch(t mesos.TaskInfo) {
	x.tasks, x.fresh = append(x.tasks, t), append(x.fresh, t)
	if x.script != "silent" {
		x.update(t.TaskID.Value, mesos.TASK_RUNNING)
	}
}

func (x *testExecutor) status(task string, state mesos.TaskState) mesos.TaskStatus {
	source := mesos.SOURCE_EXECUTOR
	return mesos.TaskStatus{TaskID: mesos.TaskID{Value: task}, State: &state, Source: &source, UUID: newUUID(),
		ExecutorID: &mesos.ExecutorID{Value: os.Getenv("MESOS_EXECUTOR_ID")}}
}

func (x *testExecutor) update(task string, state mesos.TaskState) {
	u := x.status(task, state)
	x.unacked = append(x.unacked, u)
	resp, err := x.call(&xexec.Call{Type: xexec.Call_UPDATE, Update: &xexec.Call_Update{Status: u}})
	if err != nil {
		note("update: %v", err)
		return
	}
	resp.Body.Close()
}
