// Registry is the server of the consul example: a small registry of peers that
// find one another. It takes the flags of a Consul server that the example uses.
// Each server listens on one address and port, asks the servers named by -join for
// their peers, and exchanges what it knows with all of them once a second.
//
//	GET  /health  200 once -bootstrap-expect servers are alive, otherwise 503
//	GET  /peers   the servers that are alive, as JSON
//	POST /gossip  what a server knows, answered with what this one knows
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set appends a value.
func (l *list) Set(v string) error {
	*l = append(*l, v)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		slog.Error("registry ends", "error", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || args[0] != "agent" {
		return errors.New("usage: consul agent -server -bind ADDRESS [-port N] [-join ADDRESS]... [-bootstrap-expect N] [-data-dir DIR] [-config-dir DIR]")
	}
	f := flag.NewFlagSet("agent", flag.ContinueOnError)
	o := options{Name: os.Getenv("NODE_NAME")}
	var join list
	f.StringVar(&o.Bind, "bind", "", "the address to listen on")
	f.StringVar(&o.Port, "port", envOr("PORT0", "8300"), "the port of all servers; PORT0 when it is set")
	f.IntVar(&o.Expect, "bootstrap-expect", 1, "the number of servers that make the registry healthy")
	f.StringVar(&o.DataDir, "data-dir", "", "where the server's id is kept")
	f.Var(&join, "join", "a server to ask for its peers; may be given several times")
	f.String("config-dir", "", "accepted; a Consul would read its configuration there")
	f.Bool("server", true, "accepted; there is nothing else")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if net.ParseIP(o.Bind) == nil {
		return fmt.Errorf("-bind %q: must be an IP address of this node, for example ${BCS_NODE_IP}", o.Bind)
	}
	for _, j := range join {
		if _, _, err := net.SplitHostPort(j); err != nil {
			j = net.JoinHostPort(j, o.Port)
		}
		o.Join = append(o.Join, j)
	}
	node, err := newNode(o)
	if err != nil {
		return err
	}
	// As the first process of a container it gets SIGTERM only if it asks for it.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(o.Bind, o.Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return serve(ctx, node, l)
}

// serve answers and gossips until ctx ends; then it says goodbye to its peers.
func serve(ctx context.Context, n *node, l net.Listener) error {
	server := &http.Server{Handler: n.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	slog.Info("listening", "address", l.Addr().String(), "id", n.self.ID, "name", n.self.Name)
	gossipDone := make(chan struct{})
	gossipCtx, stopGossip := context.WithCancel(ctx)
	defer stopGossip()
	go func() {
		defer close(gossipDone)
		n.gossip(gossipCtx)
	}()
	var err error
	select {
	case err = <-failed:
		stopGossip()
		<-gossipDone
	case <-ctx.Done():
		<-gossipDone
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		n.leave(bye)
		if err = server.Shutdown(bye); errors.Is(err, context.DeadlineExceeded) {
			// A client that has connected and asked nothing yet counts as busy for five seconds.
			err = server.Close()
		}
		slog.Info("left")
	}
	return err
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}
