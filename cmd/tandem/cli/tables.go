package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tandem/api"
	"tandem/internal/term"
	"tandem/scheduler/wire"
)

// A row of a table has a key, by which --watch knows it again.
type row struct {
	key   string
	cells []term.Cell
}

// column titles; those after the bar are for -o wide.
var columns = map[string]string{
	"workload":    "NAMESPACE NAME READY UP-TO-DATE RESTARTS AGE MESSAGE",
	"service":     "NAMESPACE NAME PORTS AGE",
	"declared":    "NAMESPACE NAME AGE",
	kindTaskgroup: "NAMESPACE NAME STATE READY AGENT PORTS RESTARTS AGE MESSAGE | IP ID",
	kindTask:      "NAMESPACE TASKGROUP NAME KIND STATE HEALTH AGENT PORTS AGE MESSAGE | PID CONTAINER EXIT ID",
	kindAgent:     "HOSTNAME STATE CPUS MEMORY DISK PORTS TASKGROUPS ATTRIBUTES | ID",
}

var rightAligned = map[string]bool{"RESTARTS": true, "AGE": true, "TASKGROUPS": true, "PID": true, "EXIT": true, "UP-TO-DATE": true, "READY": true, "CPUS": true, "MEMORY": true, "DISK": true}

var flexibleColumn = map[string]bool{"MESSAGE": true, "ATTRIBUTES": true}

// shape says which of the columns a kind has.
func (k kind) shape() string {
	switch {
	case k.workload:
		return "workload"
	case k.declared == api.KindService || k.declared == api.KindEndpoint:
		return "service"
	case k.declared != "":
		return "declared"
	}
	return k.name
}

// newTable makes the empty table of a kind. Messages come last, so that they
// are what is shortened.
func newTable(k kind, wide bool) *term.Table {
	narrow, more, _ := strings.Cut(columns[k.shape()], " | ")
	titles := strings.Fields(narrow)
	if wide {
		titles = append(titles, strings.Fields(more)...)
	}
	t := &term.Table{}
	for _, title := range titles {
		t.Columns = append(t.Columns, term.Column{Title: title, Right: rightAligned[title], Flexible: flexibleColumn[title]})
	}
	return t
}

// stateStyle colours a state of Mesos or of a taskgroup.
func stateStyle(state string) term.Style {
	switch s := strings.TrimPrefix(strings.ToUpper(state), "TASK_"); s {
	case "RUNNING", "FINISHED", "ACTIVE":
		return term.Good
	case "FAILED", "LOST", "ERROR", "DROPPED", "GONE", "GONE_BY_OPERATOR", "UNREACHABLE", "UNKNOWN":
		return term.Bad
	case "KILLED":
		return term.Dim
	}
	return term.Busy
}

func stateCell(state string) term.Cell {
	return term.Cell{Text: strings.TrimPrefix(strings.ToUpper(state), "TASK_"), Style: stateStyle(state)}
}

// readyCell is "n/m", coloured by whether that is all.
func readyCell(n, of int) term.Cell {
	if of == 0 && n == 0 {
		return term.Cell{Text: "0/0", Style: term.Dim}
	}
	style := term.Good
	if n < of {
		style = term.Busy
	}
	return term.Cell{Text: fmt.Sprintf("%d/%d", n, of), Style: style}
}

func objectRow(o wire.Object, now time.Time) row {
	cells := []term.Cell{term.Text(o.Namespace), term.Text(o.Name)}
	switch s := o.Status; {
	case s != nil:
		message := term.Cell{Text: s.Message, Style: term.Dim}
		switch {
		case o.Deleting:
			message = term.Cell{Text: "being deleted", Style: term.Busy}
		case s.Failed:
			message.Style = term.Bad
		}
		cells = append(cells, readyCell(s.Ready, s.Desired), term.Text(strconv.Itoa(s.UpToDate)), term.Text(strconv.Itoa(s.Restarts)),
			age(o.Created, now), message)
	case o.Kind == api.KindService || o.Kind == api.KindEndpoint:
		cells = append(cells, term.Text(servicePorts(o.Raw)), age(o.Created, now))
	default:
		cells = append(cells, age(o.Created, now))
	}
	return row{o.String(), cells}
}

func taskgroupRow(g wire.Taskgroup, now time.Time) row {
	ready, of := 0, 0
	var ports []string
	for _, t := range g.Tasks {
		// Init tasks are done before the others start, and so never among those that are ready.
		if t.Lifecycle != api.LifecycleInit {
			of++
			if strings.EqualFold(strings.TrimPrefix(t.State, "TASK_"), "RUNNING") && (t.Healthy == nil || *t.Healthy) {
				ready++
			}
		}
		ports = append(ports, portTexts(t)...)
	}
	return row{cmp.Or(g.ID, g.Namespace+"/"+g.Name), []term.Cell{
		term.Text(g.Namespace), term.Text(g.Name), stateCell(g.State), readyCell(ready, of), term.Text(g.Agent),
		term.Text(strings.Join(ports, ",")), term.Text(strconv.Itoa(g.Restarts)), age(g.Created, now), {Text: why(g), Style: term.Dim},
		term.Text(g.NodeIP), term.Text(g.ID),
	}}
}

