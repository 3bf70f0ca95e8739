package fetch

import (
	"context"
)

// outputLock keeps two tasks from working in one directory at a time.
type outputLock struct {
	held chan struct{} // holds one while it is locked
	// users have it or wait for it; with the last one it goes.
	users int
}

func (f *Fetcher) useOutput(out string) (l *outputLock, leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l = f.outputs[out]
	if l == nil {
		l = &outputLock{held: make(chan struct{}, 1)}
		f.outputs[out] = l
	}
	l.users++
	return l, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(f.outputs, out)
		}
	}
}

// lockOutput waits for a directory. Unlock it in the end.
func (f *Fetcher) lockOutput(ctx context.Context, out string, progress func(string)) (unlock func(), err error) {
	if unlock, free := f.tryLockOutput(out); free {
		return unlock, nil
	}
	if progress != nil {
		progress("waiting for another task that fetches into " + out)
	}
	l, leave := f.useOutput(out)
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// tryLockOutput locks a directory that nobody works in.
func (f *Fetcher) tryLockOutput(out string) (unlock func(), free bool) {
	l, leave := f.useOutput(out)
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, true
	default:
		leave()
		return nil, false
	}
}
