package agent

import (
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/ssl"
)

// environment is what an executor gets, and all that it gets.
func (a *Agent) environment(e *executor, token string) []string {
	zeroOrOne := map[bool]string{false: "0", true: "1"}
	env := map[string]string{"LIBPROCESS_IP": a.ip, "PATH": container.DefaultPath}
	for k, v := range ssl.ForExecutors(a.flags.SSL) {
		env[k] = v
	}
	for k, v := range a.flags.ExecutorEnvironment {
		env[k] = v
	}
	for k, v := range map[string]string{
		"LIBPROCESS_PORT":                      "0",
		"MESOS_AGENT_ENDPOINT":                 a.address(),
		"MESOS_CHECKPOINT":                     zeroOrOne[e.fw.checkpoint()],
		"MESOS_DIRECTORY":                      e.directory,
		"MESOS_EXECUTOR_ID":                    e.id,
		"MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": flags.FormatDuration(e.grace(a.flags)),
		"MESOS_FRAMEWORK_ID":                   e.fw.id,
		"MESOS_HTTP_COMMAND_EXECUTOR":          "0",
		"MESOS_SANDBOX":                        e.directory,
		"MESOS_SLAVE_ID":                       a.id(),
		"MESOS_SLAVE_PID":                      a.pid(),
	} {
		env[k] = v
	}
	if e.fw.checkpoint() {
		env["MESOS_RECOVERY_TIMEOUT"] = flags.FormatDuration(a.flags.RecoveryTimeout)
		env["MESOS_SUBSCRIPTION_BACKOFF_MAX"] = flags.FormatDuration(a.flags.ExecutorReregistrationTimeout)
	}
	if a.socket != nil {
		env["MESOS_DOMAIN_SOCKET"] = a.socket.path
	}
	if token != "" {
		env[tokenVariable] = token
	}
	for _, v := range e.info.GetCommand().GetEnvironment().GetVariables() {
		if v.GetType() != mesos.Environment_Variable_SECRET {
			env[v.Name] = v.GetValue()
		}
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		if k != "" && !strings.ContainsAny(k, "=\x00") && !strings.ContainsRune(v, 0) {
			out = append(out, k+"="+v)
		}
	}
	return out
}
