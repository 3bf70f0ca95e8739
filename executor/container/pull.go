package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tandem/executor/container/internal/engine"
)

// pull is the pull of one image for one task.
type pull struct {
	r                    *Runtime
	ref, name, tag, auth string
	// always is for a policy that wants the registry asked although the image is here.
	always   bool
	progress func(string)
}

// A pull that fails is tried again after a pause that doubles, as long as it gets
// on: after pullTries failures in a row without a byte more, it is given up.
const (
	pullTries = 5
	pullPause = time.Second
)

// once pulls the image unless another taskgroup of this agent has just done so:
// one pull at a time of an image is enough, and those who wait for it take what
// it brought. Whoever has other credentials pulls for himself: that an image is
// here does not say that he may have it.
func (p *pull) once(ctx context.Context) (*engine.Image, error) {
	sum := sha256.Sum256([]byte(p.ref + "\x00" + p.auth))
	asked := time.Now()
	p.progress("pulling " + p.ref)
	err := p.r.opt.Journal.Exclusive(ctx, "pull-"+hex.EncodeToString(sum[:12]), func(last time.Time) error {
		if last.After(asked) {
			return nil // while we waited
		}
		if !p.always {
			if _, err := p.r.engine.Image(ctx, p.ref); err == nil {
				return nil
			}
		}
		return p.insist(ctx)
	})
	if err != nil {
		return nil, err
	}
	return p.r.engine.Image(ctx, p.ref)
}

// insist pulls until it succeeds or there is no sense in it any more.
func (p *pull) insist(ctx context.Context) error {
	var best int64
	failures := 0
	for {
		bytes, err := p.run(ctx)
		if err == nil || ctx.Err() != nil || final(err) {
			return err
		}
		if failures++; bytes > best {
			best, failures = bytes, 1
		}
		if failures == pullTries {
			return fmt.Errorf("%w (%d tries)", err, failures)
		}
		pause := p.r.opt.pullPause << (failures - 1)
		p.progress(fmt.Sprintf("pulling %s: failed, trying again in %v", p.ref, pause))
		p.r.log.Warn("pull failed, trying again", "image", p.ref, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// final tells whether another try would get the same answer.
func final(err error) bool {
	var e *engine.Error
	if !errors.As(err, &e) {
		return errors.Is(err, context.DeadlineExceeded) // no progress for PullIdle
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	// Engines answer 500 to all sorts of things, and some come in the stream.
	text := strings.ToLower(e.Message)
	for _, s := range []string{"unauthorized", "denied", "not found", "manifest unknown", "no basic auth", "invalid reference", "no matching manifest", "no space left"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// run pulls once and returns how many bytes came. Progress is shown as "pulling
// redis:7 2/5 layers 12/40 MB".
func (p *pull) run(ctx context.Context) (int64, error) {
	type layer struct{ current, total int64 }
	layers := map[string]layer{}
	done := map[string]bool{}
	var shown time.Time
	var current int64
	err := p.r.engine.Pull(ctx, p.name, p.tag, p.auth, p.r.opt.PullIdle, func(line engine.Progress) {
		switch line.Status {
		case "Pulling fs layer":
			layers[line.ID] = layer{}
		case "Downloading":
			layers[line.ID] = layer{line.ProgressDetail.Current, line.ProgressDetail.Total}
		case "Download complete":
			l := layers[line.ID]
			layers[line.ID] = layer{l.total, l.total}
		case "Pull complete", "Already exists":
			if _, seen := layers[line.ID]; !seen {
				layers[line.ID] = layer{} // it counts, too
			}
			done[line.ID] = true
		}
		var total int64
		current = 0
		for _, l := range layers {
			current, total = current+l.current, total+l.total
		}
		if time.Since(shown) < time.Second || len(layers) == 0 {
			return
		}
		shown = time.Now()
		const mb = 1 << 20
		p.progress(fmt.Sprintf("pulling %s %d/%d layers %d/%d MB", p.ref, len(done), len(layers), current/mb, (total+mb-1)/mb))
	})
	return current, err
}
