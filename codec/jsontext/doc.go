// Package jsontext scans and writes the text of JSON values byte by byte. A value that is passed on keeps its bytes,
// every check has one answer, and nothing is allocated but the growth of the caller's slices and in EscapeControls.
// Gloom's frames and the JSON form of jobs need this; documents whose exact bytes do not matter use encoding/json.
//
// Where encoding/json is lenient, this package refuses: text that is not UTF-8 is not JSON. A lone surrogate, which
// encoding/json replaces, is kept.
package jsontext

// MaxNesting is the most levels of arrays and objects. The recursive JSON readers of clients fail not far above it;
// encoding/json has the same limit.
const MaxNesting = 10000
