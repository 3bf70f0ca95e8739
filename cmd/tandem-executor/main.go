// Command tandem-executor runs one taskgroup on a Mesos agent. The agent starts
// it; it takes its instructions from the agent's environment variables and API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"tandem/executor"
	"tandem/executor/container/policy"
	"tandem/internal/version"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	// The limit is soft: it makes the collector work harder, see runtime/debug.
	debug.SetMemoryLimit(24 << 20)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}

// run is main without the process: arguments, streams and environment are given.
func run(args []string, stdout, stderr io.Writer, lookup func(string) (string, bool)) int {
	o := defaults(lookup)
	flags := flag.NewFlagSet("tandem-executor", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { usage(stderr, flags) }
	o.declare(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case o.version:
		fmt.Fprintln(stdout, "tandem-executor", version.String())
		return exitOK
	}
	if err := o.check(flags.Args()); err != nil {
		fmt.Fprintf(stderr, "tandem-executor: %v\n", err)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.level}))
	cfg, err := executor.ConfigFromEnv(lookup)
	if err := executor.TakeToken(); err != nil {
		log.Warn("processes of the same user may read the executor's token", "error", err)
	}
	if err != nil {
		fmt.Fprintf(stderr, "tandem-executor: the environment is not that of a Mesos executor:\n%v\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, o, cfg, log); err != nil {
		log.Error("executor ends", "error", err)
		return exitFailure
	}
	log.Info("executor ends")
	return exitOK
}

// options are the flags.
type options struct {
	dataDir, processdSocket, dockerHost, publishAddress, policy string
	logSize, logFiles                                           int
	level                                                       slog.Level
	version                                                     bool
}

// defaults takes what the environment says in place of flags.
func defaults(lookup func(string) (string, bool)) *options {
	get := func(name, unset string) string {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
		return unset
	}
	return &options{
		dataDir:        get("TANDEM_DATA_DIR", "/var/lib/tandem"),
		processdSocket: get("TANDEM_PROCESSD_SOCKET", "/run/tandem/processd.sock"),
		dockerHost:     get("DOCKER_HOST", "unix:///var/run/docker.sock"),
		publishAddress: get("TANDEM_PUBLISH_ADDRESS", "0.0.0.0"),
		logSize:        16,
		logFiles:       4,
		policy:         get("TANDEM_EXECUTOR_POLICY", ""),
	}
}

func (o *options) declare(flags *flag.FlagSet) {
	flags.StringVar(&o.dataDir, "data-dir", o.dataDir, "`directory` of the agent's journal, shared with tandem-processd (TANDEM_DATA_DIR)")
	flags.StringVar(&o.processdSocket, "processd-socket", o.processdSocket, "`path` of tandem-processd's socket (TANDEM_PROCESSD_SOCKET)")
	flags.StringVar(&o.dockerHost, "docker-host", o.dockerHost, "the Docker Engine's socket as unix:///`path` (DOCKER_HOST)")
	flags.StringVar(&o.publishAddress, "publish-address", o.publishAddress, "`address` of the agent on which ports of bridged containers are published (TANDEM_PUBLISH_ADDRESS)")
	flags.StringVar(&o.policy, "policy", o.policy, "`file` that says what containers may do (TANDEM_EXECUTOR_POLICY); default "+policy.DefaultFile+", which may be missing")
	flags.IntVar(&o.logSize, "log-size", o.logSize, "`MiB` after which a container's stdout or stderr is rotated; 0 is never")
	flags.IntVar(&o.logFiles, "log-files", o.logFiles, "how `many` rotated files of each are kept")
	flags.TextVar(&o.level, "log-level", slog.LevelInfo, "`level` of the log on standard error: debug, info, warn or error")
	flags.BoolVar(&o.version, "version", false, "show the version and exit")
}

// check looks at what flag.Parse cannot know.
func (o *options) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q; tandem-executor has flags only, see --help", rest[0])
	}
	if o.dataDir == "" {
		return errors.New("--data-dir is empty; name the agent's data directory")
	}
	if o.logSize < 0 || o.logSize > 1<<20 || o.logFiles < 0 {
		return fmt.Errorf("--log-size %d and --log-files %d must not be negative, and a file has at most 1 TiB", o.logSize, o.logFiles)
	}
	if _, err := netip.ParseAddr(o.publishAddress); err != nil {
		return fmt.Errorf("--publish-address %q is not an IP address", o.publishAddress)
	}
	return nil
}

func usage(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(w, `tandem-executor runs one taskgroup on a Mesos agent. A Mesos agent starts it with the
MESOS_* variables of an executor in its environment; a person has no use for it.

Flags (in parentheses the variable that stands for it):
`)
	flags.PrintDefaults()
	fmt.Fprint(w, `
Exit codes: 0 all tasks have ended and the agent knows it, or told to shut down; 1 it had to
give up (the log says why), its tasks are stopped; 2 wrong flags or environment.
`)
}
