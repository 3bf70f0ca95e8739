package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gogo/protobuf/proto"
)

// schema is what the struct tags of a generated type say about its message.
type schema struct {
	fields   []*field
	byName   map[string]*field
	byNumber map[int]*field
}

// field is one field of a message.
type field struct {
	index    int
	number   int
	name     string
	required bool
	repeated bool
	enum     *enum
	// def is what Mesos writes for the absent field: its default, or an empty
	// list; nil when it writes nothing.
	def []byte
}

// enum holds the names of an enumeration.
type enum struct {
	names  map[int32]string
	values map[string]int32
}

// laterEnumValues are those that Mesos 1.12 writes and the Go types lack.
var laterEnumValues = map[string]map[string]int32{
	"mesos.MasterInfo_Capability_Type": {"QUOTA_V2": 3},
}

// emptyLists are those that Mesos writes when there is nothing in them: the
// lists of the operator API's answers.
var emptyLists = map[string][]string{
	"master.Response_GetAgents":     {"agents", "recovered_agents"},
	"master.Response_GetFrameworks": {"frameworks", "completed_frameworks"},
	"master.Response_GetExecutors":  {"executors"},
	"master.Response_GetTasks":      {"tasks", "unreachable_tasks", "completed_tasks"},
	"agent.Response_GetContainers":  {"containers"},
	"agent.Response_GetFrameworks":  {"frameworks", "completed_frameworks"},
	"agent.Response_GetExecutors":   {"executors", "completed_executors"},
	"agent.Response_GetTasks":       {"pending_tasks", "queued_tasks", "launched_tasks", "terminated_tasks", "completed_tasks"},
}

var schemas sync.Map // reflect.Type -> *schema

func schemaOf(m proto.Message) (*schema, error) {
	t := reflect.TypeOf(m)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T is not a pointer to a message", m)
	}
	return schemaOfType(t.Elem()), nil
}

func schemaOfType(t reflect.Type) *schema {
	if s, ok := schemas.Load(t); ok {
		return s.(*schema) //nolint:forcetypeassert // only this function stores
	}
	s := &schema{byName: map[string]*field{}, byNumber: map[int]*field{}}
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("protobuf")
		if tag == "" {
			continue
		}
		f := parseTag(tag)
		f.index = i
		if slices.Contains(emptyLists[t.String()], f.name) {
			f.def = []byte("[]")
		}
		s.fields = append(s.fields, f)
		s.byName[f.name] = f
		s.byNumber[f.number] = f
	}
	actual, _ := schemas.LoadOrStore(t, s)
	return actual.(*schema) //nolint:forcetypeassert // only this function stores
}

// parseTag reads a tag such as "varint,2,req,name=type,enum=mesos.Value_Type,def=1".
func parseTag(tag string) *field {
	parts := strings.Split(tag, ",")
	f := &field{}
	f.number, _ = strconv.Atoi(parts[1])
	var def *string
	for i, p := range parts[2:] {
		key, value, _ := strings.Cut(p, "=")
		switch key {
		case "req":
			f.required = true
		case "rep":
			f.repeated = true
		case "name":
			f.name = value
		case "enum":
			f.enum = enumOf(value)
		case "def":
			// A default text may hold commas; it is the last part.
			v := strings.Join(append([]string{value}, parts[2+i+1:]...), ",")
			def = &v
		}
	}
	// The only text default is that of the deprecated role, which Mesos does not write.
	if def != nil && f.name != "role" {
		f.def = defaultJSON(f, parts[0], *def)
	}
	return f
}

func defaultJSON(f *field, wireType, def string) []byte {
	switch {
	case f.enum != nil:
		n, _ := strconv.Atoi(def)
		return strconv.AppendQuote(nil, f.enum.names[int32(n)])
	case wireType == "fixed64":
		v, _ := strconv.ParseFloat(def, 64)
		return appendDouble(nil, v)
	case def == "0" && isBool(f.name):
		return []byte("false")
	case def == "1" && isBool(f.name):
		return []byte("true")
	default:
		return []byte(def)
	}
}

// isBool tells the boolean fields with a default; their tags look like those of integers.
func isBool(name string) bool {
	switch name {
	case "checkpoint", "extract", "shell", "privileged", "share_cgroups", "cached", "mark_gone":
		return true
	}
	return false
}

var enums sync.Map // name -> *enum

func enumOf(name string) *enum {
	if e, ok := enums.Load(name); ok {
		return e.(*enum) //nolint:forcetypeassert // only this function stores
	}
	e := &enum{names: map[int32]string{}, values: map[string]int32{}}
	for k, v := range proto.EnumValueMap(name) {
		e.names[v], e.values[k] = k, v
	}
	for k, v := range laterEnumValues[name] {
		e.names[v], e.values[k] = k, v
	}
	actual, _ := enums.LoadOrStore(name, e)
	return actual.(*enum) //nolint:forcetypeassert // only this function stores
}

// shortName is a message's name without its package: Call, Event.
func shortName(m proto.Message) string {
	return reflect.TypeOf(m).Elem().Name()
}
