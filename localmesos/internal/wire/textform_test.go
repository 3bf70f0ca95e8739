package wire

import (
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

func TestTextForm(t *testing.T) {
	t.Parallel()
	scalar, name, shell, value := mesos.SCALAR, "na\"me\né", true, "true"
	tasks := map[string]mesos.Value_Scalar{"b": {Value: 1.0 / 3}, "a": {Value: 32}}
	x := &mesos.ExecutorInfo{
		Type: mesos.ExecutorInfo_CUSTOM, ExecutorID: mesos.ExecutorID{Value: "x"}, Name: &name, Data: []byte{0, 'a'},
		Command: &mesos.CommandInfo{Value: &value, Shell: &shell},
		Resources: []mesos.Resource{{Name: "cpus", Type: &scalar, Scalar: &mesos.Value_Scalar{Value: 0.1}},
			{Name: "mem", Type: &scalar, Scalar: &mesos.Value_Scalar{Value: 32}}},
	}
	const want = `executor_id {
  value: "x"
}
data: "\000a"
resources {
  name: "cpus"
  type: SCALAR
  scalar {
    value: 0.1
  }
}
resources {
  name: "mem"
  type: SCALAR
  scalar {
    value: 32
  }
}
command {
  value: "true"
  shell: true
}
name: "na\"me\n\303\251"
type: CUSTOM
`
	if got := TextForm(x); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	const wantMap = `quantities {
  key: "a"
  value {
    value: 32
  }
}
quantities {
  key: "b"
  value {
    value: 0.33333333333333331
  }
}
`
	if got := TextForm(&mesos.OfferFilters_ResourceQuantities{Quantities: tasks}); got != wantMap {
		t.Errorf("got\n%s\nwant\n%s", got, wantMap)
	}
	if got := TextForm(nil); got != "" {
		t.Errorf("nothing is %q", got)
	}
}
