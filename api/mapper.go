package api

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// prefiller is a struct whose absent keys do not mean the zero value. The
// mapper calls it before the keys that are there are filled in.
type prefiller interface{ prefill() }

// nodeReader is a type that has more than one spelling in artifacts.
type nodeReader interface {
	// readNode takes the value; it returns what is wrong with it, or "".
	readNode(n *node) string
}

// mapper fills the typed form of a document from its nodes, by reflection over
// the json tags. Keys are matched without regard to case.
type mapper struct {
	found findings
}

// field is one key that a struct knows.
type field struct {
	name   string
	index  int
	secret bool
}

type structInfo struct {
	// byKey leads from a key in lower case to its field; aliases are in it too.
	byKey map[string]*field
	names []string
}

var structInfos sync.Map

func infoOf(t reflect.Type) *structInfo {
	if v, ok := structInfos.Load(t); ok {
		if info, ok := v.(*structInfo); ok {
			return info
		}
	}
	info := &structInfo{byKey: map[string]*field{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || name == "" {
			continue
		}
		fl := &field{name: name, index: i, secret: f.Tag.Get("secret") != ""}
		info.byKey[strings.ToLower(name)] = fl
		info.names = append(info.names, name)
		if alias := f.Tag.Get("alias"); alias != "" {
			info.byKey[strings.ToLower(alias)] = fl
			info.names = append(info.names, alias)
		}
	}
	structInfos.Store(t, info)
	return info
}

// value fills v from n. A null leaves v as it is, like an absent key.
func (m *mapper) value(n *node, path string, v reflect.Value, secret bool) {
	if n.kind == nodeNull || m.found.full() {
		return
	}
	if v.CanAddr() {
		if r, ok := v.Addr().Interface().(nodeReader); ok {
			if problem := r.readNode(n); problem != "" {
				m.wrong(n, path, secret, problem)
			}
			return
		}
		if t, ok := v.Addr().Interface().(*time.Time); ok {
			m.time(n, path, t)
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		m.value(n, path, p.Elem(), secret)
		v.Set(p)
	case reflect.Struct:
		m.object(n, path, v)
	case reflect.Map:
		m.dict(n, path, v, secret)
	case reflect.Slice:
		m.list(n, path, v, secret)
	default:
		m.scalar(n, path, v, secret)
	}
}

func (m *mapper) object(n *node, path string, v reflect.Value) {
	if n.kind != nodeMap {
		m.wrong(n, path, true, "must be an object with keys, not "+n.kind.String())
		return
	}
	if p, ok := v.Addr().Interface().(prefiller); ok {
		p.prefill()
	}
	info := infoOf(v.Type())
	seen := make(map[*field]nodeKey, len(n.keys))
	for i, k := range n.keys {
		f := info.byKey[strings.ToLower(k.name)]
		if f == nil {
			m.found.warn(FieldError{Path: joinPath(path, k.name), Line: k.line, Column: k.col,
				Message: "unknown key, it has no effect" + didYouMean(k.name, info.names)})
			continue
		}
		if first, dup := seen[f]; dup {
			m.found.warn(FieldError{Path: joinPath(path, f.name), Line: k.line, Column: k.col,
				Message: "is the same key as " + strconv.Quote(first.name) + " in line " + strconv.Itoa(first.line) + "; the last one counts"})
			v.Field(f.index).SetZero()
		}
		seen[f] = k
		m.value(n.items[i], joinPath(path, f.name), v.Field(f.index), f.secret)
	}
}

// dict fills a map whose keys are data and keep their case.
func (m *mapper) dict(n *node, path string, v reflect.Value, secret bool) {
	if n.kind != nodeMap {
		m.wrong(n, path, true, "must be an object with keys, not "+n.kind.String())
		return
	}
	if len(n.keys) == 0 {
		v.SetZero()
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.keys))
	for i, k := range n.keys {
		item := reflect.New(v.Type().Elem()).Elem()
		m.value(n.items[i], joinPath(path, k.name), item, secret)
		out.SetMapIndex(reflect.ValueOf(k.name), item)
	}
	v.Set(out)
}

func (m *mapper) list(n *node, path string, v reflect.Value, secret bool) {
	if n.kind != nodeList {
		m.wrong(n, path, true, "must be a list in [ ], not "+n.kind.String())
		return
	}
	if len(n.items) == 0 {
		// As if the key were absent, so that equal objects are equal.
		v.SetZero()
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		if item.kind == nodeNull {
			m.wrong(item, indexPath(path, i), true, "is null; remove it from the list")
			continue
		}
		m.value(item, indexPath(path, i), out.Index(i), secret)
	}
	v.Set(out)
}

func (m *mapper) scalar(n *node, path string, v reflect.Value, secret bool) {
	problem := ""
	switch v.Kind() {
	case reflect.String:
		switch n.kind {
		case nodeString:
			v.SetString(n.text)
		case nodeNumber, nodeBool:
			problem = "must be a text, not " + n.kind.String() + "; put it in quotes"
		default:
			problem = "must be a text, not " + n.kind.String()
		}
	case reflect.Bool:
		if n.kind != nodeBool {
			problem = "must be true or false, not " + n.kind.String()
			break
		}
		v.SetBool(n.text == "true")
	case reflect.Int, reflect.Int64:
		problem = intProblem(n)
		if problem == "" {
			i, _ := strconv.ParseInt(n.text, 10, 64)
			v.SetInt(i)
		}
	case reflect.Uint32, reflect.Uint64:
		u, err := strconv.ParseUint(n.text, 10, v.Type().Bits())
		switch {
		case n.kind != nodeNumber:
			problem = intProblem(n)
		case err != nil:
			problem = "must be a whole number that is not negative"
		default:
			v.SetUint(u)
		}
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.text, 64)
		if n.kind != nodeNumber || err != nil {
			problem = "must be a number, not " + n.kind.String()
			break
		}
		v.SetFloat(f)
	default:
		// No field has any other type; a test walks all of them.
		problem = "cannot be decoded"
	}
	if problem != "" {
		m.wrong(n, path, secret, problem)
	}
}

