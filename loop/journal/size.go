package journal

import "treadle/sched"

// Size is a number of bytes, as of sched.Size.
type Size = sched.Size
