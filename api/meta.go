package api

import (
	"maps"
	"slices"
	"time"
)

// ObjectMeta names and labels an object or the template of a taskgroup.
type ObjectMeta struct {
	// Name is a DNS label; namespace and name are unique per kind.
	Name string `json:"name,omitempty"`
	// Namespace is a DNS label, defaultGroup when absent.
	Namespace string `json:"namespace,omitempty"`
	// Labels are what selectors and constraints look at.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are carried along for tools.
	Annotations map[string]string `json:"annotations,omitempty"`
	// CreationTimestamp is the system's; one given by a user has no effect.
	CreationTimestamp time.Time `json:"creationTimestamp,omitzero"`
	// ClusterName informs people and has no effect.
	ClusterName string `json:"clusterName,omitempty"`
}

// mergeLabels lays over on top of base, in a new map; nil when both are empty.
func mergeLabels(base, over map[string]string) map[string]string {
	if len(base)+len(over) == 0 {
		return nil
	}
	out := make(map[string]string, len(base)+len(over))
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
