package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	codec "treadle/codec/admin"
)

// object is a JSON object whose members stay in order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	for n, m := range o {
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%c%q:%s", "{,"[min(n, 1)], m.name, value)
	}
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return append(text.Bytes(), '}'), nil
}

// with returns the object with a member more, or as it is when the value is empty.
func (o object) with(name string, value any) object {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Len() == 0 || v.IsZero() {
		return o
	}
	return append(slices.Clip(o), member{name, value})
}

// kindOf returns the schema of a type of JSON.
func kindOf(kind string) object { return object{{"type", kind}} }

func refTo(schema string) object { return object{{"$ref", "#/components/schemas/" + schema}} }

// message is a type of codec/admin as its source has it.
type message struct {
	isMessage bool // it has members of JSON
	doc       string
	fields    map[string]string // comments, by the names in Go
}

// source is what the source of codec/admin says of its messages.
type source struct {
	types    map[string]*message
	embedded []string            // types whose members others have
	aliases  map[string]string   // names of instances of generic types
	values   map[string]string   // of constants
	groups   map[string][]string // the values of a group of constants with their comments, by the first constant
}

// messageSource reads the source of codec/admin.
func messageSource(t *testing.T) *source {
	t.Helper()
	s := &source{types: make(map[string]*message), aliases: make(map[string]string), values: make(map[string]string), groups: make(map[string][]string)}
	files, err := filepath.Glob("../../codec/admin/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if d, ok := d.(*ast.GenDecl); ok && !strings.HasSuffix(file, "_test.go") {
				s.add(d)
			}
		}
	}
	return s
}

func (s *source) add(d *ast.GenDecl) {
	group := ""
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.addType(spec, cmp.Or(spec.Doc.Text(), d.Doc.Text()))
		case *ast.ValueSpec:
			if d.Tok != token.CONST || len(spec.Values) != 1 {
				continue
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			name, value := spec.Names[0].Name, strings.Trim(literal.Value, `"`)
			group = cmp.Or(group, name)
			s.values[name] = value
			if meaning := oneLine(spec.Comment.Text()); meaning != "" {
				value += " (" + meaning + ")"
			}
			s.groups[group] = append(s.groups[group], value)
		}
	}
}

func (s *source) addType(spec *ast.TypeSpec, doc string) {
	if generic, ok := spec.Type.(*ast.IndexExpr); ok && spec.Assign != 0 {
		s.aliases[fmt.Sprintf("%v[%v]", generic.X, generic.Index)] = spec.Name.Name
	}
	m := &message{doc: doc, fields: make(map[string]string)}
	s.types[spec.Name.Name] = m
	fields, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range fields.Fields.List {
		m.isMessage = m.isMessage || f.Tag != nil || spec.TypeParams == nil && len(fields.Fields.List) == 1 && len(f.Names) == 0
		for _, name := range f.Names {
			m.fields[name.Name] = strings.TrimSpace(f.Doc.Text() + f.Comment.Text())
		}
		if len(f.Names) == 0 {
			s.embedded = append(s.embedded, fmt.Sprint(f.Type))
		}
	}
	m.isMessage = m.isMessage && spec.TypeParams == nil
}

// schemas makes the schemas of messages.
type schemas struct {
	t       *testing.T
	source  *source
	made    map[string]object
	request map[string]bool // whether a schema is of requests
}

// special are the schemas of types that encode themselves.
var special = map[reflect.Type]object{
	reflect.TypeFor[codec.Duration](): {{"oneOf", []object{
		append(kindOf("number"), member{"minimum", 0}, member{"maximum", int(codec.LongestDuration.Seconds())}),
		append(kindOf("string"), member{"pattern", `^([0-9]+d|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`}),
	}}},
	reflect.TypeFor[codec.Moment](): {{"oneOf", []object{
		append(kindOf("integer"), member{"minimum", 0}),
		append(kindOf("string"), member{"format", "date-time"}),
	}}},
	reflect.TypeFor[json.RawMessage](): {},
}

