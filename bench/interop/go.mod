module treadle/bench/interop

go 1.26.0

require github.com/Lupino/go-periodic v1.1.1

require (
	github.com/gammazero/deque v0.2.1 // indirect
	github.com/gammazero/workerpool v1.1.3 // indirect
)
