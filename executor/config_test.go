package executor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tandem/api"
)

func environment(change map[string]string) func(string) (string, bool) {
	env := map[string]string{
		"MESOS_FRAMEWORK_ID": "f", "MESOS_EXECUTOR_ID": "e", "MESOS_SLAVE_ID": "a", "MESOS_AGENT_ENDPOINT": "127.0.0.1:5051",
		"MESOS_DIRECTORY": "/sandbox", "MESOS_SANDBOX": "/sandbox", "MESOS_CHECKPOINT": "1",
		"MESOS_RECOVERY_TIMEOUT": "15mins", "MESOS_SUBSCRIPTION_BACKOFF_MAX": "2secs", "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "5secs",
	}
	for k, v := range change {
		env[k] = v
	}
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestConfigOfAnAgent(t *testing.T) {
	t.Parallel()
	c, err := ConfigFromEnv(environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.RecoveryTimeout != 15*time.Minute || c.BackoffMax != 2*time.Second || c.ShutdownGrace != 5*time.Second || !c.Checkpoint {
		t.Errorf("config %+v", c)
	}
	if c.AgentID != "a" || c.NodeIP() != "127.0.0.1" || c.TLS != nil {
		t.Errorf("config %+v, node IP %s", c, c.NodeIP())
	}
	// Without checkpointing the agent leaves two of the variables out.
	c, err = ConfigFromEnv(environment(map[string]string{
		"MESOS_CHECKPOINT": "0", "MESOS_RECOVERY_TIMEOUT": "", "MESOS_SUBSCRIPTION_BACKOFF_MAX": "", "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "",
	}))
	if err != nil || c.Checkpoint || c.RecoveryTimeout != 0 || c.ShutdownGrace != defaultShutdownGrace {
		t.Errorf("config %+v, error %v", c, err)
	}
}

func TestConfigTellsEverythingThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	_, err := ConfigFromEnv(environment(map[string]string{
		"MESOS_FRAMEWORK_ID": "", "MESOS_AGENT_ENDPOINT": "nowhere", "MESOS_RECOVERY_TIMEOUT": "15", "MESOS_SUBSCRIPTION_BACKOFF_MAX": "",
		"MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "soon", "MESOS_DIRECTORY": "here", "MESOS_DOMAIN_SOCKET": "/" + strings.Repeat("x", 107),
		"LIBPROCESS_SSL_ENABLED": "perhaps", tokenVariable: "s3cret",
	}))
	var errs api.Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error %v is no api.Errors", err)
	}
	var paths []string
	for _, e := range errs {
		paths = append(paths, e.Path)
	}
	want := "LIBPROCESS_SSL_ENABLED MESOS_AGENT_ENDPOINT MESOS_DIRECTORY MESOS_DOMAIN_SOCKET MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD " +
		"MESOS_FRAMEWORK_ID MESOS_RECOVERY_TIMEOUT MESOS_SUBSCRIPTION_BACKOFF_MAX"
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("errors of\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Error("the token is in the error")
	}
}

func TestE6DurationsAreReadAsMesosWritesThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"15mins": 15 * time.Minute, "2secs": 2 * time.Second, "500ms": 500 * time.Millisecond, "1.5secs": 1500 * time.Millisecond, "1.5hrs": 90 * time.Minute,
		"250us": 250 * time.Microsecond, "7ns": 7, "2hrs": 2 * time.Hour, "1days": 24 * time.Hour, "3weeks": 21 * 24 * time.Hour, "0ns": 0,
	} {
		if d, err := ParseDuration(text); err != nil || d != want {
			t.Errorf("%q: %s, %v, want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "15", "mins", "-1secs", "NaNsecs", "Infsecs", "1e300weeks", "five mins", "5 m"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s, want an error", text, d)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"15mins", "2secs", "1.5hrs", "1e3ns", "weeks", "9223372036854775807ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil && d < 0 {
			t.Errorf("%q is %d", s, d)
		}
	})
}

func TestTokenThatIsNoneIsRefusedUnseen(t *testing.T) {
	t.Parallel()
	_, err := ConfigFromEnv(environment(map[string]string{tokenVariable: "s3cret\nX-Other: 1"}))
	if err == nil || !strings.Contains(err.Error(), tokenVariable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %v, want one of %s without its value", err, tokenVariable)
	}
}

func FuzzEnvironRange(f *testing.F) {
	f.Add("1 (a) b) S" + strings.Repeat(" 7", 60))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if start, end, err := environRange(s); err == nil && (start <= 0 || end < start) {
			t.Errorf("from %d to %d", start, end)
		}
	})
}
