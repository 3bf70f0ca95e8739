package failpoint

import "os"

// Environ is the environment of a helper program that gets nothing else of ours: the
// points to arm in it, if any, and in a program with the race detector (which is in none that is
// delivered) the settings of that.
func Environ(points string) []string {
	env := []string{} // nil would be all that this program has
	if points != "" {
		env = append(env, EnvVar+"="+points)
	}
	if v := os.Getenv(RaceVar); v != "" {
		env = append(env, RaceVar+"="+v)
	}
	return env
}