// intProblem says why n is no whole number of 64 bits, or "".
func intProblem(n *node) string {
	_, err := strconv.ParseInt(n.text, 10, 64)
	switch {
	case n.kind == nodeString && err == nil:
		return "must be a whole number, not a text; remove the quotes"
	case n.kind != nodeNumber:
		return "must be a whole number, not " + n.kind.String()
	case err != nil && strings.ContainsAny(n.text, ".eE"):
		return "must be a whole number, written with digits only"
	case err != nil:
		return "is too large a number"
	}
	return ""
}

func (m *mapper) time(n *node, path string, t *time.Time) {
	if n.kind != nodeString {
		m.wrong(n, path, false, "must be a time such as 2024-03-18T10:00:00Z, not "+n.kind.String())
		return
	}
	// Older tools wrote any format here and nothing depends on it.
	if parsed, err := time.Parse(time.RFC3339, n.text); err == nil {
		*t = parsed
	}
}

func (m *mapper) wrong(n *node, path string, secret bool, problem string) {
	e := FieldError{Path: path, Line: n.line, Column: n.col, Message: problem}
	if !secret && n.kind != nodeList && n.kind != nodeMap {
		e.Value = clip(n.text)
	}
	m.found.fail(e)
}

// findings collect errors and warnings, up to a limit that keeps a hopeless
// document from filling the memory and the screen.
type findings struct {
	errs  Errors
	warns []FieldError
}

const maxFindings = 200

func (f *findings) full() bool { return len(f.errs) >= maxFindings }

func (f *findings) fail(e FieldError) {
	if !f.full() {
		f.errs = append(f.errs, e)
	}
}

func (f *findings) warn(e FieldError) {
	if len(f.warns) < maxFindings {
		f.warns = append(f.warns, e)
	}
}
