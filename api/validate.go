package api

// SetDefaults fills in what an artifact may leave out. It may be called again
// without effect. Decode calls it.
func SetDefaults(o Object) {
	m := o.GetMeta()
	if m.Namespace == "" {
		m.Namespace = DefaultNamespace
	}
	switch o := o.(type) {
	case *Application:
		o.RestartPolicy.setDefaults()
		o.KillPolicy.setDefaults()
		o.Spec.Template.Spec.setDefaults(m.Name)
	case *Deployment:
		o.RestartPolicy.setDefaults()
		o.KillPolicy.setDefaults()
		o.Spec.Strategy.setDefaults()
		o.Spec.Template.Spec.setDefaults(m.Name)
	case *Service:
		o.Spec.setDefaults()
	case *Endpoint:
		for i := range o.Eps {
			setPortDefaults(o.Eps[i].Ports)
		}
	case *ConfigMap:
		o.setDefaults()
	}
}

// Validate returns everything that is wrong with an object that has its
// defaults, as Errors, or nil. Whether the ports of a taskgroup go together is
// for package network to say, and whether what is referred to exists is for the scheduler.
func Validate(o Object) error {
	return check(o).errs.Sorted()
}

func check(o Object) findings {
	c := &checker{}
	c.meta("metadata", o.GetMeta())
	switch o := o.(type) {
	case *Application:
		c.application(o)
	case *Deployment:
		c.deployment(o)
	case *Service:
		c.service(o)
	case *Endpoint:
		c.endpoint(o)
	case *ConfigMap:
		c.configMap(o)
	case *Secret:
		c.secret(o)
	}
	return c.found
}
