package command

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tandem/localmesos/fault"
)

// faultCommand describes the command of one kind of fault.
type faultCommand struct {
	kind                 fault.Kind
	use                  string // arguments
	short, long, example string
	least, most          int
	// take puts the arguments into the fault; it returns the target, if they name it.
	take func(f *fault.Fault, args []string) (on string, err error)
	// words complete the first argument; targets are completed when there are none.
	words []string
	// What may be given as flags.
	on, lasts, away, times bool
	filters                []string
}

// takePart is for faults whose first argument is a part. Executors are on agents;
// the rest is on the master unless --on says otherwise.
func takePart(f *fault.Fault, args []string) (string, error) {
	if len(args) > 0 {
		f.Part = fault.Part(args[0])
	}
	return "", nil
}

func takeTarget(_ *fault.Fault, args []string) (string, error) { return args[0], nil }

// streamFaults are those of streams, messages and answers.
func streamFaults() []faultCommand {
	streams := []string{"scheduler", "executor", "agent", "operator"}
	messages := []string{"update", "acknowledgement"}
	takeMessage := func(f *fault.Fault, args []string) (string, error) {
		if len(args) > 0 {
			f.Message = fault.Message(args[0])
		}
		return "", nil
	}
	return []faultCommand{
		{kind: fault.Cut, use: "STREAM", short: "Break streams", words: streams, least: 1, most: 1, take: takePart, on: true, lasts: true,
			filters: []string{"framework", "agent", "executor"},
			long: `Breaks the connections of streams: of schedulers with the master (scheduler), of agents with
the master (agent), of executors with an agent (executor, with --on), of operators' tools
(operator). With --for everything new of the same clients is broken, too, for that time: a
partition. "cut agent" with --on AGENT breaks the agent's end of the link.`,
			example: `  tandem mesos fault cut scheduler
  tandem mesos fault cut agent --agent 127.0.0.2 --for 30s
  tandem mesos fault cut executor --on 127.0.0.2 --executor default`},
		{kind: fault.Delay, use: "STREAM DURATION", short: "Hold back the events of a stream", words: streams, least: 2, most: 2, on: true, lasts: true,
			filters: []string{"framework", "agent", "executor"},
			take: func(f *fault.Fault, args []string) (string, error) {
				f.Part = fault.Part(args[0])
				d, err := time.ParseDuration(args[1])
				if err != nil {
					return "", fmt.Errorf("%w duration %q: use such as 500ms or 2s", fault.ErrInvalid, args[1])
				}
				f.By = fault.Duration(d)
				return "", nil
			},
			long: `Delivers each event of the streams later by DURATION; their order stays.`,
			example: `  tandem mesos fault delay scheduler 2s --for 1m
  tandem mesos fault delay executor 500ms --on 127.0.0.2`},
		{kind: fault.Drop, use: "[MESSAGE]", short: "Lose status updates or acknowledgements", words: messages, most: 1, take: takeMessage, on: true, lasts: true, times: true,
			filters: []string{"framework", "agent", "executor", "task", "state"},
			long: `Loses messages on their way: task status updates (update, which is the default) or the
framework's acknowledgements of them (acknowledgement). On the master an update is lost
between master and framework, on an agent between agent and master.`,
			example: `  tandem mesos fault drop --times 1
  tandem mesos fault drop update --task web-0 --state TASK_RUNNING --times 2
  tandem mesos fault drop acknowledgement --on 127.0.0.2 --for 15s`},
		{kind: fault.Duplicate, use: "[MESSAGE]", short: "Send status updates or acknowledgements twice", words: messages, most: 1, take: takeMessage, on: true, lasts: true, times: true,
			filters: []string{"framework", "agent", "executor", "task", "state"},
			long:    `Sends messages twice; see "drop" for which there are.`,
			example: `  tandem mesos fault duplicate --times 5
  tandem mesos fault duplicate update --state TASK_FINISHED --for 1m`},
		{kind: fault.Unavailable, use: "[PART]", short: "Answer 503", words: streams, most: 1, take: takePart, on: true, lasts: true, times: true,
			long: `Answers "503 Service Unavailable" to all requests, or to those of one part: scheduler, agent
or operator on the master, executor or operator on an agent. Streams that are open stay.`,
			example: `  tandem mesos fault unavailable --for 10s
  tandem mesos fault unavailable scheduler --times 3
  tandem mesos fault unavailable executor --on 127.0.0.2`},
		{kind: fault.PauseOffers, short: "Make no offers", lasts: true,
			long:    `Makes no new offers until "resume-offers". Offers that frameworks hold stay.`,
			example: `  tandem mesos fault pause-offers --for 1m`},
		{kind: fault.Rescind, use: "[OFFER]", short: "Take an offer back", most: 1, times: true, filters: []string{"framework", "agent"},
			take: func(f *fault.Fault, args []string) (string, error) {
				if len(args) > 0 {
					f.Offer = args[0]
				}
				return "", nil
			},
			long: `Takes back the offer with an id, or the first that a framework holds. --times asks for more.`,
			example: `  tandem mesos fault rescind
  tandem mesos fault rescind --framework tandem --agent 127.0.0.2`},
	}
}

