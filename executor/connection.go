package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/executor/agentlink"
)

// connection is the state of the subscription. At most one attempt or stream
// exists at a time; generation numbers them.
type connection struct {
	generation uint64
	cancel     context.CancelFunc
	// up is true from SUBSCRIBED until the stream ends; ever remembers it.
	up, ever bool
	// lost is set when there is no hope of another subscription.
	lost     bool
	attempts int
	// recovery ends the wait for the agent, idle the wait for the first task.
	recovery, idle *timer

	// denied is why the agent did not accept our token for an update; the stream was
	// left for that, and a second time in a row is the end.
	denied error
	// issued is the token that the ExecutorInfo of the first SUBSCRIBED holds, mostly none.
	issued agentlink.Token

	agentID string
	// user is the framework's: commands of other frameworks run as it when they
	// name none, as Mesos has it (--switch_user).
	user string
	// killing tells that the framework understands TASK_KILLING.
	killing bool
}

type (
	// opened: the agent accepted the subscription.
	opened struct{ generation uint64 }
	// received is an event of the stream.
	received struct {
		generation uint64
		event      *executor.Event
	}
	// closed: the attempt or the stream is over.
	closed struct {
		generation uint64
		err        error
	}
)

// connect starts one attempt to subscribe, with all that is not acknowledged.
func (e *Executor) connect() {
	e.conn.generation++
	generation := e.conn.generation
	ctx, cancel := context.WithCancel(e.work)
	e.conn.cancel = cancel
	tasks, statuses := e.updates.unacknowledged(generation)
	e.workers.Add(1)
	go func() {
		defer e.workers.Done()
		defer cancel()
		e.post(closed{generation, e.follow(ctx, generation, tasks, statuses)})
	}()
}

// follow subscribes and hands on events until the stream ends; it runs beside the loop.
func (e *Executor) follow(ctx context.Context, generation uint64, tasks []mesos.TaskInfo, statuses []executor.Call_Update) error {
	stream, err := e.opts.Link.Subscribe(ctx, tasks, statuses)
	if err != nil {
		return err
	}
	defer stream.Close()
	e.post(opened{generation})
	for {
		event, err := stream.Next()
		if err != nil {
			return err
		}
		if !e.post(received{generation, event}) {
			return nil
		}
	}
}

func (e *Executor) opened(m opened) {
	if m.generation == e.conn.generation {
		e.log.Debug("subscription accepted", "generation", m.generation)
	}
}

// subscribed handles the first event of a stream.
func (e *Executor) subscribed(s *executor.Event_Subscribed) {
	if s == nil {
		return
	}
	e.renewToken(&s.ExecutorInfo)
	e.log.Info("subscribed with the agent", "again", e.conn.ever, "unacknowledged", len(e.updates.list))
	e.conn.up, e.conn.ever, e.conn.attempts = true, true, 0
	e.timers.stop(e.conn.recovery)
	e.conn.recovery = nil
	e.awaitTask()
	if s.AgentInfo.ID != nil {
		e.conn.agentID = s.AgentInfo.ID.Value
	}
	for _, u := range e.updates.list {
		if u.generation == e.conn.generation {
			e.awaitAcknowledgement(u) // it went with SUBSCRIBE
		}
	}
	e.conn.user = s.FrameworkInfo.User
	e.conn.killing = false
	for _, c := range s.FrameworkInfo.Capabilities {
		if c.Type == mesos.FrameworkInfo_Capability_TASK_KILLING_STATE {
			e.conn.killing = true
		}
	}
}

