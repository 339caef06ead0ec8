module treadle/bench/interop

go 1.26.0

require (
	github.com/Lupino/go-periodic v1.1.1
	github.com/netresearch/go-cron v0.9.1
	treadle v0.0.0
)

require (
	github.com/gammazero/deque v0.2.1 // indirect
	github.com/gammazero/workerpool v1.1.3 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
)

replace treadle => ../..
