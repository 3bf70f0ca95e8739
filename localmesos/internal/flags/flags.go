// Package flags helps the embedded master and agent to take Apache Mesos's flags:
// names with underscores (dashes work too), and durations such as "15secs".
//
// It is for localmesos only and must never decide what a flag means.
package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// units are those of Mesos, largest first.
var units = []struct {
	name string
	size time.Duration
}{
	{"weeks", 7 * 24 * time.Hour},
	{"days", 24 * time.Hour},
	{"hrs", time.Hour},
	{"mins", time.Minute},
	{"secs", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
	{"ns", time.Nanosecond},
}

// ParseDuration reads a Mesos duration: a number and one of ns, us, ms, secs,
// mins, hrs, days, weeks.
func ParseDuration(text string) (time.Duration, error) {
	for _, u := range units {
		value, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		// "ms" and "us" end in the same letter as the other units, so the
		// number decides whether this was the right one.
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(n) {
			continue
		}
		if d := n * float64(u.size); math.Abs(d) < math.MaxInt64 {
			return time.Duration(math.Round(d)), nil
		}
		return 0, fmt.Errorf("duration %q is too long", text)
	}
	return 0, fmt.Errorf("duration %q is not a number and a unit: use ns, us, ms, secs, mins, hrs, days or weeks, such as 15secs", text)
}

// FormatDuration writes a duration as Mesos does, in the largest unit that
// divides it: 15mins, 2secs, 500ms.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0ns"
	}
	for _, u := range units {
		if d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// Duration is a flag's value in Mesos's form; Go's (1h30m) is taken too.
type Duration time.Duration

// String writes the duration as Mesos does.
func (d *Duration) String() string { return FormatDuration(time.Duration(*d)) }

// Set reads the flag's text.
func (d *Duration) Set(text string) error {
	v, err := ParseDuration(text)
	if err != nil {
		goForm, goErr := time.ParseDuration(text)
		if goErr != nil {
			return err
		}
		v = goForm
	}
	*d = Duration(v)
	return nil
}

// Type names the kind of value in help texts.
func (d *Duration) Type() string { return "duration" }

// DurationVar defines a flag for a duration, with the default that *p holds.
func DurationVar(set *pflag.FlagSet, p *time.Duration, name, usage string) {
	set.Var((*Duration)(p), name, usage)
}

// ignored is a flag that takes anything and does nothing.
type ignored struct{ text, why string }

// String returns what was given.
func (i *ignored) String() string { return i.text }

// Set takes any text.
func (i *ignored) Set(text string) error { i.text = text; return nil }

// Type names the kind of value in help texts.
func (i *ignored) Type() string { return "text" }

// Ignore defines a hidden flag of Apache Mesos that has no meaning here, for a
// reason: with or without a value, it is taken.
func Ignore(set *pflag.FlagSet, name, why string) {
	flag := set.VarPF(&ignored{why: why}, name, "", "taken for compatibility: "+why)
	flag.NoOptDefVal, flag.Hidden = "true", true
}

// Ignored names the flags of the set that were given and that Ignore has
// defined, each with the reason.
func Ignored(set *pflag.FlagSet) []string {
	var out []string
	set.Visit(func(fl *pflag.Flag) {
		if i, ok := fl.Value.(*ignored); ok {
			out = append(out, fmt.Sprintf("--%s has no effect: %s", fl.Name, i.why))
		}
	})
	return out
}

// Normalize makes --work-dir the same flag as --work_dir. Give it to
// FlagSet.SetNormalizeFunc before flags are defined.
func Normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
}
