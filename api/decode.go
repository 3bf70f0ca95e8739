package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// Format is the notation of a source.
type Format int

// Formats. FormatAuto takes what begins with a brace or bracket for JSON.
const (
	FormatAuto Format = iota
	FormatJSON
	FormatYAML
)

// Options direct the decoder.
type Options struct {
	// Strict makes errors of warnings.
	Strict bool
	// Format is the notation of the source.
	Format Format
	// Rules are further ones, of those who use this package: what they find is told together with
	// the rest, with its place in the source. Objects come with their defaults, and may be wrong.
	Rules func(Object) Errors
}

// Document is one decoded artifact. It holds two forms of it: what the user
// wrote, which is what is stored and given back, and the typed form that the
// parts of Tandem work with.
type Document struct {
	// Object has its defaults and was validated.
	Object Object
	// Raw is the document as the user wrote it, as compact JSON: keys in
	// their order and spelling, unknown ones included, no defaults. Where a key
	// was given twice, the last one is left.
	Raw json.RawMessage
	// Source is the file or stream, as it was named to the decoder.
	Source string
	// Index is the document's place in its source, from 1.
	Index int
	// Line is where the document begins in its source, from 1.
	Line int
}

// Ref returns what identifies the document's object.
func (d *Document) Ref() Ref { return RefOf(d.Object) }

// Decode reads all documents of r: JSON values one after the other, YAML
// documents separated by ---, lists of documents, or objects of kind List. It
// sets defaults and validates. The error holds everything that is wrong in all documents
// (Errors); there are no documents then. Warnings are about what has no effect.
// source names r in both.
func Decode(r io.Reader, source string, opts Options) ([]Document, []FieldError, error) {
	src, err := readLimited(r, source)
	if err != nil {
		return nil, nil, err
	}
	d := newDecoding(opts)
	d.source(src, source, opts.Format)
	return d.result()
}

// DecodeObject decodes a stored document, which was validated when it was
// stored: it sets defaults but does not validate, so that a store written by
// an older release can always be read.
func DecodeObject(raw []byte) (Object, error) {
	docs, serr := parse(raw, FormatAuto)
	if serr != nil {
		return nil, fmt.Errorf("decode stored object: %w", serr)
	}
	if len(docs) != 1 {
		return nil, fmt.Errorf("decode stored object: one document expected, there are %d", len(docs))
	}
	docs[0].dropDuplicates("", func(duplicate) {})
	var m mapper
	o := m.document(docs[0])
	if len(m.found.errs) > 0 {
		return nil, fmt.Errorf("decode stored object: %w", m.found.errs)
	}
	SetDefaults(o)
	return o, nil
}

// maxErrors is where the decoder gives up on a source.
const maxErrors = 500

// decoding gathers the documents, errors and warnings of one or several sources.
type decoding struct {
	opts  Options
	docs  []Document
	errs  Errors
	warns []FieldError
	seen  map[Ref]int
}

func newDecoding(opts Options) *decoding {
	return &decoding{opts: opts, seen: map[Ref]int{}}
}

func (d *decoding) result() ([]Document, []FieldError, error) {
	if d.opts.Strict {
		d.errs = append(d.errs, d.warns...)
		d.warns = nil
	}
	if len(d.errs) > 0 {
		return nil, d.warns, d.errs
	}
	return d.docs, d.warns, nil
}

func (d *decoding) source(src []byte, source string, format Format) {
	roots, serr := parse(src, format)
	var nodes []*node
	for _, r := range roots {
		nodes = append(nodes, flatten(r)...)
	}
	for i, n := range nodes {
		if len(d.errs) > maxErrors {
			d.errs = append(d.errs, FieldError{Source: source, Message: "there are more errors than are shown"})
			return
		}
		d.document(n, source, i+1, len(nodes))
	}
	switch {
	case serr != nil:
		d.errs = append(d.errs, FieldError{Source: source, Line: serr.line, Column: serr.col, Message: serr.msg})
	case len(nodes) == 0:
		d.errs = append(d.errs, FieldError{Source: source, Message: "holds no document"})
	}
}

