package api

// Values of Strategy.Type and RollingUpdate.RollingOrder.
const (
	StrategyRollingUpdate = "RollingUpdate"
	RollingCreateFirst    = "CreateFirst"
	RollingDeleteFirst    = "DeleteFirst"
)

// Deployment is an application that is updated step by step.
type Deployment struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       Kind       `json:"kind"`
	Metadata   ObjectMeta `json:"metadata"`

	RestartPolicy RestartPolicy `json:"restartPolicy"`
	KillPolicy    KillPolicy    `json:"killPolicy"`
	UpdatePolicy  UpdatePolicy  `json:"updatePolicy,omitzero"`
	Constraint    Constraint    `json:"constraint"`

	Spec DeploymentSpec `json:"spec"`
}

// DeploymentSpec says what to run and how to change it.
type DeploymentSpec struct {
	Instance int `json:"instance"`
	// Selector finds an existing application to adopt.
	Selector map[string]string `json:"selector,omitempty"`
	// Template is empty when an existing application is adopted as it is.
	Template PodTemplate `json:"template,omitzero"`
	Strategy Strategy    `json:"strategy"`
	// PauseDeployment is read and kept; it has no effect.
	PauseDeployment bool `json:"pauseDeployment,omitempty"`
}

// Strategy says how an update goes.
type Strategy struct {
	// Type is RollingUpdate.
	Type          string        `json:"type,omitempty"`
	RollingUpdate RollingUpdate `json:"rollingupdate"`
}

// RollingUpdate sets the size, order and pace of the steps of an update.
type RollingUpdate struct {
	// MaxUnavailable is the number of old taskgroups that a step deletes. The
	// key has always been spelled like this; the right spelling is read too.
	MaxUnavailable int `json:"maxUnavilable,omitempty" alias:"maxUnavailable"`
	// MaxSurge is the number of new taskgroups that a step creates.
	MaxSurge int `json:"maxSurge,omitempty"`
	// UpgradeDuration is the least number of seconds between two steps.
	UpgradeDuration uint32 `json:"upgradeDuration,omitempty"`
	// RollingOrder is CreateFirst (default) or DeleteFirst.
	RollingOrder string `json:"rollingOrder,omitempty"`
	// RollingManually pauses after each step until the update is resumed.
	RollingManually bool `json:"rollingManually,omitempty"`
}

// GetKind returns KindDeployment.
func (*Deployment) GetKind() Kind { return KindDeployment }

// GetMeta returns the metadata.
func (d *Deployment) GetMeta() *ObjectMeta { return &d.Metadata }

// HasTemplate tells whether the deployment says what to run, rather than adopt
// an existing application as it is.
func (d *Deployment) HasTemplate() bool { return d.Spec.Template.Spec.Size() > 0 }

// Application returns the application that the deployment runs, under the
// given name. It shares maps and slices with d.
func (d *Deployment) Application(name string) *Application {
	kind := KindApplication
	if len(d.Spec.Template.Spec.Containers) == 0 {
		kind = KindProcess
	}
	meta := d.Metadata
	meta.Name = name
	return &Application{
		APIVersion:    d.APIVersion,
		Kind:          kind,
		Metadata:      meta,
		RestartPolicy: d.RestartPolicy,
		KillPolicy:    d.KillPolicy,
		UpdatePolicy:  d.UpdatePolicy,
		Constraint:    d.Constraint,
		Spec: ApplicationSpec{
			Instance: d.Spec.Instance,
			Selector: d.Spec.Selector,
			Template: d.Spec.Template,
		},
	}
}

func (s *DeploymentSpec) prefill() { s.Instance = DefaultInstances }

func (s *Strategy) setDefaults() {
	if s.Type == "" {
		s.Type = StrategyRollingUpdate
	}
	r := &s.RollingUpdate
	if r.MaxUnavailable == 0 {
		r.MaxUnavailable = 1
	}
	if r.MaxSurge == 0 {
		r.MaxSurge = 1
	}
	if r.RollingOrder == "" {
		r.RollingOrder = RollingCreateFirst
	}
}

func (c *checker) deployment(d *Deployment) {
	c.policies(d.RestartPolicy, d.KillPolicy)
	c.constraint(d.Constraint)
	c.instances(d.Spec.Instance)
	c.labels("spec.selector", d.Spec.Selector)
	switch {
	case d.HasTemplate():
		kind := KindApplication
		if len(d.Spec.Template.Spec.Containers) == 0 {
			kind = KindProcess
		}
		c.template(kind, &d.Spec.Template)
	case len(d.Spec.Selector) == 0:
		c.fail("spec.template.spec", nil, "has neither containers nor processes; add them, or a spec.selector that finds the application to adopt")
	}
	if d.Spec.PauseDeployment {
		c.warn("spec.pauseDeployment", "has no effect")
	}
	c.strategy("spec.strategy", d.Spec.Strategy)
}

func (c *checker) strategy(path string, s Strategy) {
	switch s.Type {
	case "Recreate", "ForceUpdate":
		c.fail(joinPath(path, "type"), s.Type, "is not supported; use %s, with rollingOrder %s to delete before creating", StrategyRollingUpdate, RollingDeleteFirst)
	default:
		c.oneOf(joinPath(path, "type"), s.Type, StrategyRollingUpdate)
	}
	path = joinPath(path, "rollingupdate")
	r := s.RollingUpdate
	c.notNegative(joinPath(path, "maxUnavilable"), int64(r.MaxUnavailable))
	c.notNegative(joinPath(path, "maxSurge"), int64(r.MaxSurge))
	c.seconds(joinPath(path, "upgradeDuration"), int64(r.UpgradeDuration))
	c.oneOf(joinPath(path, "rollingOrder"), r.RollingOrder, RollingCreateFirst, RollingDeleteFirst)
}
