package term

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"tandem/internal/execstream"
)

// Session gives the terminal to a session with t: it is raw, and t learns its sizes,
// until restore, which is to be called also after a panic. The context ends with
// SIGQUIT: Ctrl-\ is the command's over there, but one from elsewhere must not leave a raw
// terminal behind.
func Session(ctx context.Context, screen *os.File, t *execstream.Terminal) (_ context.Context, restore func(), err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	cooked, err := Raw(screen)
	if err != nil {
		stop()
		return nil, nil, err
	}
	sizes := make(chan execstream.Size, 1)
	t.Resize = sizes
	unfollow := FollowSize(screen, func(w, h uint16) {
		select {
		case <-sizes: // an older one that nobody has taken
		default:
		}
		sizes <- execstream.Size{Width: w, Height: h}
	})
	return ctx, func() {
		unfollow()
		cooked()
		stop()
	}, nil
}