func parse(src []byte, format Format) ([]*node, *syntaxError) {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	if len(src) > MaxSourceBytes {
		return nil, &syntaxError{msg: fmt.Sprintf("is larger than %d MiB; split it", MaxSourceBytes>>20)}
	}
	if format == FormatAuto {
		format = FormatYAML
		if t := bytes.TrimLeft(src, " \t\r\n"); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
			format = FormatJSON
		}
	}
	if format == FormatJSON {
		return parseJSON(src)
	}
	return parseYAML(src)
}

// flatten takes lists of documents apart, also objects of kind List.
func flatten(n *node) []*node {
	if n.kind == nodeList {
		return n.items
	}
	if k := n.find("kind"); k != nil && k.kind == nodeString && strings.EqualFold(k.text, "List") {
		if items := n.find("items"); items != nil && items.kind == nodeList {
			return items.items
		}
	}
	return []*node{n}
}

func (d *decoding) document(n *node, source string, index, count int) {
	var m mapper
	n.dropDuplicates("", func(dup duplicate) {
		m.found.warn(FieldError{Path: dup.path, Line: dup.key.line, Column: dup.key.col,
			Message: fmt.Sprintf("is given twice, first in line %d; the last one counts", dup.first)})
	})
	o := m.document(n)
	doc := Document{Object: o, Source: source, Index: index, Line: n.line}
	if o != nil {
		var b bytes.Buffer
		n.appendJSON(&b)
		doc.Raw = b.Bytes()
		if b.Len() > MaxDocumentBytes {
			m.found.fail(FieldError{Line: n.line, Message: fmt.Sprintf("the document has %d bytes, more than %d; split it, or fetch large data from an address", b.Len(), MaxDocumentBytes)})
		}
		SetDefaults(o)
		d.validate(&m.found, o, n)
	}
	place := func(list []FieldError) {
		for i := range list {
			list[i].Source = source
			if count > 1 {
				list[i].Document = index
			}
		}
		sort.SliceStable(list, func(i, j int) bool {
			a, b := list[i], list[j]
			if a.Line != b.Line {
				return a.Line < b.Line
			}
			return a.Column < b.Column
		})
	}
	place(m.found.errs)
	place(m.found.warns)
	d.errs = append(d.errs, m.found.errs...)
	if m.found.full() {
		d.errs = append(d.errs, FieldError{Source: source, Line: n.line, Message: "the document has more errors than are shown"})
	}
	d.warns = append(d.warns, m.found.warns...)
	if o != nil && len(m.found.errs) == 0 {
		d.add(doc)
	}
}

// validate adds what the rules of the kind find, with places. A field that could
// not be decoded has been reported; what the rules say about its zero value
// would only confuse.
func (d *decoding) validate(f *findings, o Object, n *node) {
	broken := map[string]bool{}
	for _, e := range f.errs {
		broken[e.Path] = true
	}
	under := func(path string) bool {
		for b := range broken {
			if path == b || strings.HasPrefix(path, b) && (path[len(b)] == '.' || path[len(b)] == '[') {
				return true
			}
		}
		return false
	}
	found := check(o)
	locate := func(e FieldError) FieldError {
		at := n.at(e.Path)
		e.Line, e.Column = at.line, at.col
		return e
	}
	for _, e := range found.errs {
		if !under(e.Path) {
			f.fail(locate(e))
		}
	}
	if d.opts.Rules != nil {
		for _, e := range found.errs {
			broken[e.Path] = true
		}
		for _, e := range d.opts.Rules(o) {
			if !under(e.Path) {
				f.fail(locate(e))
			}
		}
	}
	for _, w := range found.warns {
		f.warn(locate(w))
	}
}

