package disbatch

// strict makes JSON of the relaxed JSON that the original's configuration is written in:
// comments from # to the end of the line and a comma before a closing bracket become
// spaces, so that offsets in errors stay true.
func strict(relaxed []byte) []byte {
	out := append([]byte(nil), relaxed...)
	comma := -1 // the last comma, if only space came after it
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