// closed decides what follows the end of a stream or a failed attempt.
func (e *Executor) closed(m closed) {
	if m.generation != e.conn.generation || e.conn.lost {
		return
	}
	e.conn.up = false
	e.timers.stop(e.conn.idle)
	e.conn.attempts++
	err := m.err
	if errors.Is(err, io.EOF) {
		err = errors.New("the agent ended the stream")
	}
	if errors.Is(err, context.Canceled) && e.conn.denied != nil {
		err = e.conn.denied
	}
	e.log.Warn("not subscribed with the agent", "error", err, "attempt", e.conn.attempts)
	switch {
	case err == e.conn.denied && e.cfg.Checkpoint: //nolint:errorlint // this very error: it ended the stream, not the attempt
	case agentlink.Refused(err):
		e.loseAgent(fmt.Errorf("%w: it refuses this executor: %w", ErrAgentLost, err))
		return
	case e.conn.ever && !e.cfg.Checkpoint:
		e.loseAgent(fmt.Errorf("%w: %w; the framework does not checkpoint, so the executor cannot wait for it", ErrAgentLost, err))
		return
	}
	if e.conn.recovery == nil {
		limit := registrationTimeout
		if e.cfg.Checkpoint {
			limit = max(e.cfg.RecoveryTimeout, 0)
		}
		e.conn.recovery = e.timers.after(limit, func() {
			e.loseAgent(fmt.Errorf("%w: not subscribed for %s", ErrAgentLost, limit))
		})
	}
	delay := firstDelay(e.conn.attempts)
	if e.cfg.Checkpoint && e.conn.ever {
		delay = againDelay(e.cfg.BackoffMax)
	}
	e.timers.after(delay, func() {
		if !e.conn.lost {
			e.connect()
		}
	})
}

// tokenDenied handles an update that the agent did not take because of the
// token. Subscribing again shows what the agent thinks of it, and is where it
// could give another. When that helps nothing the agent is lost: no update can
// ever be told to it.
func (e *Executor) tokenDenied(err error) {
	if e.conn.denied != nil {
		e.loseAgent(fmt.Errorf("%w: it refuses this executor: %w", ErrAgentLost, err))
		return
	}
	e.conn.denied, e.conn.up = err, false
	e.conn.cancel()
}

// renewToken takes the token that an agent gives with a later SUBSCRIBED, as a
// variable of the ExecutorInfo's command. Apache Mesos's agents give one when they start
// the executor, in the environment, and it does not expire; those with a module
// that issues others may replace it here. What the first SUBSCRIBED holds is
// the framework's own and never newer than the environment.
func (e *Executor) renewToken(info *mesos.ExecutorInfo) {
	var token agentlink.Token
	for _, v := range info.GetCommand().GetEnvironment().GetVariables() {
		if v.Name != tokenVariable {
			continue
		}
		token = agentlink.Token(v.GetValue())
		if secret := v.GetSecret().GetValue().GetData(); len(secret) > 0 {
			token = agentlink.Token(secret)
		}
	}
	switch {
	case !e.conn.ever:
		e.conn.issued = token
	case token == "" || token == e.conn.issued:
	case !token.Valid():
		e.log.Error("the agent gives a token with characters that no token has; the earlier one stays")
	default:
		e.conn.issued = token
		e.opts.Link.SetToken(token)
		e.log.Info("the agent gives a new token")
	}
}

// firstDelay paces the attempts before the first subscription: soon, because
// the agent waits for us, but not without pause.
func firstDelay(attempt int) time.Duration {
	ceiling := min(time.Second, 20*time.Millisecond<<min(attempt, 10))
	return ceiling/2 + rand.N(ceiling/2)
}

// againDelay is a random delay before subscribing again, always below limit
// (MESOS_SUBSCRIPTION_BACKOFF_MAX). A restarted agent waits for its executors
// exactly that long and then kills them, so a part of it is kept for the
// subscription itself.
func againDelay(limit time.Duration) time.Duration {
	if limit <= 1 {
		return 0
	}
	span := limit - min(limit/4, 500*time.Millisecond)
	if span <= 0 {
		return 0
	}
	return rand.N(span)
}

// loseAgent stops everything: nobody is left to report to.
func (e *Executor) loseAgent(err error) {
	if e.conn.lost {
		return
	}
	e.log.Error("ending all tasks", "error", err)
	e.conn.lost = true
	e.conn.cancel()
	if e.closing && e.result == nil {
		// Told to end anyway; that the updates cannot be delivered is the news.
		e.result = err
	}
	e.shutdown("killed because the agent is lost", err)
}

// heartbeat answers one of the agent's: an agent that sends them knows the call, which
// Mesos has had since 1.10, and the same interval serves both ways. The answer to it
// decides nothing: an agent that is away is noticed by the stream.
func (e *Executor) heartbeat() {
	if !e.beating.CompareAndSwap(false, true) {
		return // the one before has not got through yet
	}
	e.workers.Go(func() {
		defer e.beating.Store(false)
		if err := e.opts.Link.Heartbeat(e.work); err != nil && e.work.Err() == nil {
			e.log.Debug("heartbeat not delivered", "error", err)
		}
	})
}