func (d *decoding) add(doc Document) {
	ref := doc.Ref()
	if first, dup := d.seen[ref]; dup {
		other := d.docs[first]
		d.errs = append(d.errs, FieldError{Path: "metadata.name", Value: doc.Object.GetMeta().Name, Source: doc.Source, Line: doc.Line,
			Message: fmt.Sprintf("%s is declared already in %s, line %d; remove one of the two", ref, other.Source, other.Line)})
		return
	}
	d.seen[ref] = len(d.docs)
	d.docs = append(d.docs, doc)
}

// newObject returns an empty object of a kind, or nil.
func newObject(kind Kind) Object {
	switch kind {
	case KindApplication, KindProcess:
		return &Application{Kind: kind}
	case KindDeployment:
		return &Deployment{}
	case KindService:
		return &Service{}
	case KindEndpoint:
		return &Endpoint{}
	case KindConfigMap:
		return &ConfigMap{}
	case KindSecret:
		return &Secret{}
	default:
		return nil
	}
}

// document finds out what n declares and fills an object of that kind from it;
// nil when it cannot be told.
func (m *mapper) document(n *node) Object {
	if n.kind != nodeMap {
		m.wrong(n, "", true, "a document must be an object with keys, not "+n.kind.String())
		return nil
	}
	kind, ok := m.kind(n)
	if !m.version(n, kind) || !ok {
		return nil
	}
	o := newObject(kind)
	m.object(n, "", reflect.ValueOf(o).Elem())
	setKind(o, kind)
	return o
}

func (m *mapper) kind(n *node) (Kind, bool) {
	names := make([]string, 0, len(Kinds()))
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	slices.Sort(names)
	k := n.find("kind")
	if k == nil || k.kind == nodeNull || k.kind == nodeString && k.text == "" {
		if kind := inferKind(n); kind != "" {
			return kind, true
		}
		m.wrong(n, "kind", true, "is missing; add one of "+strings.Join(names, ", "))
		return "", false
	}
	if k.kind != nodeString {
		m.wrong(k, "kind", false, "must be a text, one of "+strings.Join(names, ", "))
		return "", false
	}
	kind := Kind(strings.ToLower(k.text))
	if !slices.Contains(names, string(kind)) {
		m.wrong(k, "kind", false, "is not a known kind; use one of "+strings.Join(names, ", ")+didYouMean(k.text, names))
		return "", false
	}
	return kind, true
}

// inferKind tells an application from a process by what it runs.
func inferKind(n *node) Kind {
	pod := n.find("spec").find("template").find("spec")
	if c := pod.find("containers"); c != nil && len(c.items) > 0 {
		return KindApplication
	}
	if p := pod.find("processes"); p != nil && len(p.items) > 0 {
		return KindProcess
	}
	return ""
}

func (m *mapper) version(n *node, kind Kind) bool {
	known := VersionV4
	v := n.find("apiVersion")
	switch {
	case v == nil, v.kind == nodeNull, v.kind == nodeString && (v.text == "" || v.text == VersionV4):
		return true
	case kind == KindService || kind == KindEndpoint:
		if v.kind == nodeString && v.text == VersionV1 {
			return true
		}
		known = VersionV4 + " and " + VersionV1
	}
	what := "this kind"
	if kind != "" {
		what = "kind " + string(kind)
	}
	m.wrong(v, "apiVersion", false, "is not a known version; "+what+" has "+known)
	return false
}

// setKind writes the kind in its canonical spelling, and the version when it is absent.
func setKind(o Object, kind Kind) {
	version := func(v *string) {
		if *v == "" {
			*v = VersionV4
		}
	}
	switch o := o.(type) {
	case *Application:
		o.Kind = kind
		version(&o.APIVersion)
	case *Deployment:
		o.Kind = kind
		version(&o.APIVersion)
	case *Service:
		o.Kind = kind
		version(&o.APIVersion)
	case *Endpoint:
		o.Kind = kind
		version(&o.APIVersion)
	case *ConfigMap:
		o.Kind = kind
		version(&o.APIVersion)
	case *Secret:
		o.Kind = kind
		version(&o.APIVersion)
	}
}
