package faktory

// Matches reports whether a text matches a pattern as of Redis: * stands for any bytes, ? for one, [a-z] for one of a
// class, [^a-z] for one outside of it, and \ makes the next byte stand for itself. It takes time in proportion to the
// product of both lengths at most.
func Matches(pattern string, text []byte) bool {
	star, retry := -1, 0 // behind the last *, and where its bytes end
	p, t := 0, 0
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			star, retry = p, t
			continue
		}
		if n, ok := matchOne(pattern[p:], text[t]); ok {
			p, t = p+n, t+1
			continue
		}
		if star < 0 {
			return false
		}
		retry++
		p, t = star, retry
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne reports whether a byte matches the first element of a pattern, and how long that is.
func matchOne(pattern string, c byte) (n int, ok bool) {
	if pattern == "" {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, c)
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == c
		}
	}
	return 1, pattern[0] == c
}

// matchClass is matchOne for a class. One without an end has the rest of the pattern.
func matchClass(pattern string, c byte) (n int, ok bool) {
	n = 1
	not := n < len(pattern) && pattern[n] == '^'
	if not {
		n++
	}
	for n < len(pattern) && pattern[n] != ']' {
		switch {
		case pattern[n] == '\\' && n+1 < len(pattern):
			n++
			ok = ok || pattern[n] == c
		case n+2 < len(pattern) && pattern[n+1] == '-':
			low, high := min(pattern[n], pattern[n+2]), max(pattern[n], pattern[n+2])
			ok = ok || low <= c && c <= high
			n += 2
		default:
			ok = ok || pattern[n] == c
		}
		n++
	}
	return min(n+1, len(pattern)), ok != not
}
