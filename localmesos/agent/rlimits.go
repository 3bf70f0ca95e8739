package agent

import (
	"fmt"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"golang.org/x/sys/unix"

	"tandem/localmesos/agent/internal/container"
)

// rlimitKinds are the limits that ContainerInfo.rlimit_info can name.
var rlimitKinds = map[mesos.RLimitInfo_RLimit_Type]int{
	mesos.RLimitInfo_RLimit_RLMT_AS: unix.RLIMIT_AS, mesos.RLimitInfo_RLimit_RLMT_CORE: unix.RLIMIT_CORE, mesos.RLimitInfo_RLimit_RLMT_CPU: unix.RLIMIT_CPU, mesos.RLimitInfo_RLimit_RLMT_DATA: unix.RLIMIT_DATA,
	mesos.RLimitInfo_RLimit_RLMT_FSIZE: unix.RLIMIT_FSIZE, mesos.RLimitInfo_RLimit_RLMT_LOCKS: unix.RLIMIT_LOCKS, mesos.RLimitInfo_RLimit_RLMT_MEMLOCK: unix.RLIMIT_MEMLOCK,
	mesos.RLimitInfo_RLimit_RLMT_MSGQUEUE: unix.RLIMIT_MSGQUEUE, mesos.RLimitInfo_RLimit_RLMT_NICE: unix.RLIMIT_NICE, mesos.RLimitInfo_RLimit_RLMT_NOFILE: unix.RLIMIT_NOFILE,
	mesos.RLimitInfo_RLimit_RLMT_NPROC: unix.RLIMIT_NPROC, mesos.RLimitInfo_RLimit_RLMT_RSS: unix.RLIMIT_RSS, mesos.RLimitInfo_RLimit_RLMT_RTPRIO: unix.RLIMIT_RTPRIO,
	mesos.RLimitInfo_RLimit_RLMT_RTTIME: unix.RLIMIT_RTTIME, mesos.RLimitInfo_RLimit_RLMT_SIGPENDING: unix.RLIMIT_SIGPENDING, mesos.RLimitInfo_RLimit_RLMT_STACK: unix.RLIMIT_STACK,
}

// limitsOf are the limits that a framework gives for a container; both values
// are there, or none for no limit, as docs/isolators/posix-rlimits.md of Apache Mesos says.
func limitsOf(c *mesos.ContainerInfo) ([]container.Limit, error) {
	var out []container.Limit
	for _, r := range c.GetRlimitInfo().GetRlimits() {
		kind, ok := rlimitKinds[r.Type]
		if !ok {
			return nil, fmt.Errorf("Failed to set rlimits: unknown type %s", r.Type) //nolint:staticcheck // Mesos's way to begin
		}
		l := container.Limit{Kind: kind, Name: strings.TrimPrefix(r.Type.String(), "RLMT_"), Soft: container.NoLimit, Hard: container.NoLimit}
		switch {
		case (r.Soft == nil) != (r.Hard == nil):
			return nil, fmt.Errorf("Failed to set rlimits: %s has only one of soft and hard; give both, or none for no limit", l.Name) //nolint:staticcheck // as above
		case r.Soft != nil && *r.Soft > *r.Hard:
			return nil, fmt.Errorf("Failed to set rlimits: %s has soft %d above hard %d", l.Name, *r.Soft, *r.Hard) //nolint:staticcheck // as above
		case r.Soft != nil:
			l.Soft, l.Hard = *r.Soft, *r.Hard
		}
		out = append(out, l)
	}
	return out, nil
}
