//go:build !race

package sched

const underRace = false
