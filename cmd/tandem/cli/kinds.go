package cli

import (
	"slices"
	"strings"

	"tandem/api"
	"tandem/cmd/tandem/exit"
)

// kind is something that get and describe can show.
type kind struct {
	// name is the singular, plural what the help uses.
	name, plural string
	aliases      []string
	// workload kinds run taskgroups and can be scaled and restarted.
	workload bool
	// declared kinds are artifacts; the others are what the scheduler knows.
	declared api.Kind
	about    string
}

// The kinds that are not declared by artifacts.
const (
	kindTaskgroup = "taskgroup"
	kindTask      = "task"
	kindAgent     = "agent"
	kindAll       = "all"
)

var kinds = []kind{
	{name: "application", plural: "applications", aliases: []string{"app", "apps"}, workload: true, declared: api.KindApplication, about: "replicated containers"},
	{name: "process", plural: "processes", aliases: []string{"proc", "procs"}, workload: true, declared: api.KindProcess, about: "replicated plain processes"},
	{name: "deployment", plural: "deployments", aliases: []string{"deploy", "deploys"}, workload: true, declared: api.KindDeployment, about: "applications updated step by step"},
	{name: "service", plural: "services", aliases: []string{"svc", "svcs"}, declared: api.KindService, about: "names and ports for taskgroups"},
	{name: "endpoint", plural: "endpoints", aliases: []string{"ep", "eps"}, declared: api.KindEndpoint, about: "addresses behind a service"},
	{name: "configmap", plural: "configmaps", aliases: []string{"cm", "cms"}, declared: api.KindConfigMap, about: "configuration for tasks"},
	{name: "secret", plural: "secrets", declared: api.KindSecret, about: "confidential values for tasks"},
	{name: kindTaskgroup, plural: "taskgroups", aliases: []string{"tg", "tgs", "pod", "pods"}, about: "instances of workloads, one executor each"},
	{name: kindTask, plural: "tasks", about: "containers and processes in taskgroups"},
	{name: kindAgent, plural: "agents", aliases: []string{"node", "nodes"}, about: "machines, their attributes and resources"},
}

// allKinds is what "get all" shows.
var allKinds = []string{"deployment", "application", "process", "service", kindTaskgroup}

// lookupKind finds a kind by any of its names, in any case.
func lookupKind(word string) (kind, error) {
	low := strings.ToLower(word)
	for _, k := range kinds {
		if low == k.name || low == k.plural || slices.Contains(k.aliases, low) {
			return k, nil
		}
	}
	hint := ""
	if near := api.Nearest(word, kindWords()); near != "" {
		hint = `; did you mean "` + near + `"?`
	}
	return kind{}, exit.Errorf(exit.NotFound, "unknown kind %q%s; kinds are %s", word, hint, strings.Join(kindPlurals(), ", "))
}

func kindWords() []string {
	var out []string
	for _, k := range kinds {
		out = append(append(out, k.name, k.plural), k.aliases...)
	}
	return out
}

func kindPlurals() []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = k.plural
	}
	return out
}

// kindsHelp lists the kinds with their other names, for the help texts.
func kindsHelp() string {
	var b strings.Builder
	b.WriteString("Kinds:\n")
	for _, k := range kinds {
		names := strings.Join(append([]string{k.plural}, k.aliases...), ", ")
		b.WriteString("  " + names + strings.Repeat(" ", max(1, 34-len(names))) + k.about + "\n")
	}
	return b.String()
}
