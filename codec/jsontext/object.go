package jsontext

// walk is where a walk over the parts of an object or an array has come to.
type walk struct {
	text  []byte
	at    int  // index of the next part; 0: none
	ended bool // the closing bracket has come, and nothing but white space follows
}

// open moves before the first part of text, which reports whether text begins with the opening bracket.
func (w *walk) open(text []byte, opening byte) bool {
	i := skipSpace(text, 0)
	if i == len(text) || text[i] != opening {
		return false
	}
	*w = walk{text: text, at: skipSpace(text, i+1)}
	if w.at < len(text) && text[w.at] == opening+2 { // in ASCII
		*w = walk{ended: skipSpace(text, w.at+1) == len(text)}
	}
	return true
}

// next moves to the part behind the value at p[value], and returns the value. It returns nil where the text is not
// JSON.
func (w *walk) next(value int, closing byte) []byte {
	p := w.text
	end := skipValue(p, value, MaxNesting-1)
	if end == 0 {
		return nil
	}
	i := skipSpace(p, end)
	if i == len(p) {
		return nil
	}
	switch p[i] {
	case ',':
		w.at = skipSpace(p, i+1)
	case closing:
		w.ended = skipSpace(p, i+1) == len(p)
	default:
		return nil
	}
	return p[value:end:end]
}

// Object walks over the members of one JSON object.
type Object struct {
	Key   []byte // of the current member: the text between the quotes, with its escapes
	Value []byte // of the current member: its text, without outer white space
	walk  walk
}

// Open reports whether text begins with an object, and moves before its first member. Key and Value will be views into
// text.
func (o *Object) Open(text []byte) bool { return o.walk.open(text, '{') }

// Next moves to the next member and sets Key and Value. It returns false behind the last member and where the text is
// not JSON.
func (o *Object) Next() bool {
	start := o.walk.at
	if start == 0 {
		return false
	}
	o.walk.at = 0
	keyEnd, value := skipKey(o.walk.text, start)
	if value == 0 {
		return false
	}
	text := o.walk.next(value, '}')
	if text == nil {
		return false
	}
	o.Key, o.Value = o.walk.text[start+1:keyEnd-1], text
	return true
}

// Valid reports, after Next has returned false, whether all of the text was one valid object.
func (o *Object) Valid() bool { return o.walk.ended }

// Array walks over the elements of one JSON array.
type Array struct {
	Value []byte // the current element: its text, without outer white space
	walk  walk
}

// Open reports whether text begins with an array, and moves before its first element. Value will be a view into text.
func (a *Array) Open(text []byte) bool { return a.walk.open(text, '[') }

// Next moves to the next element and sets Value. It returns false behind the last element and where the text is not
// JSON.
func (a *Array) Next() bool {
	start := a.walk.at
	if start == 0 {
		return false
	}
	a.walk.at = 0
	a.Value = a.walk.next(start, ']')
	return a.Value != nil
}

// Valid reports, after Next has returned false, whether all of the text was one valid array.
func (a *Array) Valid() bool { return a.walk.ended }
