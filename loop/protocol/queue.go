package protocol

// A queue is named by its function: the same characters are the same queue in all protocols.
// The name of any other queue begins with queueEscape, which no UTF-8 text does. A function
// that begins with queueEscape has another one before it.
const (
	queueEscape = 0xff
	valueQueue  = 'j' // see ValueQueue
)

// Queue returns the queue of a function: a view of function, or an escaped copy.
func Queue(function []byte) []byte {
	if len(function) > 0 && function[0] == queueEscape {
		return append([]byte{queueEscape}, function...)
	}
	return function
}

// ValueQueue returns the queue of a JSON value that is not a string.
func ValueQueue(value []byte) []byte { return append([]byte{queueEscape, valueQueue}, value...) }

// Function returns the function of a queue. ok is false when the queue has none.
func Function(queue string) (name []byte, ok bool) {
	name = []byte(Unescape(queue))
	return name, len(name) == len(queue) || len(name) > 0 && name[0] == queueEscape
}

// Unescape returns a queue's name without the escape, which is its function when it has one.
func Unescape(queue string) string {
	if len(queue) > 0 && queue[0] == queueEscape {
		return queue[1:]
	}
	return queue
}
