package master

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/resource"
)

// none is the value of a bound that is to be 0: the zero value of a field of
// Flags means its default.
const none = -1

// countFlag is a flag for a bound that may be 0.
type countFlag int

// String writes the number.
func (c *countFlag) String() string { return strconv.Itoa(max(int(*c), 0)) }

// Set reads the number.
func (c *countFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a number of 0 or more", text)
	}
	if n == 0 {
		n = none
	}
	*c = countFlag(n)
	return nil
}

// Type names the kind of value in help texts.
func (c *countFlag) Type() string { return "int" }

// rateFlag is a rate such as 1/10mins, kept as the time between two events.
type rateFlag time.Duration

// String writes the rate.
func (r *rateFlag) String() string {
	if *r == 0 {
		return ""
	}
	return "1/" + flags.FormatDuration(time.Duration(*r))
}

// Set reads the rate in Mesos's form: <number>/<duration>.
func (r *rateFlag) Set(text string) error {
	permits, per, ok := strings.Cut(text, "/")
	n, err := strconv.Atoi(permits)
	if !ok || err != nil || n < 1 {
		return fmt.Errorf("rate %q is not a number of agents and a time: use such as 1/10mins", text)
	}
	d, err := flags.ParseDuration(per)
	if err != nil {
		return fmt.Errorf("rate %q: %w", text, err)
	}
	if d <= 0 {
		return fmt.Errorf("rate %q: the time must be positive", text)
	}
	*r = rateFlag(max(d/time.Duration(n), 1))
	return nil
}

// Type names the kind of value in help texts.
func (r *rateFlag) Type() string { return "rate" }

// parseWeights reads "role=weight,role=weight".
func parseWeights(text string) (map[string]float64, error) {
	out := map[string]float64{}
	for pair := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' }) {
		role, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		weight, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || !(weight > 0) {
			return nil, fmt.Errorf("--weights=%q: %q is not role=weight with a weight above 0, such as web=2", text, pair)
		}
		if err := validateRole(role); err != nil {
			return nil, fmt.Errorf("--weights=%q: %w", text, err)
		}
		if _, twice := out[role]; twice {
			return nil, fmt.Errorf("--weights=%q: role %q has two weights", text, role)
		}
		out[role] = weight
	}
	return out, nil
}

// parseLeast reads the amounts that make an offer worthwhile, any one of
// which is enough: "cpus:0.01|mem:32".
func parseLeast(text string) ([]resource.Quantities, error) {
	var out []resource.Quantities
	for amounts := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '|' }) {
		list, err := resource.Parse(amounts, "*")
		if err != nil {
			return nil, fmt.Errorf("--min_allocatable_resources=%q: %w", text, err)
		}
		q := resource.QuantitiesOf(list)
		if len(q) != len(list) {
			return nil, fmt.Errorf("--min_allocatable_resources=%q: only amounts can be compared, such as cpus:0.01|mem:32", text)
		}
		out = append(out, q)
	}
	return out, nil
}
