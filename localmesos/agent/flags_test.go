package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) (Flags, *pflag.FlagSet, error) {
	t.Helper()
	f := DefaultFlags()
	set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	f.Register(set)
	err := set.Parse(args)
	return f, set, err
}

func TestFlagsAsMesosSpellsThem(t *testing.T) {
	t.Parallel()
	env := filepath.Join(t.TempDir(), "env.json")
	if err := os.WriteFile(env, []byte(`{"A":"b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, set, err := parse(t, "--ip=127.0.0.2", "--port=5052", "--hostname=h", "--master=127.0.0.1:5050", "--work_dir=/w",
		"--resources=cpus:1", "--attributes=a:b", "--executor_registration_timeout=3secs", "--executor-shutdown-grace-period", "500ms",
		"--executor_reregistration_timeout=15secs", "--recovery_timeout=1hrs", "--no-switch_user", "--executor_environment_variables="+env,
		"--launcher=posix", "--no-systemd_enable_support", "--runtime-dir=/r", "--isolation=posix/cpu,posix/mem")
	if err != nil {
		t.Fatal(err)
	}
	if f.IP != "127.0.0.2" || f.Port != 5052 || f.WorkDir != "/w" || f.ExecutorRegistrationTimeout != 3*time.Second ||
		f.ExecutorShutdownGracePeriod != 500*time.Millisecond || f.RecoveryTimeout != time.Hour || f.SwitchUser || f.ExecutorEnvironment["A"] != "b" {
		t.Errorf("%+v", f)
	}
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
	notes := strings.Join(Ignored(set), "\n")
	for _, want := range []string{"--launcher has no effect", "--runtime_dir", "--isolation", "--no_systemd_enable_support"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q lacks %q", notes, want)
		}
	}
	if f, _, err := parse(t, "--switch_user=false"); err != nil || f.SwitchUser {
		t.Errorf("%v %v", f.SwitchUser, err)
	}
	f, _, err = parse(t, "--recover=cleanup", "--strict", "--authenticate_http_executors=true", "--executor_secret_key=/k", "--http_executor_domain_sockets",
		"--domain-socket-location=/s", "--fetcher_cache_size=3MB", "--fetcher_cache_dir=/c", "--gc_delay=2days", "--gc_disk_headroom=0.25", "--disk_watch_interval=10secs")
	if err != nil || f.Recover != RecoverCleanup || !f.Strict || !f.AuthenticateHTTPExecutors || f.JWTSecretKey != "/k" || !f.HTTPExecutorDomainSockets ||
		f.DomainSocketLocation != "/s" || f.FetcherCacheSize != 3<<20 || f.FetcherCacheDir != "/c" || f.GCDelay != 48*time.Hour || f.GCDiskHeadroom != 0.25 ||
		f.DiskWatchInterval != 10*time.Second {
		t.Errorf("%+v %v", f, err)
	}
	f, _, err = parse(t, "--strict", "--no-strict", "--no-authenticate_http_executors", "--no-http_executor_domain_sockets", "--jwt-secret-key=/j")
	if err != nil || f.Strict || f.AuthenticateHTTPExecutors || f.HTTPExecutorDomainSockets || f.JWTSecretKey != "/j" {
		t.Errorf("%+v %v", f, err)
	}
	for _, bad := range []string{"--recovery_timeout=soon", "--port=x", "--no-such-flag", "--executor_environment_variables=[]"} {
		if _, _, err := parse(t, bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestValidateNamesEverything(t *testing.T) {
	t.Parallel()
	f := DefaultFlags()
	f.IP, f.Port, f.ExecutorReregistrationTimeout, f.RecoveryTimeout = "localhost", -1, time.Minute, 0
	f.Recover, f.GCDiskHeadroom, f.GCDelay, f.FetcherCacheSize, f.AuthenticateHTTPExecutors = "never", 1.5, 0, -1, true
	_, err := New(f)
	for _, want := range []string{"master: missing", `recover: "never"`, "gc_disk_headroom: 1.5", "gc_delay: 0ns", "fetcher_cache_size: -1", "jwt_secret_key: missing", "work_dir: missing", `ip: "localhost"`, "port: -1", "is more than 15secs", "recovery_timeout: 0ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	for text, want := range map[string]string{"a:1": "http://a:1", "a": "http://a:5050", "http://a:1/x": "http://a:1", "https://a:1": "https://a:1", "zk://a/mesos": "", "ftp://a": "", ":5050": "", "::": ""} {
		f.Master = text
		if got, err := f.masterURL(); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
}

func TestResourcesAreCompleted(t *testing.T) {
	t.Parallel()
	f := DefaultFlags()
	f.WorkDir, f.Resources, f.Hostname = t.TempDir()+"/not/there/yet", "ports:[1-2];gpus:1;mem:128", "h"
	info, err := describe(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range info.Resources {
		names = append(names, r.Name)
		if r.Name != "ports" && r.GetScalar().GetValue() <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if got := strings.Join(names, " "); got != "cpus mem disk ports gpus" {
		t.Errorf("resources: %s", got)
	}
	for _, bad := range []func(*Flags){func(f *Flags) { f.Resources = "cpus:x" }, func(f *Flags) { f.Attributes = "x" }} {
		g := f
		bad(&g)
		if _, err := describe(g); err == nil {
			t.Errorf("%+v is taken", g)
		}
	}
}