// processFaults are those of processes and machines.
func processFaults() []faultCommand {
	return []faultCommand{
		{kind: fault.Freeze, use: "TARGET", short: "Hang: no answers, but connections stay open", least: 1, most: 1, take: takeTarget, lasts: true,
			long: `Stops the master or agent as SIGSTOP would: it answers nothing and sends nothing, but its
connections stay open. It goes on after --for, or with "thaw".`,
			example: `  tandem mesos fault freeze master --for 5s
  tandem mesos fault freeze 127.0.0.2 --for 2m`},
		{kind: fault.Kill, use: "TARGET", short: "End the process as kill -9 would", least: 1, most: 1, take: takeTarget,
			long:    `Ends the master or agent as kill -9 would. What an agent has started goes on. Nothing starts it again.`,
			example: `  tandem mesos fault kill 127.0.0.2`},
		{kind: fault.Restart, use: "TARGET", short: "Kill the process and start it again", least: 1, most: 1, take: takeTarget, away: true,
			long: `Ends the master or agent as kill -9 would, and starts it again in its place with the same
flags, at once or after --away.`,
			example: `  tandem mesos fault restart master
  tandem mesos fault restart 127.0.0.2 --away 20s`},
		{kind: fault.Lose, use: "AGENT", short: "Lose an agent's machine for good", least: 1, most: 1, take: takeTarget,
			long: `Ends an agent and all that it runs, as the end of its machine would: nobody is told. To bring
it back, start it again on the same --work_dir; it finds that its machine was started anew.`,
			example: `  tandem mesos fault lose 127.0.0.2`},
		{kind: fault.Reboot, use: "AGENT", short: "Start an agent's machine anew", least: 1, most: 1, take: takeTarget, away: true,
			long: `Ends an agent and all that it runs, as a loss of power would, and starts it again, at once or
after --away. The agent has a new boot id, and everything that it ran is gone.`,
			example: `  tandem mesos fault reboot 127.0.0.2 --away 30s`},
	}
}

// add makes the command of a kind of fault.
func (o *faults) add(d faultCommand) *cobra.Command {
	var on string
	var lasts, away time.Duration
	f := fault.Fault{Kind: d.kind}
	use := string(d.kind)
	if d.use != "" {
		use += " " + d.use
	}
	c := &cobra.Command{
		Use: use, Short: d.short, Long: d.long, Example: d.example, Args: words(string(d.kind), d.least, d.most),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			f := f
			f.For = fault.Duration(lasts)
			if away != 0 {
				f.By = fault.Duration(away)
			}
			target := on
			if d.take != nil {
				named, err := d.take(&f, args)
				if err != nil {
					return err
				}
				if named != "" {
					target = named
				}
			}
			return o.make(cmd, target, f)
		},
		ValidArgsFunction: o.completeArgs(d),
	}
	flags := c.Flags()
	if d.on {
		flags.StringVar(&on, "on", "", "`target` of the fault: master (default), or an agent")
		_ = c.RegisterFlagCompletionFunc("on", o.completeTargets(true)) // the flag is there
	}
	if d.lasts {
		flags.DurationVar(&lasts, "for", 0, "how long it lasts, such as 10s")
	}
	if d.away {
		flags.DurationVar(&away, "away", 0, "how long it is away, such as 10s")
	}
	if d.times {
		flags.IntVar(&f.Times, "times", 0, "how often it strikes at most")
	}
	o.filterFlags(c, &f, d.filters)
	return c
}

func (o *faults) filterFlags(c *cobra.Command, f *fault.Fault, names []string) {
	for _, name := range names {
		switch name {
		case "framework":
			c.Flags().StringVar(&f.Framework, name, "", "only of this framework, an id or a name")
		case "agent":
			c.Flags().StringVar(&f.Agent, name, "", "only of this agent, an id, a host name or host:port")
			_ = c.RegisterFlagCompletionFunc(name, o.completeTargets(false)) // the flag is there
		case "executor":
			c.Flags().StringVar(&f.Executor, name, "", "only of this executor, an id")
		case "task":
			c.Flags().StringVar(&f.Task, name, "", "only of this task, an id")
		case "state":
			c.Flags().StringVar(&f.State, name, "", "only of this state, such as TASK_RUNNING")
			_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(states, noFiles)) // as above
		}
	}
}

// states are those worth completing.
var states = []string{"TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_LOST"}
