package dwork

// rewrite encodes what was decoded.
func rewrite(dst []byte, q *Query) []byte {
	var parts []byte
	dst = AppendType(dst, q.Type)
	for task := range q.Tasks {
		parts = parts[:0]
		for d := range task.Pred {
			parts = AppendPred(parts, d)
		}
		for d := range task.Succ {
			parts = AppendSucc(parts, d)
		}
		for e := range task.Log {
			parts = AppendLog(parts, e)
		}
		dst = AppendTask(dst, task.Name, task.Origin, parts)
	}
	if q.Name != nil {
		dst = AppendName(dst, q.Name)
	}
	if q.HasN {
		dst = AppendN(dst, q.N)
	}
	if q.Location != nil {
		dst = AppendLocation(dst, q.Location)
	}
	return dst
}
