// Package cmdexec is the executor of command tasks: those of a framework that
// gives a command and no executor of its own. The agent starts it once per task,
// as a hidden mode of its own program ("mesos command-executor").
//
// It runs the command, kills it when told to and reports how it ended. It must
// never exit before the agent has taken the last update.
package cmdexec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/ssl"
)

// Exit codes of Main.
const (
	exitDone  = 0
	exitError = 1
)

// defaultGrace is the time between SIGTERM and SIGKILL unless the framework
// says otherwise.
const defaultGrace = 3 * time.Second

// Main runs the executor until its task has ended and returns the exit code of
// the process. It takes all it needs from the environment that the agent gives.
func Main() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := fromEnvironment(os.Getenv)
	var agent *client
	if err == nil {
		agent, err = newClient(cfg, ssl.FromEnvironment(os.Environ()))
	}
	if err != nil {
		log.Error("cannot start: this program is started by a Mesos agent", "error", err)
		return exitError
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return newExecutor(cfg, agent, log).run(ctx)
}

// config is what the agent tells by the environment.
type config struct {
	endpoint, framework, executor, sandbox string
	// token proves who this is; socket is the agent's, used instead of endpoint.
	token, socket     string
	checkpoint        bool
	recovery, backoff time.Duration
}

func fromEnvironment(get func(string) string) (config, error) {
	c := config{endpoint: get("MESOS_AGENT_ENDPOINT"), framework: get("MESOS_FRAMEWORK_ID"),
		token: get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN"), socket: get("MESOS_DOMAIN_SOCKET"),
		executor: get("MESOS_EXECUTOR_ID"), sandbox: get("MESOS_SANDBOX"), checkpoint: get("MESOS_CHECKPOINT") == "1",
		recovery: 15 * time.Minute, backoff: 2 * time.Second}
	var errs []error
	for name, v := range map[string]string{"MESOS_AGENT_ENDPOINT": c.endpoint, "MESOS_FRAMEWORK_ID": c.framework, "MESOS_EXECUTOR_ID": c.executor} {
		if v == "" {
			errs = append(errs, fmt.Errorf("environment variable %s is missing", name))
		}
	}
	for name, to := range map[string]*time.Duration{"MESOS_RECOVERY_TIMEOUT": &c.recovery, "MESOS_SUBSCRIPTION_BACKOFF_MAX": &c.backoff} {
		if v := get(name); v != "" {
			d, err := flags.ParseDuration(v)
			if err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
			*to = d
		}
	}
	return c, errors.Join(errs...)
}

// executor is the one task's life. All of it runs in one goroutine, run.
type executor struct {
	cfg     config
	log     *slog.Logger
	agent   *client
	events  chan event
	ended   chan syscall.WaitStatus
	task    *mesos.TaskInfo
	process *os.Process
	unacked []pending
	resend  <-chan time.Time // when to send again what could not be sent
	pause   time.Duration    // the last one before that
	known   bool             // the agent has taken some update of the task
	killing bool
	kill9   <-chan time.Time
	over    bool // the terminal update is made
}

// event is one of the agent's, or the end of the stream.
type event struct {
	ev  *xexec.Event
	err error
}

func newExecutor(cfg config, agent *client, log *slog.Logger) *executor {
	return &executor{cfg: cfg, log: log, agent: agent, events: make(chan event), ended: make(chan syscall.WaitStatus, 1)}
}

func (x *executor) run(ctx context.Context) int {
	for {
		if err := x.connect(ctx); err != nil {
			x.log.Error("giving up on the agent", "error", err)
			x.signal(syscall.SIGKILL)
			return exitError
		}
		if x.session(ctx) {
			return exitDone
		}
		if !x.cfg.checkpoint {
			x.log.Error("the agent is gone and the framework does not checkpoint")
			x.signal(syscall.SIGKILL)
			return exitError
		}
	}
}

