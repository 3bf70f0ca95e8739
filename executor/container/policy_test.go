package container

import (
	"errors"
	"strings"
	"testing"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/policy"
)

// TestPolicyRefusesBeforeAnythingIsMade: the refusal names the policy, the thing
// and the remedy, comes before the image is looked at, and leaves nothing.
func TestPolicyRefusesBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	p, err := policy.Parse([]byte("privileged: false\nhostPaths: [/data]\nregistries: []\ncapabilities: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.File = "/etc/tandem/executor.yaml"
	f := newFixture(t, func(o *Options) { o.Policy = p })
	task := f.task("true", func(e *executor.Task) {
		c := e.Spec.Container
		c.Privileged, c.Image = true, "nowhere.example.com/none:1"
		c.Volumes = []api.ContainerVolume{{HostPath: "/etc", MountPath: "/e"}, {MountPath: "/sandbox"}, {HostPath: "/var/run/docker.sock", MountPath: "/s"}}
	})
	err = f.Prepare(f.ctx(), task, func(string) {})
	var refused *executor.RefusedError
	if !errors.As(err, &refused) || !refused.Policy {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"container.privileged", "container.image", "container.volumes[0].hostPath", "container.volumes[2].hostPath",
		"policy of this agent (/etc/tandem/executor.yaml) forbids privileged containers; leave privileged out, or ask the operator for privileged: true"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "volumes[1]") {
		t.Errorf("a sandbox volume is refused: %v", err)
	}
	if err := f.Create(f.ctx(), task); !errors.As(err, &refused) {
		t.Errorf("create: %v", err)
	}
	if recs, err := f.owner.Records(); err != nil || len(recs) > 0 {
		t.Errorf("records %v, %v", recs, err)
	}
}

// TestEngineSocketNeedsAPolicy: the default forbids it, and a policy may allow it.
func TestEngineSocketNeedsAPolicy(t *testing.T) {
	t.Parallel()
	try := func(p *policy.Policy) error {
		f := newFixture(t, func(o *Options) { o.Policy = p })
		return f.Prepare(f.ctx(), f.task("true", func(e *executor.Task) {
			e.Spec.Container.Volumes = []api.ContainerVolume{{HostPath: "/var/run/docker.sock", MountPath: "/s", ReadOnly: true}}
		}), func(string) {})
	}
	var refused *executor.RefusedError
	if err := try(nil); !errors.As(err, &refused) || !refused.Policy || !strings.Contains(err.Error(), "control of the agent") {
		t.Errorf("by default: %v", err)
	}
	p := policy.Default()
	p.EngineSocket = true
	if err := try(p); err != nil {
		t.Errorf("allowed: %v", err)
	}
}

// TestMistakesAreNotThePolicys: a specification that is wrong as such is told so.
func TestMistakesAreNotThePolicys(t *testing.T) {
	t.Parallel()
	_, err := compileTask(t, "", func(e *executor.Task) { e.Spec.Container.PidsLimit = -1 })
	var refused *executor.RefusedError
	if !errors.As(err, &refused) || refused.Policy {
		t.Errorf("error %v", err)
	}
}
