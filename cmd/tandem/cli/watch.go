package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tandem/cmd/tandem/exit"
	"tandem/internal/term"
)

// watch prints the tables, then each row that changes, until ctx ends. What
// goes is shown once more as gone. Ages alone are no change.
func (a *app) watch(ctx context.Context, b backend, shown []kind, names []string, o *getOptions) error {
	seen := map[string]string{}
	first := true
	for {
		lists, err := o.list(ctx, b, shown, names)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the user has ended it
		case err != nil && (first || exit.Of(err) != exit.Unreachable && exit.Of(err) != exit.NotFound):
			return err
		}
		if err == nil {
			if err := a.printChanges(lists, seen, first, o.format); err != nil {
				return err
			}
			first = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

func (a *app) printChanges(lists []listing, seen map[string]string, first bool, format string) error {
	var errs []error
	now := map[string]bool{}
	for _, l := range lists {
		changed := listing{kind: l.kind}
		for i, r := range l.rows {
			key := l.kind.name + " " + r.key
			now[key] = true
			if text := rowText(r, l.kind); seen[key] != text {
				seen[key] = text
				changed.rows, changed.names = append(changed.rows, r), append(changed.names, l.names[i])
			}
		}
		switch {
		case format == formatName:
			for _, n := range changed.names {
				fmt.Fprintln(a.out, n)
			}
		case len(changed.rows) > 0 || first && len(lists) == 1:
			errs = append(errs, a.printTable(changed, format == formatWide))
		}
	}
	for key := range seen {
		if !now[key] {
			delete(seen, key)
			fmt.Fprintf(a.out, "%s\n", a.out.Style(term.Dim, key+" is gone"))
		}
	}
	return errors.Join(errs...)
}

// rowText is what of a row counts as a change.
func rowText(r row, k kind) string {
	columns := newTable(k, true).Columns
	var text strings.Builder
	for i, c := range r.cells {
		if i < len(columns) && slices.Contains([]string{"AGE"}, columns[i].Title) {
			continue
		}
		text.WriteString(c.Text + "\x00")
	}
	return text.String()
}
