package executor

import (
	"errors"
	"os"
	"path/filepath"
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

func TestTLSOfLibprocess(t *testing.T) {
	t.Parallel()
	c, err := ConfigFromEnv(environment(map[string]string{"SSL_ENABLED": "1", "LIBPROCESS_SSL_VERIFY_SERVER_CERT": "0"}))
	if err != nil || c.TLS == nil || !c.TLS.InsecureSkipVerify {
		t.Errorf("TLS %+v, error %v", c.TLS, err)
	}
	c, err = ConfigFromEnv(environment(map[string]string{"LIBPROCESS_SSL_ENABLED": "true"}))
	if err != nil || c.TLS == nil || c.TLS.InsecureSkipVerify || c.TLS.ServerName != "127.0.0.1" {
		t.Errorf("TLS %+v, error %v: verification must be left out only when told so", c.TLS, err)
	}
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + ".missing"} {
		if _, err := ConfigFromEnv(environment(map[string]string{"LIBPROCESS_SSL_ENABLED": "1", "LIBPROCESS_SSL_CA_FILE": file})); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("CA file %s: error %v", file, err)
		}
	}
}

func TestE6DurationsAreReadAsMesosWritesThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"15mins": 15 * time.Minute, "2secs": 2 * time.Second, "500ms": 500 * time.Millisecond, "1.5secs": 1500 * time.Millisecond,
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
