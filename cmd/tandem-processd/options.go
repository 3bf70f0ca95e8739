package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"time"

	"github.com/spf13/pflag"

	"tandem/internal/unixhttp"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
)

// options are what the flags, the environment and the configuration file say.
type options struct {
	config                                                     string
	dataDir, socket, workspace, group, dockerHost, defaultUser string
	killOnExit                                                 bool
	killGrace, startTimeout, prepareTimeout                    time.Duration
	logLevel                                                   string
	outputMB, outputFiles                                      int
	defaultPids                                                int64

	level slog.Level
	// from tells where each value comes from, by flag.
	from map[string]string
}

// variables are the flags whose default comes from the environment.
var variables = map[string]string{
	flagConfig: "TANDEM_PROCESSD_CONFIG", "data-dir": "TANDEM_DATA_DIR", "socket": "TANDEM_PROCESSD_SOCKET", "docker-host": "DOCKER_HOST",
}

const (
	flagConfig      = "config"
	flagDefaultUser = "default-user"
	defaultConfig   = "/etc/tandem/processd.yaml"
)

func (o *options) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.config, flagConfig, defaultConfig, "YAML file whose keys are these flags; flags win, then the environment, then the file (TANDEM_PROCESSD_CONFIG). The default file need not exist")
	f.StringVar(&o.dataDir, "data-dir", "/var/lib/tandem", "directory of the records and the journal, shared with tandem-executor (TANDEM_DATA_DIR)")
	f.StringVar(&o.socket, "socket", client.DefaultSocket, "unix socket to serve on, mode 0660 (TANDEM_PROCESSD_SOCKET); with socket activation systemd's is used instead")
	f.StringVar(&o.workspace, "workspace", "", "directory of work_dir and run_dir, which ${work_base_dir} and ${run_base_dir} name (default <data-dir>/workspace)")
	f.StringVar(&o.group, "group", "", "group whose members may use the socket, besides root and the daemon's user: who may, can become root (default tandem, where there is that group)")
	f.StringVar(&o.defaultUser, flagDefaultUser, ownDefaultUser(), "account that processes run as which name none")
	f.Int64Var(&o.defaultPids, "default-pids-limit", processdaemon.DefaultPids(), "processes and threads that a task may have which says nothing of it; 0 is no limit. The default is 15 % of what the machine can have")
	f.StringVar(&o.dockerHost, "docker-host", "", "the Docker Engine from which containers of dead executors are removed, as unix:///path (DOCKER_HOST)")
	f.DurationVar(&o.startTimeout, "start-timeout", 5*time.Minute, "time that a start command with a pid file may take whose task says nothing of it")
	f.DurationVar(&o.prepareTimeout, "prepare-timeout", time.Hour, "time that fetching and unpacking for a task may take")
	f.BoolVar(&o.killOnExit, "kill-on-exit", false, "stop all processes before ending")
	f.DurationVar(&o.killGrace, "kill-grace", 3*time.Second, "with --kill-on-exit: time from SIGTERM to SIGKILL")
	f.IntVar(&o.outputMB, "output-max-mb", 64, "MiB at which stdout and stderr of a process are rotated; 0 never rotates")
	f.IntVar(&o.outputFiles, "output-files", 3, "older pieces of stdout and stderr that are kept, each named by the place of its first byte: stdout.000067108864")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error; the log goes to stderr. SIGHUP reads it again")
}

// ownDefaultUser is nobody where the daemon is root: a process is root only when
// it or the operator says so. A daemon without rights has its own account only.
func ownDefaultUser() string {
	if os.Geteuid() == 0 {
		return "nobody"
	}
	return ""
}

// settle fills in what no flag says, from the environment and the file, and checks all.
func (o *options) settle(f *pflag.FlagSet) error {
	o.from = map[string]string{}
	f.VisitAll(func(fl *pflag.Flag) {
		if fl.Changed {
			o.from[fl.Name] = "flag"
		}
	})
	var errs []error
	fromEnv := func(name string) {
		if v := os.Getenv(variables[name]); v != "" && o.from[name] == "" {
			if err := f.Lookup(name).Value.Set(v); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", variables[name], v, err))
			}
			o.from[name] = variables[name]
		}
	}
	for name := range variables {
		fromEnv(name)
	}
	errs = append(errs, readConfig(o.config, o.from[flagConfig] != "", f, o.from), o.check())
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

func (o *options) check() error {
	var errs []error
	if err := o.level.UnmarshalText([]byte(o.logLevel)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel))
	}
	if o.outputMB < 0 || o.outputFiles < 0 {
		errs = append(errs, errors.New("--output-max-mb and --output-files: want 0 or more"))
	}
	if o.killGrace < 0 || o.startTimeout <= 0 || o.prepareTimeout <= 0 {
		errs = append(errs, errors.New("--kill-grace: want 0s or more; --start-timeout, --prepare-timeout: want more than 0s"))
	}
	if o.defaultPids < 0 {
		errs = append(errs, errors.New("--default-pids-limit: want a number of processes, or 0 for no limit"))
	}
	if o.dataDir == "" {
		errs = append(errs, errors.New("--data-dir: want a directory"))
	}
	if err := unixhttp.CheckPath(o.socket); err != nil {
		errs = append(errs, fmt.Errorf("--socket: %w", err))
	}
	if o.workspace == "" {
		o.workspace = filepath.Join(o.dataDir, "workspace")
	}
	return errors.Join(errs...)
}

// accounts looks whether the user and the group that somebody has named are known here: without
// the group the daemon cannot start, and without the user no process that names none. A new
// program that finds this does not take over.
func (o *options) accounts() error {
	var errs []error
	if o.group != "" {
		if _, err := user.LookupGroup(o.group); err != nil {
			errs = append(errs, fmt.Errorf("--group %q: %w; create the group or leave it out", o.group, err))
		}
	}
	if o.from[flagDefaultUser] != "" && o.defaultUser != "" {
		_, err := user.Lookup(o.defaultUser)
		if _, byID := user.LookupId(o.defaultUser); err != nil && byID != nil {
			errs = append(errs, fmt.Errorf("--%s %q: %w; create the account or name another", flagDefaultUser, o.defaultUser, err))
		}
	}
	return errors.Join(errs...)
}

// same tells whether two options are, apart from where they come from.
func (o *options) same(other *options) bool {
	a, b := *o, *other
	a.from, b.from = nil, nil
	return reflect.DeepEqual(a, b)
}
