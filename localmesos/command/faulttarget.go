package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/localmesos/fault"
)

// completionTime bounds what a press of the tab key may wait.
const completionTime = 700 * time.Millisecond

// listTime bounds the question which agents there are.
const listTime = 5 * time.Second

// agentEntry is what /slaves tells of an agent.
type agentEntry struct {
	ID, Hostname, PID string
}

// address is host:port, out of "slave(1)@host:port".
func (a agentEntry) address() string {
	_, address, _ := strings.Cut(a.PID, "@")
	return address
}

// names are those that people may call the agent by.
func (a agentEntry) names() []string { return []string{a.ID, a.Hostname, a.address()} }

// agents asks the master which agents there are.
func (o *faults) agents(ctx context.Context) ([]agentEntry, error) {
	if _, err := fault.NewClient(o.master); err != nil {
		return nil, fmt.Errorf("--master: %w", err)
	}
	base := o.master
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/slaves", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("master %s %w: %w; give --master, or name an agent by host:port", o.master, fault.ErrUnreachable, err)
	}
	defer resp.Body.Close()
	var body struct{ Slaves []agentEntry }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("master %s does not list its agents (it answered %s); name an agent by host:port", o.master, resp.Status)
	}
	return body.Slaves, nil
}

// client finds a target; empty means the master.
func (o *faults) client(ctx context.Context, target string) (*fault.Client, error) {
	switch {
	case target == "" || target == "master":
		c, err := fault.NewClient(o.master)
		if err != nil {
			return nil, fmt.Errorf("--master: %w", err)
		}
		return c, nil
	case strings.Contains(target, ":"):
		return fault.NewClient(target) // also when the master does not answer
	}
	list, err := o.agents(ctx)
	if err != nil {
		return nil, err
	}
	var found, known []string
	for _, a := range list {
		known = append(known, a.Hostname)
		if slices.Contains(a.names(), target) {
			found = append(found, a.address())
		}
	}
	switch len(found) {
	case 1:
		return fault.NewClient(found[0])
	case 0:
		return nil, fmt.Errorf("agent %q: %w: the master at %s has %s", target, fault.ErrUnknown, o.master, orNone(known))
	}
	return nil, fmt.Errorf("agent %q: %w: there are several of that name; use one of %s", target, fault.ErrInvalid, strings.Join(found, ", "))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "no agents"
	}
	return strings.Join(list, ", ")
}

// make puts a fault in force and says so.
func (o *faults) make(cmd *cobra.Command, target string, f fault.Fault) error {
	client, err := o.client(cmd.Context(), target)
	if err != nil {
		return err
	}
	f, err = client.Add(cmd.Context(), f)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("fault %d on %s: %s\n", f.ID, f.On, f)
	if f.Ended != "" && (f.Kind == fault.Cut || f.Kind == fault.Rescind) {
		text = fmt.Sprintf("fault %d on %s: %s (%d)\n", f.ID, f.On, f, f.Hits)
	}
	return o.show(cmd, f, text)
}

// statuses asks one target, or the master and all agents that take faults.
func (o *faults) statuses(ctx context.Context, on string) ([]fault.Status, error) {
	var out []fault.Status
	err := o.each(ctx, on, func(c *fault.Client) error {
		s, err := c.Status(ctx)
		if err == nil {
			out = append(out, s)
		}
		return err
	})
	return out, err
}

func (o *faults) clearAll(ctx context.Context, on string) (total int, err error) {
	err = o.each(ctx, on, func(c *fault.Client) error {
		n, err := c.ClearKind(ctx, "")
		total += n
		return err
	})
	return total, err
}

// each does something on one target, or on the master and all agents; those
// agents are passed over that take no faults.
func (o *faults) each(ctx context.Context, on string, do func(*fault.Client) error) error {
	first, err := o.client(ctx, on)
	if err != nil {
		return err
	}
	if err := do(first); err != nil || on != "" {
		return err
	}
	list, err := o.agents(ctx)
	if err != nil {
		return err
	}
	for _, a := range list {
		c, err := fault.NewClient(a.address())
		if err == nil {
			err = do(c)
		}
		if err != nil && !errors.Is(err, fault.ErrDisabled) && !errors.Is(err, fault.ErrUnreachable) {
			return err
		}
	}
	return nil
}

// completeTargets completes names of agents, and "master".
func (o *faults) completeTargets(master bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var out []string
		if master {
			out = append(out, "master")
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTime)
		defer cancel()
		list, err := o.agents(ctx)
		if err != nil {
			return out, noFiles
		}
		for _, a := range list {
			out = append(out, a.Hostname)
		}
		return out, noFiles
	}
}

// completeArgs completes the arguments of a kind of fault.
func (o *faults) completeArgs(d faultCommand) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) >= d.most || len(args) > 0:
			return nil, noFiles
		case len(d.words) > 0:
			return d.words, noFiles
		case d.kind == fault.Rescind:
			return nil, noFiles
		}
		return o.completeTargets(fault.Allowed(d.kind, fault.OnMaster))(cmd, args, word)
	}
}
