package master

import (
	"math"
	"slices"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
)

// validateResources checks resources that a framework names, with Mesos's words.
func validateResources(resources []mesos.Resource) error {
	for _, r := range resources {
		if why := invalidResource(r); why != "" {
			return mesosError("Resource '" + resource.List{r}.String() + "' is invalid: " + why)
		}
	}
	return nil
}

// invalidResource says what is wrong with a resource; empty if nothing is.
func invalidResource(r mesos.Resource) string {
	if r.Name == "" {
		return "Empty resource name"
	}
	switch r.GetType() {
	case mesos.SCALAR:
		return invalidScalar(r)
	case mesos.RANGES:
		return invalidRanges(r)
	case mesos.SET:
		return invalidSet(r)
	default:
		return "Unsupported resource type"
	}
}

func invalidScalar(r mesos.Resource) string {
	if r.Scalar == nil || r.Ranges != nil || r.Set != nil {
		return "Invalid scalar resource"
	}
	// What is less than a thousandth would count as nothing.
	if v := r.Scalar.Value; v != 0 && (math.IsNaN(v) || math.Round(v*1000) <= 0) {
		return "Invalid scalar resource: value <= 0"
	}
	return ""
}

func invalidRanges(r mesos.Resource) string {
	if r.Scalar != nil || r.Ranges == nil || r.Set != nil {
		return "Invalid ranges resource"
	}
	ranges := slices.Clone(r.Ranges.Range)
	for _, x := range ranges {
		if x.Begin > x.End {
			return "Invalid ranges resource: begin > end"
		}
	}
	slices.SortFunc(ranges, func(a, b mesos.Value_Range) int {
		if a.Begin < b.Begin {
			return -1
		}
		return 1
	})
	for i := 1; i < len(ranges); i++ {
		if ranges[i].Begin <= ranges[i-1].End {
			return "Invalid ranges resource: overlapping ranges"
		}
	}
	return ""
}

func invalidSet(r mesos.Resource) string {
	if r.Scalar != nil || r.Ranges != nil || r.Set == nil {
		return "Invalid set resource"
	}
	items := slices.Sorted(slices.Values(r.Set.Item))
	if len(slices.Compact(items)) != len(r.Set.Item) {
		return "Invalid set resource: duplicated elements"
	}
	return ""
}

// validateOperation checks what must be right of an operation as a whole: that
// it says what it is to do, and with resources that are some. Of a LAUNCH one bad
// resource spoils all tasks.
func validateOperation(op mesos.Offer_Operation) error {
	there, resources := true, []mesos.Resource(nil)
	switch op.Type {
	case mesos.Offer_Operation_LAUNCH:
		if there = op.Launch != nil; there {
			resources = taskResources(op.Launch.TaskInfos)
		}
	case mesos.Offer_Operation_LAUNCH_GROUP:
		if there = op.LaunchGroup != nil; there {
			resources = append(taskResources(op.LaunchGroup.TaskGroup.Tasks), op.LaunchGroup.Executor.Resources...)
		}
	case mesos.Offer_Operation_RESERVE:
		there, resources = op.Reserve != nil, op.GetReserve().GetResources()
	case mesos.Offer_Operation_UNRESERVE:
		there, resources = op.Unreserve != nil, op.GetUnreserve().GetResources()
	case mesos.Offer_Operation_CREATE:
		there, resources = op.Create != nil, op.GetCreate().GetVolumes()
	case mesos.Offer_Operation_DESTROY:
		there, resources = op.Destroy != nil, op.GetDestroy().GetVolumes()
	case mesos.Offer_Operation_GROW_VOLUME:
		if there = op.GrowVolume != nil; there {
			resources = []mesos.Resource{op.GrowVolume.Volume, op.GrowVolume.Addition}
		}
	case mesos.Offer_Operation_SHRINK_VOLUME:
		if there = op.ShrinkVolume != nil; there {
			resources = []mesos.Resource{op.ShrinkVolume.Volume}
		}
	case mesos.Offer_Operation_CREATE_DISK:
		if there = op.CreateDisk != nil; there {
			resources = []mesos.Resource{op.CreateDisk.Source}
		}
	case mesos.Offer_Operation_DESTROY_DISK:
		if there = op.DestroyDisk != nil; there {
			resources = []mesos.Resource{op.DestroyDisk.Source}
		}
	case mesos.Offer_Operation_UNKNOWN:
	}
	if !there {
		kind, article := op.Type.String(), "A "
		if kind == "UNRESERVE" {
			article = "An "
		}
		return mesosError(article + kind + " offer operation must have the Offer.Operation." + strings.ToLower(kind) + " field set.")
	}
	return validateResources(resources)
}

// taskResources are those of tasks and their executors.
func taskResources(tasks []mesos.TaskInfo) []mesos.Resource {
	var out []mesos.Resource
	for _, t := range tasks {
		out = append(out, t.Resources...)
		if t.Executor != nil {
			out = append(out, t.Executor.Resources...)
		}
	}
	return out
}
