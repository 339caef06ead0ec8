package loop

// Queues are named by the functions of the Periodic protocol, which may be any bytes,
// and by the string types of Gloom: the same characters are the same queue. Other
// queues have names that begin with queueEscape, which no UTF-8 text does; a function
// that begins with it stands behind another one.
const (
	queueEscape = 0xff
	valueQueue  = 'j' // Gloom types that are not strings
)

// queueOf is the queue of a function. It is a view of name unless name is escaped.
func queueOf(name []byte) []byte {
	if len(name) > 0 && name[0] == queueEscape {
		return append([]byte{queueEscape}, name...)
	}
	return name
}

// functionOf is the function of a queue, ok false when it has none.
func functionOf(queue string) (name []byte, ok bool) {
	if len(queue) > 0 && queue[0] == queueEscape {
		return []byte(queue[1:]), len(queue) > 1 && queue[1] == queueEscape
	}
	return []byte(queue), true
}