// of returns the schema of a type. request reports whether clients send it: it has no other members than these.
func (s *schemas) of(v reflect.Type, request bool) object {
	if made, ok := special[v]; ok {
		if v.PkgPath() == reflect.TypeFor[codec.Job]().PkgPath() {
			s.made[v.Name()] = object{}.with("description", s.describe(s.source.types[v.Name()].doc, nil, true)).with("oneOf", made[0].value)
			return refTo(v.Name())
		}
		return made
	}
	switch v.Kind() {
	case reflect.Bool:
		return kindOf("boolean")
	case reflect.Int, reflect.Int64:
		return append(kindOf("integer"), member{"format", "int64"})
	case reflect.Int32:
		return append(kindOf("integer"), member{"format", "int32"})
	case reflect.Float64:
		return append(kindOf("number"), member{"format", "double"})
	case reflect.Uint32, reflect.Uint64:
		return append(kindOf("integer"), member{"format", "int64"}, member{"minimum", 0})
	case reflect.String:
		return kindOf("string")
	case reflect.Slice:
		if v.Elem().Kind() == reflect.Uint8 {
			return append(kindOf("string"), member{"contentEncoding", "base64"})
		}
		return append(kindOf("array"), member{"items", s.of(v.Elem(), request)})
	case reflect.Map:
		value := s.of(v.Elem(), request)
		if v.Elem().Kind() == reflect.Pointer {
			value = object{{"type", []any{value[0].value, "null"}}}
		}
		return append(kindOf("object"), member{"additionalProperties", value})
	case reflect.Pointer:
		return s.of(v.Elem(), request)
	case reflect.Struct:
		if v.NumField() == 0 {
			return kindOf("object")
		}
		return refTo(s.message(v, request))
	}
	s.t.Fatalf("%v has no schema", v)
	return nil
}

// message makes the schema of a struct, and returns its name.
func (s *schemas) message(v reflect.Type, request bool) string {
	name := v.Name()
	if generic := regexp.MustCompile(`^(\w+)\[.*\.(\w+)\]$`).FindStringSubmatch(name); generic != nil {
		name = s.source.aliases[generic[1]+"["+generic[2]+"]"]
	}
	if _, made := s.made[name]; made {
		if s.request[name] != request {
			s.t.Errorf("%s is in requests and in answers: give each a type", name)
		}
		return name
	}
	s.made[name], s.request[name] = nil, request
	fields := flat(v, name)
	names := make(map[string]string) // in JSON, by those in Go
	for _, f := range fields {
		names[f.Name], f.options, _ = strings.Cut(f.Tag.Get("json"), ",")
	}
	var properties object
	var required []string
	for _, f := range fields {
		comment := s.source.types[f.owner].fields[f.Name]
		properties = append(properties, member{names[f.Name], s.of(f.Type, request).with("description", s.describe(comment, names, false))})
		if f.options == "" && (!request || names[f.Name+"Bytes"] == "") {
			required = append(required, names[f.Name])
		}
	}
	made := object{}.with("description", s.describe(s.source.types[name].doc, names, true)).with("type", "object").
		with("properties", properties).with("required", required)
	if request {
		made = append(made, member{"additionalProperties", false})
	}
	s.made[name] = made
	return name
}

// field is a field of a struct, or of one that it embeds.
type field struct {
	reflect.StructField
	owner   string // the struct
	options string // of its tag
}

// flat returns the fields of a struct whose members make one JSON object.
func flat(v reflect.Type, owner string) (all []*field) {
	for n := range v.NumField() {
		if f := v.Field(n); f.Anonymous {
			all = append(all, flat(f.Type, f.Name)...)
		} else {
			all = append(all, &field{StructField: f, owner: owner})
		}
	}
	return all
}

var (
	word = regexp.MustCompile(`\b[A-Za-z]\w*\b`)
	// goName matches a name of Go. Prose has words such as KiB, which are shorter.
	goName = regexp.MustCompile(`^[a-z]+[A-Z]\w+$|^[A-Z][a-z]+[A-Z]\w+$`)
	see    = regexp.MustCompile(`\bsee ([A-Z]\w+)`)
)

// describe turns a comment of the source into a description: the names of fields and constants become those of JSON,
// and "see X" the values of the constants that begin with X. names are those of the fields; the comment of a type
// begins with that of the type.
func (s *schemas) describe(comment string, names map[string]string, ofType bool) string {
	text := strings.NewReplacer(", as JSON has it", "", " as JSON has it", "").Replace(oneLine(comment))
	text = see.ReplaceAllStringFunc(text, func(m string) string {
		if values := s.source.groups[m[len("see "):]]; values != nil {
			return strings.Join(values, ", ")
		}
		return m
	})
	return word.ReplaceAllStringFunc(text, func(w string) string {
		isType := ofType
		ofType = false
		switch value, constant := s.source.values[w]; {
		case w == "nil":
			return "null"
		case constant:
			return value
		case names[w] != "" && !isType:
			return "`" + names[w] + "`"
		case goName.MatchString(w) && s.source.types[w] == nil:
			s.t.Errorf("a comment of codec/admin has the name %s, which users of the API do not know: %s", w, text)
		}
		return w
	})
}

func oneLine(comment string) string { return strings.Join(strings.Fields(comment), " ") }
