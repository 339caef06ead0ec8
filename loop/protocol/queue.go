package protocol

// Queues are named by the functions of the Periodic protocol, which may be any bytes, and
// by the string types of Gloom and the functions of Disbatch: the same characters are the
// same queue. Other queues have names that begin with queueEscape, which no UTF-8 text
// does; a function that begins with it stands behind another one.
const (
	queueEscape = 0xff
	valueQueue  = 'j' // Gloom types that are not strings
)

// Queue is the queue of a function. It is a view of function unless that is escaped.
func Queue(function []byte) []byte {
	if len(function) > 0 && function[0] == queueEscape {
		return append([]byte{queueEscape}, function...)
	}
	return function
}

// ValueQueue is the queue of a type that is a JSON value and no string.
func ValueQueue(value []byte) []byte { return append([]byte{queueEscape, valueQueue}, value...) }

// Function is the function of a queue, ok false when it has none.
func Function(queue string) (name []byte, ok bool) {
	name = []byte(Unescape(queue))
	return name, len(name) == len(queue) || len(name) > 0 && name[0] == queueEscape
}

// Unescape is a queue's name without the escape: its function, when it has one.
func Unescape(queue string) string {
	if len(queue) > 0 && queue[0] == queueEscape {
		return queue[1:]
	}
	return queue
}