// connect subscribes, again and again within the recovery timeout. What the
// command does meanwhile waits.
func (x *executor) connect(ctx context.Context) error {
	const patience = 10 * time.Second // with an agent that will not come back
	deadline := time.Now().Add(patience)
	if x.cfg.checkpoint {
		deadline = time.Now().Add(x.cfg.recovery)
	}
	pause := min(x.cfg.backoff/8, 250*time.Millisecond)
	for {
		var tasks []mesos.TaskInfo
		if x.task != nil && !x.known {
			tasks = []mesos.TaskInfo{*x.task}
		}
		err := x.agent.subscribe(ctx, tasks, x.statuses(), x.events)
		if err == nil {
			x.allSent()
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// session handles what happens until the stream breaks; it returns true when
// all is done.
func (x *executor) session(ctx context.Context) bool {
	for {
		if x.over && len(x.unacked) == 0 {
			return true
		}
		select {
		case e := <-x.events:
			if e.err != nil {
				x.log.Warn("the stream from the agent ended", "error", e.err)
				return false
			}
			if x.handle(ctx, e.ev) {
				return true
			}
		case ws := <-x.ended:
			x.finished(ctx, ws)
		case <-x.kill9:
			x.kill9 = nil
			x.signal(syscall.SIGKILL)
		case <-x.resend:
			x.flush(ctx)
		}
	}
}

// handle acts on an event and returns true when there is nothing left to do.
func (x *executor) handle(ctx context.Context, ev *xexec.Event) bool {
	switch ev.Type {
	case xexec.Event_LAUNCH:
		x.launch(ctx, &ev.Launch.Task)
	case xexec.Event_LAUNCH_GROUP:
		x.log.Error("a command executor runs no task groups")
		return true
	case xexec.Event_KILL:
		x.kill(ev.Kill.KillPolicy)
	case xexec.Event_SHUTDOWN:
		if x.process == nil {
			return true
		}
		x.kill(nil)
	case xexec.Event_ACKNOWLEDGED:
		x.acknowledged(ev.Acknowledged.UUID)
	case xexec.Event_ERROR:
		x.log.Error("the agent refuses this executor", "message", ev.Error.Message)
		x.signal(syscall.SIGKILL)
		return true
	default:
	}
	return false
}

func (x *executor) launch(ctx context.Context, t *mesos.TaskInfo) {
	if x.task != nil {
		x.log.Error("a second task is ignored", "task", t.TaskID.Value)
		return
	}
	x.task = t
	x.update(ctx, mesos.TASK_STARTING, nil, "")
	p, err := start(t.Command, x.cfg.sandbox, taskEnvironment(t, x.cfg))
	if err != nil {
		x.over = true
		reason := mesos.REASON_COMMAND_EXECUTOR_FAILED
		x.update(ctx, mesos.TASK_FAILED, &reason, "Failed to launch command: "+err.Error())
		return
	}
	x.process = p
	go func() {
		st, err := p.Wait()
		ws := syscall.WaitStatus(0)
		if s, ok := st.Sys().(syscall.WaitStatus); err == nil && ok {
			ws = s
		}
		x.ended <- ws
	}()
	x.update(ctx, mesos.TASK_RUNNING, nil, "")
}

// start runs the command in a session of its own, with this program's output files.
func start(cmd *mesos.CommandInfo, dir string, env []string) (*os.Process, error) {
	program, argv := "/bin/sh", []string{"sh", "-c", cmd.GetValue()}
	if !cmd.GetShell() {
		program, argv = cmd.GetValue(), cmd.GetArguments()
		if len(argv) == 0 {
			argv = []string{program}
		}
		var err error
		if program, err = find(program, env); err != nil {
			return nil, err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(program, argv, &os.ProcAttr{Dir: dir, Env: env,
		Files: []*os.File{null, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}})
}

// find looks a program up in the PATH that the task gets.
func find(program string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	for i := len(env) - 1; i >= 0; i-- {
		path, ok := strings.CutPrefix(env[i], "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(path, ":") {
			p := dir + "/" + program
			if st, err := os.Stat(p); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
				return p, nil
			}
		}
		break
	}
	return "", fmt.Errorf("%s: no such program in PATH", program)
}

// taskEnvironment is this program's without what the agent meant for it, and
// the command's.
func taskEnvironment(t *mesos.TaskInfo, cfg config) []string {
	var out []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MESOS_") && !strings.HasPrefix(kv, "LIBPROCESS_") {
			out = append(out, kv)
		}
	}
	out = append(out, "MESOS_SANDBOX="+cfg.sandbox, "MESOS_TASK_ID="+t.TaskID.Value)
	for _, v := range t.GetCommand().GetEnvironment().GetVariables() {
		if v.GetType() != mesos.Environment_Variable_SECRET {
			out = append(out, v.Name+"="+v.GetValue())
		}
	}
	return out
}

// kill asks the command to end, and ends it after the grace period.
func (x *executor) kill(p *mesos.KillPolicy) {
	if x.process == nil || x.over {
		return
	}
	grace := defaultGrace
	for _, policy := range []*mesos.KillPolicy{x.task.KillPolicy, p} {
		if policy != nil && policy.GracePeriod != nil {
			grace = time.Duration(policy.GracePeriod.Nanoseconds)
		}
	}
	if !x.killing {
		x.signal(syscall.SIGTERM)
	}
	x.killing = true
	x.kill9 = time.After(grace)
}

// signal reaches the whole process group: the command's session was made for it.
func (x *executor) signal(sig syscall.Signal) {
	if x.process != nil && !x.over {
		if err := syscall.Kill(-x.process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			x.log.Error("signalling the command failed", "signal", sig, "error", err)
		}
	}
}

// finished reports the end of the command. What it left in its process group
// is killed, as its container's end would do.
func (x *executor) finished(ctx context.Context, ws syscall.WaitStatus) {
	x.signal(syscall.SIGKILL)
	x.over, x.kill9 = true, nil
	text := fmt.Sprintf("Command exited with status %d", ws.ExitStatus())
	if ws.Signaled() {
		text = "Command terminated with signal " + signalName(ws.Signal())
	}
	reason := mesos.REASON_COMMAND_EXECUTOR_FAILED
	switch {
	case x.killing:
		x.update(ctx, mesos.TASK_KILLED, nil, text)
	case ws.Exited() && ws.ExitStatus() == 0:
		x.update(ctx, mesos.TASK_FINISHED, nil, text)
	default:
		x.update(ctx, mesos.TASK_FAILED, &reason, text)
	}
}

// signalName is strsignal(3)'s, as Mesos shows it.
func signalName(s syscall.Signal) string {
	name := s.String()
	return strings.ToUpper(name[:1]) + name[1:]
}
