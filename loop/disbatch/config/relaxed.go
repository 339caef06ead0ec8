package config

// toJSON converts the relaxed JSON of the original's configuration to JSON. Comments from # to the end of the line and
// a comma before a closing bracket become spaces. The length and all offsets stay the same.
func toJSON(relaxed []byte) []byte {
	out := append([]byte(nil), relaxed...)
	comma := -1 // index of the last comma if only space follows it
	for i := 0; i < len(out); i++ {
		switch out[i] {
		case '"':
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
			comma = -1
		case '#':
			for ; i < len(out) && out[i] != '\n'; i++ {
				out[i] = ' '
			}
		case ',':
			comma = i
		case ']', '}':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case ' ', '\t', '\r', '\n':
		default:
			comma = -1
		}
	}
	return out
}