// why is the one thing to know about a taskgroup that does not run.
func why(g wire.Taskgroup) string {
	if g.Message != "" {
		return g.Message
	}
	if len(g.Waiting) > 0 {
		return strings.Join(g.Waiting, "; ")
	}
	for _, t := range g.Tasks {
		if t.Message != "" && stateStyle(t.State) != term.Good {
			return t.Name + ": " + t.Message
		}
	}
	return ""
}

func taskRow(g wire.Taskgroup, t wire.Task, now time.Time) row {
	var pid, container, exitCode string
	if r := t.Report; r != nil {
		if r.Pid > 0 {
			pid = strconv.Itoa(r.Pid)
		}
		container = r.ContainerID
		if len(container) > 12 {
			container = container[:12]
		}
		switch {
		case r.Signal != 0:
			exitCode = "signal " + strconv.Itoa(r.Signal)
		case r.ExitCode != nil:
			exitCode = strconv.Itoa(*r.ExitCode)
		}
	}
	return row{t.ID, []term.Cell{
		term.Text(g.Namespace), term.Text(g.Name), term.Text(t.Name), term.Text(string(t.Kind)), stateCell(t.State), healthCell(t), term.Text(g.Agent),
		term.Text(strings.Join(portTexts(t), ",")), age(g.Created, now), {Text: t.Message, Style: term.Dim},
		term.Text(pid), term.Text(container), term.Text(exitCode), term.Text(t.ID),
	}}
}

// healthCell is what the checks of a running task say, "-" when it has none or they have not said anything.
func healthCell(t wire.Task) term.Cell {
	switch {
	case t.Healthy == nil, stateStyle(t.State) == term.Dim:
		return term.Cell{Text: "-", Style: term.Dim}
	case *t.Healthy:
		return term.Cell{Text: "healthy", Style: term.Good}
	}
	return term.Cell{Text: "unhealthy", Style: term.Bad}
}

// portTexts renders ports as name:number, by the number that others reach them by.
func portTexts(t wire.Task) []string {
	ports := t.Ports
	if t.Report != nil && len(t.Report.Ports) > 0 {
		ports = t.Report.Ports
	}
	var out []string
	for _, p := range ports {
		number := strconv.Itoa(p.HostPort)
		switch {
		case p.HostPort == 0:
			number = "(" + strconv.Itoa(p.ContainerPort) + ")"
		case p.ContainerPort != p.HostPort && p.ContainerPort != 0:
			number += "->" + strconv.Itoa(p.ContainerPort)
		}
		if strings.EqualFold(p.Protocol, "udp") {
			number += "/udp"
		}
		if p.Name != "" {
			number = p.Name + ":" + number
		}
		out = append(out, number)
	}
	return out
}

func agentRow(a wire.Agent) row {
	amount := func(used, total float64, unit string) term.Cell {
		return term.Text(fmt.Sprintf("%s/%s%s", number(used), number(total), unit))
	}
	var attributes []string
	for _, name := range slices.Sorted(maps.Keys(a.Attributes)) {
		attributes = append(attributes, name+":"+a.Attributes[name])
	}
	return row{a.ID, []term.Cell{
		term.Text(a.Hostname), stateCell(a.State), amount(a.Used.CPUs, a.Total.CPUs, ""), amount(a.Used.MemMB, a.Total.MemMB, " MiB"),
		amount(a.Used.DiskMB, a.Total.DiskMB, " MiB"), term.Text(a.Ports), term.Text(strconv.Itoa(a.Taskgroups)), term.Text(strings.Join(attributes, ";")),
		term.Text(a.ID),
	}}
}

// number renders an amount with as few decimals as it needs, at most two.
func number(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

// age is the time since t, roughly, as people say it.
func age(t, now time.Time) term.Cell {
	if t.IsZero() {
		return term.Text("")
	}
	return term.Text(since(now.Sub(t)))
}

func since(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// servicePorts is the summary of a service's ports, or of an endpoint's addresses.
func servicePorts(raw []byte) string {
	o, err := api.DecodeObject(raw)
	if err != nil {
		return ""
	}
	var out []string
	switch o := o.(type) {
	case *api.Service:
		for _, p := range o.Spec.Ports {
			text := strconv.Itoa(p.ServicePort)
			if p.Name != "" {
				text = p.Name + ":" + text
			}
			out = append(out, text)
		}
	case *api.Endpoint:
		for _, e := range o.Eps {
			for _, p := range e.Ports {
				out = append(out, fmt.Sprintf("%s:%d", e.NodeIP, p.HostPort))
			}
		}
	}
	return strings.Join(out, ",")
}
