package wire

import (
	"reflect"
)

// dropUnnamed makes absent what a message holds of enumeration values without a
// name, which newer versions may send: C++ keeps them apart as unknown fields.
// It returns false when a required one is lost by it: such a message is incomplete.
func dropUnnamed(v reflect.Value) bool {
	for _, f := range schemaOfType(v.Type()).fields {
		if !dropInField(f, v.Field(f.index)) {
			return false
		}
	}
	return true
}

func dropInField(f *field, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		switch element := v.Type().Elem(); {
		case f.enum != nil && f.repeated:
			kept := v.Slice(0, 0)
			for i := range v.Len() {
				if _, ok := f.enum.name(v.Index(i).Int()); ok {
					kept = reflect.Append(kept, v.Index(i))
				}
			}
			v.Set(kept)
		case element.Kind() == reflect.Struct || element.Kind() == reflect.Pointer:
			for i := range v.Len() {
				if !dropInside(v.Index(i)) {
					return false
				}
			}
		}
		return true
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			return true
		}
		for _, k := range v.MapKeys() {
			// What a map holds cannot be changed in place.
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(k))
			if !dropUnnamed(element) {
				return false
			}
			v.SetMapIndex(k, element)
		}
		return true
	default:
		return dropSingle(f, v)
	}
}

// dropSingle looks at a field that is neither list nor map.
func dropSingle(f *field, v reflect.Value) bool {
	if f.enum == nil {
		return dropInside(v)
	}
	value := v
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return true
		}
		value = v.Elem()
	}
	if _, ok := f.enum.name(value.Int()); !ok {
		if f.required {
			return false
		}
		v.SetZero()
	}
	return true
}

// dropInside looks into a message, or the message that a pointer points to.
func dropInside(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return true
		}
		v = v.Elem()
	}
	return v.Kind() != reflect.Struct || dropUnnamed(v)
}
