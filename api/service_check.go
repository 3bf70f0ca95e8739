package api

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

func (s *ServiceSpec) setDefaults() {
	if s.Type == "" {
		s.Type = ServiceClusterIP
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Protocol = strings.ToLower(p.Protocol); p.Protocol == "" {
			p.Protocol = "tcp"
		}
	}
}

func (c *checker) service(s *Service) {
	c.oneOf("spec.type", s.Spec.Type, ServiceClusterIP, ServiceNodePort, ServiceNone, ServiceIntegration)
	c.labels("spec.selector", s.Spec.Selector)
	c.exportLabels("metadata.labels", s.Metadata.Labels)
	headless := s.Spec.Type == ServiceNone
	for i, ip := range s.Spec.ClusterIP {
		at := indexPath("spec.clusterIP", i)
		if ip == ServiceNone && len(s.Spec.ClusterIP) == 1 {
			headless = true
			continue
		}
		if _, err := netip.ParseAddr(ip); err != nil {
			c.fail(at, ip, "must be an IP address, or None")
		}
	}
	if len(s.Spec.Ports) == 0 && !headless && s.Spec.Type != ServiceIntegration {
		c.fail("spec.ports", nil, "is required: at least one port")
	}
	c.servicePorts(s)
	if t := s.Spec.ExternalTrafficPolicy; t != "" {
		c.oneOf("spec.externalTrafficPolicy", t, TrafficCluster, TrafficLocal)
	}
	c.topology(s.Spec)
}

// exportLabels checks the labels that load balancers go by.
func (c *checker) exportLabels(path string, labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		v := labels[k]
		switch {
		case k == LabelBalance && v != "":
			c.oneOf(joinPath(path, k), v, "source", "roundrobin", "leastconn")
		case k == LabelGroup:
			for _, g := range strings.Split(v, ",") {
				if strings.TrimSpace(g) == "" {
					c.fail(joinPath(path, k), v, "must be names of load balancer groups, separated by commas")
					break
				}
			}
		case strings.HasPrefix(k, LabelWeightPrefix):
			if _, err := strconv.ParseUint(v, 10, 16); err != nil {
				c.fail(joinPath(path, k), v, "must be a weight: a whole number of 0 to 65535")
			}
		}
	}
}

func (c *checker) servicePorts(s *Service) {
	v1 := s.APIVersion == VersionV1
	c.most("spec.ports", len(s.Spec.Ports), maxPorts, "ports")
	names := map[string]bool{}
	listens := map[string]bool{}
	for i, p := range s.Spec.Ports {
		at := indexPath("spec.ports", i)
		switch {
		case p.Name != "":
			c.portName(joinPath(at, "name"), p.Name)
			if names[p.Name] {
				c.fail(joinPath(at, "name"), p.Name, "another port of the service has this name; choose another")
			}
			names[p.Name] = true
		case !v1:
			c.fail(joinPath(at, "name"), nil, "is required: the name of a port of the taskgroups")
		case len(s.Spec.Ports) > 1:
			c.fail(joinPath(at, "name"), nil, "is required when there are several ports")
		}
		known := c.oneOf(joinPath(at, "protocol"), p.Protocol, protocols...)
		key := "servicePort"
		if v1 {
			key = "port"
		}
		if p.ServicePort < 1 || p.ServicePort > MaxPort {
			c.fail(joinPath(at, key), p.ServicePort, "must be 1 to %d", MaxPort)
		} else if known {
			// Several virtual hosts may share a port.
			listen := fmt.Sprintf("%d/%s/%s/%s", p.ServicePort, Transport(p.Protocol), strings.ToLower(p.DomainName), p.Path)
			if listens[listen] {
				c.fail(joinPath(at, key), p.ServicePort, "another port of the service has this number, protocol and virtual host")
			}
			listens[listen] = true
		}
		c.targetPort(joinPath(at, "targetPort"), p.TargetPort)
		if p.NodePort < 0 || p.NodePort > MaxPort {
			c.fail(joinPath(at, "nodePort"), p.NodePort, "must be 1 to %d, or 0 for none", MaxPort)
		}
		if p.DomainName != "" && !isDomain(p.DomainName) {
			c.fail(joinPath(at, "domainName"), p.DomainName, "is not a domain name")
		}
		if p.Path != "" && (!strings.HasPrefix(p.Path, "/") || strings.ContainsFunc(p.Path, func(r rune) bool { return r <= ' ' })) {
			c.fail(joinPath(at, "path"), p.Path, "must begin with / and hold no spaces")
		}
	}
}

func (c *checker) targetPort(path string, t TargetPort) {
	switch {
	case t.Name != "":
		c.portName(path, t.Name)
	case t.Number < 0 || t.Number > MaxPort:
		c.fail(path, t.Number, "must be 1 to %d, or the name of a port", MaxPort)
	}
}

// topology checks the keys by which endpoints near the client are preferred.
func (c *checker) topology(s ServiceSpec) {
	const path = "spec.topologyKeys"
	if len(s.TopologyKeys) == 0 {
		return
	}
	c.most(path, len(s.TopologyKeys), MaxTopologyKeys, "keys")
	if s.ExternalTrafficPolicy == TrafficLocal {
		c.fail(path, nil, "cannot go together with externalTrafficPolicy Local; remove one of the two")
	}
	seen := map[string]bool{}
	for i, k := range s.TopologyKeys {
		at := indexPath(path, i)
		switch {
		case seen[k]:
			c.fail(at, k, "is in the list already; remove it")
		case k == "*" && i != len(s.TopologyKeys)-1:
			c.fail(at, k, "matches every endpoint, so that the keys after it have no effect; move it to the end")
		case k == "*":
		case !validLabelKey(k):
			c.fail(at, k, "is not a label key, such as topology.kubernetes.io/zone, or *")
		}
		seen[k] = true
	}
}

// validLabelKey tells whether k is a name of at most 63 characters, perhaps
// after a domain and a slash.
func validLabelKey(k string) bool {
	prefix, name, found := strings.Cut(k, "/")
	if !found {
		prefix, name = "", k
	}
	if found && (!isDomain(prefix) || strings.ContainsAny(prefix, "*_")) {
		return false
	}
	return isName(name)
}
