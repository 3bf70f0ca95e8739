package cli

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/api"
	"tandem/cmd/tandem/exit"
)

// defaultServer is where "tandem local" and "tandem scheduler" listen unless told otherwise.
const defaultServer = "http://127.0.0.1:7070"

// scope is which scheduler and which namespace a command is about.
type scope struct {
	server    string
	namespace string
	all       bool
}

// serverFlag adds --server.
func (s *scope) serverFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.server, "server", "", "`URL` of the scheduler (TANDEM_SERVER, otherwise "+defaultServer+")")
}

// flags adds --server and -n, and -A where several namespaces can be shown.
func (s *scope) flags(a *app, cmd *cobra.Command, list bool) {
	s.serverFlag(cmd)
	cmd.Flags().StringVarP(&s.namespace, "namespace", "n", "", "`namespace` (TANDEM_NAMESPACE)")
	if list {
		cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "all namespaces, even when TANDEM_NAMESPACE is set")
	}
	err := cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeNamespaces(cmd, s), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag does not exist: a mistake in this package
	}
}

// address is the scheduler's URL, checked.
func (s *scope) address(a *app) (string, error) {
	text, from := s.server, "--server"
	if text == "" {
		text, from = a.getenv("TANDEM_SERVER"), "TANDEM_SERVER"
	}
	if text == "" {
		return defaultServer, nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", exit.Errorf(exit.Usage, "%s %q is not a URL; write it as %s", from, text, defaultServer)
	}
	return strings.TrimRight(text, "/"), nil
}

// backend connects to the scheduler; settles the namespace as well.
func (s *scope) backend(a *app) (backend, error) {
	if s.all && s.namespace != "" {
		return nil, exit.Errorf(exit.Usage, "-n %s and -A contradict each other: give one of them", s.namespace)
	}
	if s.namespace == "" && !s.all {
		s.namespace = a.getenv("TANDEM_NAMESPACE")
	}
	address, err := s.address(a)
	if err != nil {
		return nil, err
	}
	return a.connect(address)
}

// find resolves a target for a command that only reads: without a namespace,
// the only object of that name is meant.
func find(ctx context.Context, b backend, t target) (target, error) {
	l, err := listKind(ctx, b, t.kind, t.namespace, time.Now())
	if err != nil {
		return t, err
	}
	found, err := l.only([]string{t.name}, t.namespace)
	if err != nil {
		return t, err
	}
	if len(found.names) > 1 {
		return t, exit.Errorf(exit.Usage, "%s %q exists in several namespaces (%s): choose one with -n", t.kind.name, t.name, strings.Join(found.names, ", "))
	}
	parts := strings.Split(found.names[0], "/")
	if len(parts) > 2 {
		t.namespace = parts[1]
	}
	t.name = parts[len(parts)-1]
	return t, nil
}

// own resolves a target for a command that changes something: without a
// namespace it is the default one, because a name that is unique today may be
// another's tomorrow. What is elsewhere is named.
func own(ctx context.Context, b backend, t target) (target, error) {
	if t.namespace == "" {
		t.namespace = api.DefaultNamespace
	}
	l, err := listKind(ctx, b, t.kind, "", time.Now())
	if err != nil {
		return t, err
	}
	var elsewhere []string
	for i, name := range l.names {
		if name == t.String() || l.rows[i].key == t.name {
			return t, nil
		}
		if lastPart(name) == t.name {
			elsewhere = append(elsewhere, strings.Split(name, "/")[1])
		}
	}
	if len(elsewhere) > 0 {
		return t, notHere(t.kind.name, t.name, t.namespace, elsewhere)
	}
	return t, notFound(t.kind, t.name, t.namespace, l.names)
}

// notHere says in which other namespaces something is.
func notHere(kind, name, namespace string, elsewhere []string) error {
	return exit.Errorf(exit.NotFound, "%s %q is not in namespace %s but in %s: choose it with -n", kind, name, namespace, strings.Join(elsewhere, ", "))
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func hasSlash(s string) bool { return strings.Contains(s, "/") }

func splitComma(s string) []string { return strings.Split(s, ",") }
