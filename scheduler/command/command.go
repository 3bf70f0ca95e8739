// Package command is the command line of the scheduler, "tandem scheduler":
// flags and wiring, no logic.
package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tandem/scheduler"
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o scheduler.Options
	var secretFile, caFile, level string
	cmd := &cobra.Command{
		Use:   "scheduler --master HOST:PORT --executor-command COMMAND",
		Short: "Run the scheduler, a Mesos framework",
		Long: `Run the scheduler: it subscribes at the leading Mesos master as a framework,
places what was declared, keeps it as declared and serves the HTTP API under /v1.

It keeps its state in DATA-DIR/scheduler.db and may be stopped or killed at any
time: everything goes on running, and it takes over again when it is started on
the same directory within the failover timeout.`,
		Example: `  # at an Apache Mesos cluster with three masters
  tandem scheduler --master m1:5050,m2:5050,m3:5050 --data-dir /var/lib/tandem/scheduler \
      --executor-command 'exec /usr/bin/tandem-executor'

  # at masters that speak TLS and authenticate frameworks
  tandem scheduler --master https://m1:5050,https://m2:5050 --ca-file /etc/mesos/ca.pem \
      --principal tandem --secret-file /etc/tandem/secret

  # agents fetch the executor from a web server
  tandem scheduler --master m1:5050 --executor-uri http://repo/tandem-executor \
      --executor-command 'exec ./tandem-executor'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
			}
			o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
			if secretFile != "" {
				b, err := os.ReadFile(secretFile)
				if err != nil {
					return fmt.Errorf("--secret-file: %w", err)
				}
				if o.Secret = strings.TrimSpace(string(b)); o.Secret == "" {
					return fmt.Errorf("--secret-file: %s is empty", secretFile)
				}
				if st, err := os.Stat(secretFile); err == nil && st.Mode().Perm()&0o007 != 0 {
					o.Logger.Warn("every user can use the file with the framework's secret; give it mode 0600", "file", secretFile, "mode", st.Mode().Perm())
				}
			}
			if caFile != "" {
				var err error
				if o.TLS, err = trusting(caFile); err != nil {
					return fmt.Errorf("--ca-file: %w", err)
				}
			}
			if o.Secret != "" && o.Principal == "" {
				return errors.New("--secret-file needs --principal, the name that the secret belongs to")
			}
			s, err := scheduler.New(o)
			if err != nil {
				return err
			}
			o.Logger.Info("the API listens", "address", s.Addr().String())
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return s.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Masters, "master", "127.0.0.1:5050", "Mesos masters, host:port or https://host:port, separated by commas; any of them finds the leader")
	f.StringVar(&o.DataDir, "data-dir", "/var/lib/tandem/scheduler", "directory of the store")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7070", "address of the HTTP API")
	f.StringVar(&o.Cluster, "cluster", "local", "name of the cluster, a part of every identifier")
	f.StringVar(&o.Name, "name", "tandem", "name of the framework")
	f.StringVar(&o.User, "user", "root", "account that agents start the executor as")
	f.StringVar(&o.Role, "role", "*", "Mesos role of the framework")
	f.StringVar(&o.Principal, "principal", "", "principal of the framework, where the master authenticates")
	f.StringVar(&secretFile, "secret-file", "", "file with the principal's secret")
	f.StringVar(&caFile, "ca-file", "", "file with the authorities (PEM) that masters and agents with https are trusted by; default the system's")
	f.DurationVar(&o.FailoverTimeout, "failover-timeout", 7*24*time.Hour, "how long the master keeps the tasks of a scheduler that is away")
	f.StringVar(&o.ExecutorCommand, "executor-command", "exec tandem-executor", "shell command that starts the executor on an agent")
	f.StringSliceVar(&o.ExecutorURIs, "executor-uri", nil, "URI that the agent fetches into the sandbox first; may be repeated")
	f.DurationVar(&o.ReplaceUnreachable, "replace-unreachable-after", time.Minute, "how long a taskgroup may be unreachable before another takes its place")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// trusting is the configuration of a client that trusts the authorities in a file, and no others.
func trusting(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
