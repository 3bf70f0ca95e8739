package resource

import mesos "github.com/mesos/mesos-go/api/v1/lib"

// Upgrade returns a resource in the form of RESERVATION_REFINEMENT: without
// role, with a list of reservations.
func Upgrade(r mesos.Resource) mesos.Resource {
	if r.Role == nil && r.Reservation == nil {
		return r
	}
	role := r.GetRole()
	switch {
	case r.Reservation != nil:
		dynamic := mesos.Resource_ReservationInfo_DYNAMIC
		v := *r.Reservation
		v.Type, v.Role = &dynamic, &role
		r.Reservations = []mesos.Resource_ReservationInfo{v}
	case role != "*":
		static := mesos.Resource_ReservationInfo_STATIC
		r.Reservations = []mesos.Resource_ReservationInfo{{Type: &static, Role: &role}}
	}
	r.Role, r.Reservation = nil, nil
	return r
}

// Downgrade returns a resource in the form from before RESERVATION_REFINEMENT:
// with a role. A refined reservation has no such form and is returned as it is.
func Downgrade(r mesos.Resource) mesos.Resource {
	role := "*"
	switch len(r.Reservations) {
	case 0:
	case 1:
		v := r.Reservations[0]
		role = v.GetRole()
		if v.GetType() == mesos.Resource_ReservationInfo_DYNAMIC {
			v.Type, v.Role = nil, nil
			r.Reservation = &v
		}
		r.Reservations = nil
	default:
		return r
	}
	r.Role = &role
	return r
}

// AvailableTo returns the part of l that may be offered to a role: what is not
// reserved, and what is reserved to the role itself or one above it.
func (l List) AvailableTo(role string) List {
	var out List
	for _, r := range l {
		if n := len(r.Reservations); n > 0 {
			owner := r.Reservations[n-1].GetRole()
			if owner != role && !isBelow(role, owner) {
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

func isBelow(role, owner string) bool {
	return len(role) > len(owner) && role[:len(owner)] == owner && role[len(owner)] == '/'
}
