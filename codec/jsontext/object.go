package jsontext

// Object walks over the members of one JSON object.
type Object struct {
	Key   []byte // of the current member: the text between the quotes, with its escapes
	Value []byte // of the current member: its text, without outer white space

	text  []byte
	at    int  // index of the next member; 0: there is none
	ended bool // the object has ended, and nothing but white space follows
}

// Open reports whether text begins with an object, and moves before its first member. Key and Value will be views into
// text.
func (o *Object) Open(text []byte) bool {
	i := skipSpace(text, 0)
	if i == len(text) || text[i] != '{' {
		return false
	}
	i = skipSpace(text, i+1)
	if i < len(text) && text[i] == '}' {
		*o = Object{ended: skipSpace(text, i+1) == len(text)}
		return true
	}
	*o = Object{text: text, at: i}
	return true
}

// Next moves to the next member and sets Key and Value. It returns false behind the last member and where the text is
// not JSON.
func (o *Object) Next() bool {
	p, start := o.text, o.at
	if start == 0 {
		return false
	}
	o.at = 0
	keyEnd, value := skipKey(p, start)
	if value == 0 {
		return false
	}
	end := skipValue(p, value, MaxNesting-1)
	if end == 0 {
		return false
	}
	i := skipSpace(p, end)
	if i == len(p) {
		return false
	}
	switch p[i] {
	case ',':
		o.at = skipSpace(p, i+1)
	case '}':
		o.ended = skipSpace(p, i+1) == len(p)
	default:
		return false
	}
	o.Key = p[start+1 : keyEnd-1]
	o.Value = p[value:end:end]
	return true
}

// Valid reports, after Next has returned false, whether all of the text was one valid object.
func (o *Object) Valid() bool { return o.ended }
