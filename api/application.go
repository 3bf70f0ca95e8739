package api

// DefaultInstances is the number of instances when spec.instance is absent.
const DefaultInstances = 1

// MaxInstances limits spec.instance.
const MaxInstances = 10000

// Application is a replicated workload: kind application runs containers, kind
// process runs plain processes. Each instance is one taskgroup.
type Application struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       Kind       `json:"kind"`
	Metadata   ObjectMeta `json:"metadata"`

	RestartPolicy RestartPolicy `json:"restartPolicy"`
	KillPolicy    KillPolicy    `json:"killPolicy"`
	UpdatePolicy  UpdatePolicy  `json:"updatePolicy,omitzero"`
	Constraint    Constraint    `json:"constraint"`

	Spec ApplicationSpec `json:"spec"`
}

// ApplicationSpec says how many instances of what to run.
type ApplicationSpec struct {
	// Instance is the number of taskgroups; 0 is legal and runs none.
	Instance int               `json:"instance"`
	Selector map[string]string `json:"selector,omitempty"`
	Template PodTemplate       `json:"template"`
}

// GetKind returns KindApplication or KindProcess.
func (a *Application) GetKind() Kind { return a.Kind }

// GetMeta returns the metadata.
func (a *Application) GetMeta() *ObjectMeta { return &a.Metadata }

// PodLabels returns the labels of each taskgroup: those of the application,
// overlaid by those of the template.
func (a *Application) PodLabels() map[string]string {
	return mergeLabels(a.Metadata.Labels, a.Spec.Template.Metadata.Labels)
}

func (s *ApplicationSpec) prefill() { s.Instance = DefaultInstances }

func (c *checker) application(a *Application) {
	c.policies(a.RestartPolicy, a.KillPolicy)
	c.constraint(a.Constraint)
	c.instances(a.Spec.Instance)
	c.labels("spec.selector", a.Spec.Selector)
	c.template(a.Kind, &a.Spec.Template)
}

func (c *checker) instances(n int) {
	if n < 0 || n > MaxInstances {
		c.fail("spec.instance", n, "must be 0 to %d", MaxInstances)
	}
}
